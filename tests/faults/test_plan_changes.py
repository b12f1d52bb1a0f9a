"""Queries are added and removed, and the driver dies in between: each still gets its own answer, exactly once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from anabranch.errors import ResumeMismatchError
from tests.faults.driver import Rig
from tests.oracle.feed import written
from tests.oracle.referee import assert_same_rows

pytestmark = pytest.mark.spark

FAILPOINTS = ["plan.described", "plan.adopted", "step.before_sink", "step.after_sink", "step.before_commit"]


def run_to_end(rig: Rig, spark: SparkSession, *kinds: str, processors: int = 2) -> None:
    engine = rig.engine(spark, processors)
    engine.start([rig.writer(engine, kind).trigger(availableNow=True) for kind in kinds]).awaitTermination()


def test_a_query_that_is_added_begins_with_the_first_batch_that_counts_for_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path / "rig")
    rig.add(2)
    run_to_end(rig, spark, "plain")
    for number, failpoint in enumerate(FAILPOINTS):
        rig.add(1)
        monkeypatch.setenv("ANABRANCH_FAILPOINT", f"{failpoint}=raise@once:{tmp_path / str(number)}")
        with pytest.raises(Exception, match=f"failpoint {failpoint}"):
            run_to_end(rig, spark, "plain", "filtered", processors=1 + number % 3)
    for failpoint in ("step.after_commit", "plan.described"):
        rig.add(1)
        monkeypatch.setenv("ANABRANCH_FAILPOINT", f"{failpoint}=raise@once:{tmp_path / failpoint}")
        with pytest.raises(Exception, match=f"failpoint {failpoint}"):
            run_to_end(rig, spark, "filtered", "plain", *(["groups"] if failpoint.startswith("plan") else []))
    run_to_end(rig, spark, "filtered", "plain")
    assert_same_rows(written(rig.output / "plain"), rig.expected())
    assert_same_rows(written(rig.output / "filtered"), rig.expected(first=2))
    with pytest.raises(ResumeMismatchError, match="it also answers the query 'filtered'"):
        run_to_end(rig, spark, "plain")
    assert len(list((rig.checkpoint / "plans").iterdir())) <= 3
    assert len(list((rig.checkpoint / "spark").iterdir())) <= 2


@pytest.mark.parametrize(
    ("failpoint", "added"),
    [("plan.described", "another column"), ("plan.adopted", "another column"), ("plan.switched", "filtered")],
)
def test_a_change_that_fails_leaves_the_run_as_it_was(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failpoint: str, added: str
) -> None:
    """A column that is not read yet takes another query of Spark's; all else is changed between two batches."""
    rig = Rig(tmp_path / "rig")
    rig.add(2)
    engine = rig.engine(spark)
    run = engine.start([rig.writer(engine, "plain"), rig.writer(engine, "groups")])
    try:
        run.processAllAvailable()
        monkeypatch.setenv("ANABRANCH_FAILPOINT", f"{failpoint}=raise@once:{tmp_path / 'marker'}")
        with pytest.raises(Exception, match=f"failpoint {failpoint}"):
            run.add(rig.writer(engine, added))
        assert run.queries == ("plain", "groups")
        rig.add(1)
        run.processAllAvailable()
        run.remove("groups")
        run.add(rig.writer(engine, added))
        rig.add(2)
        run.processAllAvailable()
        run.remove(added)
    finally:
        run.stop()
    assert run.exception() is None
    run_to_end(rig, spark, "plain")  # what was removed need not be started, though no step was made without it
    assert_same_rows(written(rig.output / "plain"), rig.expected())
    assert_same_rows(written(rig.output / added), rig.expected(first=3))
