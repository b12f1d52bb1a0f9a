"""Spilling and clean-up, step by step: what is pushed, what is owed, and when it comes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.state.statistics import DECAY
from tests.oracle import referee
from tests.oracle.steps import Kind, Steps

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.int64())])
KINDS = {name: Kind(SCHEMA, "t", 1_000_000) for name in "AB"}
JOIN = "SELECT A.v AS a, B.v AS b FROM A, B WHERE A.k = B.k"
WINDOWED = "SELECT A.v AS a, B.v AS b FROM A [RANGE 4 SECONDS], B [RANGE 4 SECONDS] WHERE A.k = B.k"


def rows(count: int, number: int, keys: int = 40) -> pa.Table:
    """So many rows of batch `number`, a second each."""
    values = [number * 1_000 + n for n in range(count)]
    times = [number * 1_000 + n % 1_000 for n in range(count)]
    return pa.table({"k": [v % keys for v in values], "t": times, "v": values}, schema=SCHEMA)


def expected(batches: list[pa.Table], window: int | None = None) -> pa.Table:
    everything = pa.concat_tables(batches)
    streams = {name: referee.Stream(everything, ["k"], "t", window) for name in "AB"}
    return referee.join(streams, ["A.v AS a", "B.v AS b"])


def kinds(steps: Steps) -> list[str]:
    return [event.kind for event in steps.events.since()]


def test_quiet_batches_clean_up_in_passing_as_far_as_memory_allows(spark: SparkSession, tmp_path: Path) -> None:
    settings = {"memory": 16_000, "policies": [ab.Spill(push=1.0)]}
    fed = [rows(400, 0), rows(400, 1), rows(400, 2), *(rows(3, n) for n in range(3, 9))]
    with Steps(spark, tmp_path / "c", JOIN, KINDS, settings=settings) as steps:
        for batch in fed[:3]:
            steps.feed({"A": batch, "B": batch})
        assert "spill" in kinds(steps)
        assert "clean-up" not in kinds(steps)
        owed = len(expected(fed[:3])) - len(steps.answer)
        assert owed > 0
        for batch in fed[3:]:
            steps.feed({"A": batch, "B": batch})
        cleaned = [event for event in steps.events.since() if event.kind == "clean-up"]
        assert cleaned
        assert all(event.details["answered"] is None for event in cleaned), "in passing"
        assert sum(event.details["results"] for event in cleaned) > 0
        assert all(report.active_bytes <= 16_000 for result in steps.results for report in result.reports)
        steps.end()
        referee.assert_same_rows(steps.answer, expected(fed))


def test_groups_that_come_back_from_disk_are_only_as_productive_of_late_as_they_were(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Of late is what new rows have given: neither what is owed, nor what was given before the push."""
    settings = {"memory": 16_000, "policies": [ab.Spill(push=1.0)]}
    with Steps(spark, tmp_path / "c", JOIN, KINDS, settings=settings) as steps:
        before, back = 0.0, 0
        for batch in [rows(400, 0), rows(400, 1), rows(400, 2), *(rows(3, n) for n in range(3, 7))]:
            steps.feed({"A": batch, "B": batch})
            reports = steps.results[-1].reports
            fresh = sum(sum(report.produced) - sum(report.owed) for report in reports)
            states = [state for manifest in steps.runner.context.manifests for state in manifest.operators]
            recent = sum(float(state.statistics.recent.sum()) for state in states)
            assert recent <= before * DECAY + fresh + 1e-6
            before, back = recent, back + sum(sum(report.owed) for report in reports)
        assert back, "something came back"


def test_what_a_batch_has_to_clean_up_is_done_again_after_a_crash(spark: SparkSession, tmp_path: Path) -> None:
    """It is on record in the step before, so the batch gives the same rows under its id."""
    settings = {"memory": 10_000, "policies": [ab.Spill(push=1.0)]}
    fed = [rows(400, 0), rows(400, 1), rows(3, 2), rows(3, 3), rows(3, 4)]
    given: dict[int, pa.Table] = {}

    def fail(results: object, batch_id: int) -> None:
        given[batch_id] = results.toArrow()
        if batch_id == 3 and processors == 2:
            raise RuntimeError("in the sink")

    processors = 2
    with Steps(spark, tmp_path / "c", JOIN, KINDS, settings=settings, sink=fail) as steps:
        for batch in fed[:3]:
            steps.feed({"A": batch, "B": batch})
        assert steps.taken.last_step().clean_up
        with pytest.raises(RuntimeError, match="in the sink"):
            steps.feed({"A": fed[3], "B": fed[3]})
    first, processors = given[3], 3
    with Steps(spark, tmp_path / "c", JOIN, KINDS, processors=3, settings=settings, sink=fail) as steps:
        steps.feed({"A": fed[3], "B": fed[3]})
        referee.assert_same_rows(given[3], first)
        steps.feed({"A": fed[4], "B": fed[4]})
        steps.end()
    referee.assert_same_rows(pa.concat_tables(given.values()), expected(fed))


def test_spilled_rows_are_dropped_once_they_are_used(spark: SparkSession, tmp_path: Path) -> None:
    settings = {"memory": 8_000, "policies": [ab.Spill(push=0.5)]}
    fed = [rows(200, n) for n in range(8)]
    with Steps(spark, tmp_path / "c", WINDOWED, KINDS, settings=settings) as steps:
        for batch in fed:
            steps.feed({"A": batch, "B": batch})
        assert sum(report.spilled_bytes for report in steps.results[-1].reports) > 8_000
        while steps.clean_up():
            pass
        referee.assert_same_rows(steps.answer, expected(fed, 4_000))
        later = [rows(20, n) for n in range(8, 15)]
        for batch in later:
            steps.feed({"A": batch, "B": batch})
        while steps.clean_up():
            pass
        listed = {name for manifest in steps.runner.context.manifests for name in manifest.files()}
        early = {name for name in listed if int(name.split("-")[1]) <= len(fed)}
        assert early == set(), "what has expired and is not owed to anybody is gone"
        steps.end()
        referee.assert_same_rows(steps.answer, expected([*fed, *later], 4_000))
