"""Tasks that fail and are repeated, and processors on several executors: the answer does not change."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conftest import QUICK_START
from tests.faults.conftest import Finish
from tests.faults.driver import Rig
from tests.oracle.feed import run_to_end, written
from tests.oracle.referee import assert_same_rows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_several_executors_share_the_work_and_failed_tasks_are_repeated_without_a_trace(
    finish: Finish, tmp_path: Path
) -> None:
    """On a cluster Spark retries. Tasks fail before their results, after them, or with their worker killed."""
    quick = QUICK_START["spark.driver.extraJavaOptions"]
    conf = {"spark.master": "local-cluster[2,1,1024]", "spark.executor.memory": "1g"}
    conf["spark.executor.extraJavaOptions"] = quick
    runs, rigs = [], []
    for failpoint, action, query in (
        ("processor.results", "kill", "filtered"),
        ("processor.report", "raise", "rounds"),
        ("processor.report", "kill", "plain"),
    ):
        rig = Rig(tmp_path / f"{failpoint}-{action}")
        rig.add(2)
        marker = tmp_path / f"{failpoint}.{action}"
        workers = f"{failpoint}={action}@once:{marker}"
        runs.append({"directory": str(rig.directory), "query": query, "workers": workers, "processors": 4})
        rigs.append((rig, marker))
    reports = finish({"runs": runs, "conf": conf})
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
