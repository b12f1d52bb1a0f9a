"""Long rows on their way to processors: batches are bounded by bytes once a row needs it, and some values refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from anabranch.errors import BadRowError
from anabranch.processor import long_rows as marks
from anabranch.runtime.exchange import long_rows, processors
from anabranch.runtime.exchange.long_rows import BATCH_BYTES, NO_BYTE_LIMIT, SHORT
from tests.oracle.referee import Stream, assert_same_rows, join, query
from tests.oracle.steps import Kind, Steps

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string()), ("w", pa.binary())])
KINDS = {name: Kind(SCHEMA) for name in "ABC"}
# With a second round, through whose exchange the long values go once more.
QUERY = "SELECT A.v, B.w, C.v AS cv FROM A, B, C WHERE A.k = B.k AND B.v = C.v AND upper(A.v) <> 'X'"
LIMIT = "spark.sql.execution.arrow.maxBytesPerBatch"


def rows(lengths: list[int]) -> pa.Table:
    return pa.table(
        {
            "k": [n % 3 for n in range(len(lengths))],
            "v": [chr(97 + n % 26) * length for n, length in enumerate(lengths)],
            "w": [b"w" * (length // 2) for length in lengths],
        },
        schema=SCHEMA,
    )


def test_long_rows_come_in_batches_that_are_bounded_by_bytes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[int] = []

    def watch(session: SparkSession, *, narrow: bool, limited: bool) -> None:
        long_rows.limit_batches(session, narrow=narrow, limited=limited)
        limits.append(int(session.conf.get(LIMIT)))

    monkeypatch.setattr(processors, "limit_batches", watch)
    fed = [rows([3, 5, 0, 7]), rows([1, 2, SHORT, 9, 40_000]), rows([3, 3])]
    with Steps(spark, tmp_path / "checkpoint", QUERY, KINDS, processors=4, joins="(A B) C") as steps:
        for batch in fed:
            steps.feed(dict.fromkeys("ABC", batch))
        received = steps.results[-1].totals["received"]
    everything = pa.concat_tables(fed)
    text = "SELECT A.v, B.w, C.v AS cv FROM r A, r B, r C WHERE A.k = B.k AND B.v = C.v"
    expected = query(text, {"r": everything})
    assert_same_rows(steps.answer, expected)
    assert received == [len(everything)] * 3
    # Once without, then again with a limit, and with it from then on.
    assert limits == [NO_BYTE_LIMIT, BATCH_BYTES]


def test_joined_rows_may_be_long_where_those_they_are_made_of_are_not(spark: SparkSession, tmp_path: Path) -> None:
    """Only what goes into the exchange before the last round is."""
    batch = rows([SHORT * 6 // 10] * 2)
    with Steps(spark, tmp_path / "checkpoint", QUERY, KINDS, joins="(A B) C") as steps:
        steps.feed(dict.fromkeys("ABC", batch))
        assert steps.runner.context.processors._limited
    text = "SELECT A.v, B.w, C.v AS cv FROM r A, r B, r C WHERE A.k = B.k AND B.v = C.v"
    assert_same_rows(steps.answer, query(text, {"r": batch}))


def test_a_value_that_no_batch_can_hold_is_refused_with_its_stream(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks, "LARGEST_VALUE", 30_000)
    with Steps(spark, tmp_path / "checkpoint", QUERY, KINDS) as steps:
        steps.feed(dict.fromkeys("ABC", rows([3, 30_000])))
        with pytest.raises(Exception, match="stream B: a row has a value of 29.3 KiB, and a value may have at most"):
            steps.feed({"B": rows([3, 30_001])})
        assert isinstance(steps.runner.failure, BadRowError)


def test_rows_with_nested_columns_are_bounded_by_bytes_from_the_beginning(spark: SparkSession, tmp_path: Path) -> None:
    kinds = {
        "A": Kind(SCHEMA, select=("k", "array(v) AS vs", "v")),
        "B": Kind(SCHEMA),
    }
    text = "SELECT A.vs[0] AS v, B.v AS w FROM A, B WHERE A.k = B.k"
    with Steps(spark, tmp_path / "checkpoint", text, kinds) as steps:
        assert steps.runner.context.processors._limited
        batch = rows([5, SHORT + 1, 3])
        steps.feed({"A": batch, "B": batch})
    streams = {name: Stream(batch, ["k"]) for name in "AB"}
    assert_same_rows(steps.answer, join(streams, ["A.v", "B.v AS w"]))
