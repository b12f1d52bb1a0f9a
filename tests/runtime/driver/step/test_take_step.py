"""Steps by themselves: repeated, out of order, from a driver that lost its checkpoint, and of the widest join."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from anabranch.errors import CheckpointInUseError, CorruptStateError
from anabranch.plan.query import MAX_INPUTS
from tests.oracle.referee import Stream, assert_same_rows, join
from tests.oracle.steps import Kind, Steps

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
KINDS = {"A": Kind(SCHEMA), "B": Kind(SCHEMA)}
QUERY = "SELECT A.v, B.v AS w FROM A, B WHERE A.k = B.k"


def rows(start: int, stop: int) -> pa.Table:
    return pa.table({"k": [n % 3 for n in range(start, stop)], "v": list(range(start, stop))}, schema=SCHEMA)


def expected(*parts: pa.Table) -> pa.Table:
    stream = Stream(pa.concat_tables(parts), ["k"])
    return join({"A": stream, "B": stream}, ["A.v", "B.v"])


def test_a_repeated_batch_is_skipped_and_a_gap_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    first, second = rows(0, 5), rows(5, 9)
    with Steps(spark, tmp_path / "checkpoint", QUERY, KINDS) as steps:
        steps.feed({"A": first, "B": first})
        steps.feed({"A": first, "B": first}, batch_id=0)
        steps.feed({"A": second, "B": second}, batch_id=1)
        assert_same_rows(steps.answer, expected(first, second))
        with pytest.raises(
            CorruptStateError, match="Spark delivers batch 5, but the engine's last committed batch is 1"
        ):
            steps.feed({"A": first}, batch_id=5)
        with pytest.raises(CorruptStateError, match="delivers batch 0"):
            steps.feed({"A": first}, batch_id=0)
        assert len(steps.answers) == 2


def test_a_driver_that_lost_its_checkpoint_is_fenced_off(spark: SparkSession, tmp_path: Path) -> None:
    """The lock is gone, as when a machine was cut off; a newer run has taken over and the old one comes back."""
    first, second = rows(0, 5), rows(5, 9)
    with Steps(spark, tmp_path / "checkpoint", QUERY, KINDS) as old:
        old.feed({"A": first, "B": first})
        old.taken.release()
        with Steps(spark, tmp_path / "checkpoint", QUERY, KINDS, processors=3) as new:
            with pytest.raises(CheckpointInUseError, match="taken over by a newer run"):
                old.feed({"A": second, "B": second})
            new.feed({"A": second, "B": second})
        assert_same_rows(pa.concat_tables([old.answers[0], new.answer]), expected(first, second))


def test_the_widest_join(spark: SparkSession, tmp_path: Path) -> None:
    """As many inputs as there may be, each with a row per batch and key, in two batches."""
    names = [f"s{number}" for number in range(MAX_INPUTS)]
    kinds = {name: Kind(SCHEMA) for name in names}
    equal = " AND ".join(f"{left}.k = {right}.k" for left, right in itertools.pairwise(names))
    columns = ", ".join(f"{name}.v AS {name}" for name in names)
    with Steps(
        spark, tmp_path / "checkpoint", f"SELECT {columns} FROM {', '.join(names)} WHERE {equal}", kinds
    ) as steps:
        batches = [rows(0, 2), rows(3, 5)]
        for batch in batches:
            steps.feed(dict.fromkeys(names, batch))
        stream = Stream(pa.concat_tables(batches), ["k"])
        answer = join(dict.fromkeys(names, stream), [f"{name}.v" for name in names])
        assert len(answer) == 2 * 2**MAX_INPUTS
        assert_same_rows(steps.answer, answer)
