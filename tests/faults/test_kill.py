"""kill -9 of the driver at every failpoint, and at random; the next run makes the answer complete and exact."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from anabranch.runtime.checkpoint import Checkpoint
from tests.faults.conftest import Finish, Start, is_gone
from tests.faults.driver import Rig
from tests.oracle.feed import written
from tests.oracle.referee import assert_same_rows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

# Failpoint and query; each is passed once per batch, except sink.publish, which is passed once per file.
KILLS = [
    ("step.before_sink=kill@2", "filtered"),
    ("step.after_sink=kill@3", "plain"),
    ("sink.publish=kill@4", "filtered"),
    ("step.before_commit=kill@2", "plain"),
    ("step.after_commit=kill@2", "plain"),
]


def assert_clean(rig: Rig) -> None:
    """Nothing is left of staging, and state, steps and reports hold what the retained steps refer to, no more."""
    assert {path.name for path in rig.directory.iterdir()} == {"A", "B", "C", "out", "checkpoint"}
    checkpoint = Checkpoint(rig.checkpoint)
    steps = [checkpoint.read_step(number) for number in checkpoint.steps()]
    assert len(steps) == 2
    manifests = [manifest for step in steps for _, manifest in checkpoint.reports_of(step)]
    referred = {name for manifest in manifests for name in manifest.files()}
    assert {path.name for path in checkpoint.state.iterdir()} == referred
    assert {path.name for path in (rig.checkpoint / "reports").iterdir()} == {f"{step.number:010d}" for step in steps}


def test_the_answer_is_exact_after_a_kill_at_any_failpoint(start: Start, finish: Finish, tmp_path: Path) -> None:
    rigs = []
    for failpoint, query in KILLS:
        rig = Rig(tmp_path / failpoint.partition("=")[0])
        rig.add(3)
        child = start({"runs": [{"directory": str(rig.directory), "query": query}]}, failpoint)
        output, errors = child.communicate()
        assert child.returncode == -signal.SIGKILL, f"{failpoint}: {output}{errors}"
        assert is_gone(child.pid), f"{failpoint}: processes outlive the driver"
        rig.add(1)
        rigs.append(rig)
    # One process continues them all, each with another number of processors than before.
    runs = [
        {"directory": str(rig.directory), "query": query, "processors": processors}
        for processors, (rig, (_, query)) in zip((2, 3, 1, 2, 2), zip(rigs, KILLS, strict=True), strict=True)
    ]
    for report, rig, (failpoint, _) in zip(finish({"runs": runs}), rigs, KILLS, strict=True):
        try:
            assert_same_rows(written(rig.output), rig.expected())
            assert_clean(rig)
            assert report["batches"][-1] == 3
            assert ("skip" in report["events"]) == failpoint.startswith("step.after_commit")
        except AssertionError as error:
            raise AssertionError(f"{failpoint}: {error}") from error


def test_the_answer_is_exact_after_kills_at_random_moments(start: Start, finish: Finish, tmp_path: Path) -> None:
    rng = random.Random()
    rig = Rig(tmp_path / "rig")
    rig.add(5)
    job = {"runs": [{"directory": str(rig.directory), "query": "plain"}]}
    moments = []
    for _ in range(2):
        child = start(job)
        newest = max(Checkpoint(rig.checkpoint).steps(), default=0)
        deadline = time.monotonic() + 120
        # The first commit is the sign that batches are under way.
        while max(Checkpoint(rig.checkpoint).steps(), default=0) == newest and time.monotonic() < deadline:
            time.sleep(0.01)
        moments.append(delay := rng.random())
        time.sleep(delay)
        child.kill()
        child.communicate()
        rig.add(2)
    finish({"runs": [{"directory": str(rig.directory), "query": "plain"}] * 2})
    try:
        assert_same_rows(written(rig.output), rig.expected())
    except AssertionError as error:
        raise AssertionError(f"killed {moments} s after a commit: {error}") from error
    assert_clean(rig)
