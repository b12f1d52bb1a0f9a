"""A contender's process tree is measured from outside and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from anabranch.bench.contenders import child
from anabranch.bench.contenders.job import Job
from anabranch.bench.contenders.memory import TreeSampler, _Reading
from anabranch.errors import BenchmarkError

PARENT_WITH_CHILD = (
    "import subprocess, sys, time; block = bytearray(80 << 20);"
    "subprocess.Popen([sys.executable, '-c', 'import time; b = bytearray(80 << 20); time.sleep(60)']);"
    "time.sleep(60)"
)


def test_the_peak_includes_descendants() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT_WITH_CHILD], start_new_session=True) as process:
        sampler = TreeSampler(psutil.Process(process.pid))
        deadline = time.monotonic() + 20
        while sampler.peak.total < 160 << 20 and time.monotonic() < deadline:
            sampler.sample()
            time.sleep(0.05)
        child._end(process, sampler)
    assert sampler.peak.total >= 160 << 20
    assert sampler.peak.python == sampler.peak.total
    assert len(sampler.seen) == 2
    gone, alive = psutil.wait_procs(list(sampler.seen.values()), timeout=10)
    assert not alive, f"{len(gone)} ended, still there: {alive}"


def test_a_process_that_changes_between_two_readings_is_never_larger_than_its_resident_set() -> None:
    assert _Reading(resident=0, proportional=150_000, at=0.0).scaled_to(4 << 20) == 0
    assert _Reading(resident=1, proportional=150_000, at=0.0).scaled_to(4 << 20) == 4 << 20
    assert _Reading(resident=200, proportional=100, at=0.0).scaled_to(210) == 105


def test_a_failed_contender_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    job = Job(contender="nobody", input="", scratch=str(tmp_path / "scratch"), streams=("A", "B"))
    broken = {**os.environ, "PYTHONPATH": "/nonexistent"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(child, "_environment", lambda: broken)
        patch.setattr(child.sys, "executable", _failing_python(tmp_path))
        with pytest.raises(BenchmarkError, match=r"(?s)'nobody' ended with status 4.*out of luck"):
            child.measure(job)


def _failing_python(folder: Path) -> str:
    script = folder / "python"
    script.write_text("#!/bin/sh\nread job\necho out of luck >&2\nexit 4\n")
    script.chmod(0o755)
    return str(script)
