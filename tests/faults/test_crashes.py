"""Errors at every failpoint of the driver, in one process: quicker than kills, so every one for every way to write."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from anabranch.errors import DiskFullError
from tests.faults.driver import Rig
from tests.faults.test_kill import assert_clean
from tests.oracle.feed import run_to_end, written
from tests.oracle.referee import assert_same_rows

pytestmark = pytest.mark.spark

FAILPOINTS = ["step.before_sink", "step.after_sink", "sink.publish", "step.before_commit", "step.after_commit"]


# Some resume with another number, also while an end of the input is still to be dealt with, and some do not.
PROCESSORS = [1, 2, 3, 1, 2, 2, 2, 3, 3, 2]
AT_THE_END = ["end.announced", "end.before_sink", "end.after_sink", "end.before_commit", "end.after_commit"]


CLEANING_UP = [point.replace("end.", "clean-up.") for point in AT_THE_END]


@pytest.mark.parametrize("query", ["filtered", "rounds", "groups", "spilled plain", "spilled groups"])
def test_a_run_that_ends_anywhere_is_continued_exactly(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    rig = Rig(tmp_path / "a place, 100% =strange= & #new ü")
    # What is pushed to disk and what is grouped crash within a step in other cases.
    steps = FAILPOINTS if query != "spilled groups" else []
    failpoints = [*steps, *(AT_THE_END if query == "groups" else CLEANING_UP if "spilled" in query else [])]
    rig.add(0 if steps else 4)
    for number, failpoint in enumerate(failpoints):
        rig.add(1)
        marker = tmp_path / f"{number}"
        monkeypatch.setenv("ANABRANCH_FAILPOINT", f"{failpoint}=raise@once:{marker}")
        with pytest.raises(Exception, match=f"failpoint {failpoint}"):
            run_to_end(rig.query(spark, query, processors=PROCESSORS[number]), rig.output)
    rig.add(1)
    run_to_end(rig.query(spark, query), rig.output)
    assert_same_rows(written(rig.output), rig.expected("groups" if "groups" in query else "plain"))
    assert_clean(rig)


@pytest.mark.parametrize("where", ["driver", "workers"])
def test_a_full_disk_is_named_and_the_run_goes_on_from_the_last_step(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    rig = Rig(tmp_path / "rig")
    rig.add(2)
    run_to_end(rig.query(spark, "spilled plain"), rig.output)
    rig.add(2)
    setting = f"store.write=full@once:{tmp_path / 'full'}"
    if where == "driver":
        monkeypatch.setenv("ANABRANCH_FAILPOINT", setting)
    else:
        # Spark starts new workers for a new environment.
        monkeypatch.setitem(spark.sparkContext.environment, "ANABRANCH_FAILPOINT", setting)
    with pytest.raises(DiskFullError, match="no space left .*The last committed step is intact: free some space"):
        run_to_end(rig.query(spark, "spilled plain"), rig.output)
    assert (tmp_path / "full").exists()
    run_to_end(rig.query(spark, "spilled plain"), rig.output)
    assert_same_rows(written(rig.output), rig.expected("plain"))
    assert_clean(rig)
