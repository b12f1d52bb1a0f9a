"""What somebody sees on the terminal who adds, removes and stops in the middle of a batch: nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.driver import ROOT

pytestmark = pytest.mark.spark


def test_nothing_that_was_asked_for_is_logged_as_an_error(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.faults.stopping", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    told = ended.stderr.replace('Spark log level to "ERROR"', "")
    assert [line for line in told.splitlines() if "ERROR" in line or "Traceback" in line or "rror:" in line] == []
    assert ended.stdout.splitlines() == [
        "stopped between two batches",
        "interrupted after 0",
        "stopped by Spark after 0",
        "stopped by Ctrl-C after 0",
        "stopped by itself after 2",
    ]
