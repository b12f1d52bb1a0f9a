"""kill -9 of the driver where most is under way; the next run makes the answer complete and exact.

Errors at all other failpoints are in `test_crashes`; `make soak` kills at any moment.
"""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from anabranch.checkpoint.folder.directory import Checkpoint
from tests.faults.conftest import Start, is_gone
from tests.faults.driver import Rig
from tests.oracle.feed import run_to_end, written
from tests.oracle.referee import assert_same_rows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

# Failpoint and query; each is passed once per batch, except sink.publish, which is passed once per file.
KILLS = [
    ("sink.publish=kill@4", "filtered"),
    ("step.after_commit=kill@2", "moved plain"),
    ("clean-up.after_sink=kill@1", "spilled plain"),
]


def assert_clean(rig: Rig) -> None:
    """Nothing is left of staging, and state, steps and reports hold what the retained steps refer to, no more."""
    assert {path.name for path in rig.directory.iterdir()} == {"A", "B", "C", "out", "checkpoint"}
    assert not [path for path in rig.output.rglob("*") if path.name.startswith(".") or path.name.endswith(".part")]
    checkpoint = Checkpoint(rig.checkpoint)
    assert not list(checkpoint.scratch.glob("*"))
    steps = [checkpoint.read_step(number) for number in checkpoint.steps()]
    assert len(steps) == 2
    manifests = [manifest for step in steps for _, manifest in checkpoint.reports_of(step)]
    referred = {name for manifest in manifests for name in manifest.files()}
    assert {path.name for path in checkpoint.state.iterdir()} == referred
    assert {path.name for path in (rig.checkpoint / "reports").iterdir()} == {f"{step.number:010d}" for step in steps}


def kill_at_failpoint(start: Start, rig: Rig, failpoint: str, query: str) -> None:
    """Let the driver kill itself at a failpoint."""
    child = start({"runs": [{"directory": str(rig.directory), "query": query}]}, failpoint)
    output, errors = child.communicate()
    assert child.returncode == -signal.SIGKILL, f"{failpoint}: {output}{errors}"
    assert is_gone(child.pid), f"{failpoint}: processes outlive the driver"


def test_the_answer_is_exact_after_kills(start: Start, spark: SparkSession, tmp_path: Path) -> None:
    rigs = [Rig(tmp_path / str(n)) for n in range(len(KILLS))]
    for rig in rigs:
        rig.add(3)
    with ThreadPoolExecutor(2) as two_at_once:
        killed = [
            two_at_once.submit(kill_at_failpoint, start, rig, failpoint, query)
            for rig, (failpoint, query) in zip(rigs, KILLS, strict=True)
        ]
        for kill in killed:
            kill.result()
    for rig in rigs:
        rig.add(1)
    # This process continues them all, some with another number of processors than before.
    for processors, rig, (killed_at, query) in zip((2, 3, 1), rigs, KILLS, strict=True):
        run = run_to_end(rig.query(spark, query, processors), rig.output)
        try:
            assert_same_rows(written(rig.output), rig.expected())
            assert_clean(rig)
            assert [entry["batchId"] for entry in run.recentProgress if entry["numInputRows"]][-1] == 3
            events = [event.kind for event in run.events_since()]
            assert ("skip" in events) == killed_at.startswith("step.after_commit")
        except AssertionError as error:
            raise AssertionError(f"killed at {killed_at}: {error}") from error
