"""Tasks that fail and are repeated, and processors on several executors, one of which is lost: the answer does not
change."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from anabranch.checkpoint.folder.directory import Checkpoint
from tests.conftest import QUICK_START
from tests.faults.conftest import Finish
from tests.faults.driver import Rig
from tests.faults.test_kill import assert_clean
from tests.oracle.feed import run_to_end, written
from tests.oracle.referee import assert_same_rows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def lose_executor(rig: Rig, begun: Path, paused: Path) -> int:
    """Once another run has `begun`, add a batch to the one before it. When a worker has `paused` in the middle of that
    batch, kill the executor that the worker belongs to, and return how many steps were committed by then."""
    _wait_for(begun)
    rig.add(1)
    _wait_for(paused)
    committed = len(Checkpoint(rig.checkpoint).steps())
    worker = psutil.Process(int(paused.read_text()))
    executor = next(
        parent for parent in worker.parents() if "CoarseGrainedExecutorBackend" in " ".join(parent.cmdline())
    )
    orphans = executor.children(recursive=True)
    executor.kill()
    for orphan in orphans:
        with suppress(psutil.NoSuchProcess):
            orphan.kill()
    return committed


def _wait_for(marker: Path) -> None:
    deadline = time.monotonic() + 200
    while not (marker.exists() and marker.read_text()):
        assert time.monotonic() < deadline, f"{marker.name} was not reached"
        time.sleep(0.05)


def test_several_executors_share_the_work_and_failed_tasks_and_lost_executors_leave_no_trace(
    finish: Finish, tmp_path: Path
) -> None:
    """On a cluster Spark retries. Tasks fail before their results, after them, or with their worker killed. At last an
    executor is killed in the middle of a batch: other ones go on for it from the last committed step."""
    quick = QUICK_START["spark.driver.extraJavaOptions"]
    conf = {"spark.master": "local-cluster[2,1,1024]", "spark.executor.memory": "1g"}
    conf["spark.executor.extraJavaOptions"] = quick
    lost = Rig(tmp_path / "lost")
    lost.add(2)
    runs, rigs = [{"directory": str(lost.directory), "query": "rounds", "processors": 4}], []
    for failpoint, action, query in (
        ("processor.results", "kill", "filtered"),
        ("processor.report", "raise", "rounds"),
        ("processor.report", "kill", "plain"),
    ):
        rig = Rig(tmp_path / f"{failpoint}-{action}")
        rig.add(1 if rigs else 2)
        marker = tmp_path / f"{failpoint}.{action}"
        workers = f"{failpoint}={action}@once:{marker}"
        runs.append({"directory": str(rig.directory), "query": query, "workers": workers, "processors": 4})
        rigs.append((rig, marker))
    paused = tmp_path / "paused"
    runs.append({**runs[0], "workers": f"processor.results=pause@once:{paused}"})
    with ThreadPoolExecutor(1) as beside:
        losing = beside.submit(lose_executor, lost, rigs[0][1], paused)
        first, *reports, last = finish({"runs": runs, "conf": conf})
        assert losing.result() == 2, "steps that are kept"
    assert (first["batches"], last["batches"]) == ([0, 1], [2])
    assert_same_rows(written(lost.output), lost.expected())
    assert_clean(lost)
    for report, (rig, marker) in zip(reports, rigs, strict=True):
        assert report["executors"] == 3  # two and the driver
        assert marker.exists(), f"{marker.name} was not reached"
        assert_same_rows(written(rig.output), rig.expected())
        assert {path.name for path in rig.directory.iterdir()} == {"A", "B", "C", "out", "checkpoint"}


@pytest.mark.parametrize("failpoint", ["processor.results", "processor.report"])
def test_a_task_that_fails_for_good_ends_the_run_and_changes_nothing(
    spark: SparkSession, tmp_path: Path, failpoint: str
) -> None:
    """Our session does not retry: the run ends, and the next one does the batch again."""
    rig = Rig(tmp_path / "rig")
    rig.add(2)
    run_to_end(rig.query(spark, "plain"), rig.output)
    before = written(rig.output)
    rig.add(1)
    marker = tmp_path / "marker"
    spark.sparkContext.environment["ANABRANCH_FAILPOINT"] = f"{failpoint}=raise@once:{marker}"
    try:
        with pytest.raises(Exception, match=f"failpoint {failpoint}"):
            run_to_end(rig.query(spark, "plain"), rig.output)
    finally:
        del spark.sparkContext.environment["ANABRANCH_FAILPOINT"]
    assert marker.exists()
    assert_same_rows(written(rig.output), before)
    run_to_end(rig.query(spark, "plain"), rig.output)
    assert_same_rows(written(rig.output), rig.expected())
