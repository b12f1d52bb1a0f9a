"""The memory sink: exact after any batches, at a cost that depends on the batch."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from anabranch.runtime.sinks.formats import SinkOptions, make_sink

pytestmark = pytest.mark.spark


def test_the_view_is_exact_after_every_batch_and_costs_what_the_batches_cost(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after batches without rows, and after one that came again with other rows."""
    handed_over = 0
    real = SparkSession.createDataFrame

    def counting(session: SparkSession, data: pa.Table, *arguments: object, **named: object) -> object:
        nonlocal handed_over
        handed_over += len(data)
        return real(session, data, *arguments, **named)

    sink = make_sink(SinkOptions("memory", name="kept"), spark, "", Path())
    expected: dict[int, list[int]] = {}
    rng = random.Random(1)
    for step in range(32):
        batch_id = step if step not in (9, 20, 21) else rng.randrange(step)
        count = 0 if step in (0, 5, 20) else 10
        expected[batch_id] = [step * 100 + n for n in range(count)]
        rows = spark.range(step * 100, step * 100 + count).selectExpr("id", "INTERVAL '1' MONTH * id AS months")
        with monkeypatch.context() as patched:
            patched.setattr(SparkSession, "createDataFrame", counting)
            sink(rows, batch_id)
        if step % 5 == 0 or step == 31:
            shown = sorted(row.id for row in spark.sql("SELECT id FROM kept").collect())
            assert shown == sorted(number for numbers in expected.values() for number in numbers)
    total = sum(map(len, expected.values()))
    assert handed_over < 8 * total, f"{handed_over} rows were handed over for {total}"  # all every time: 16 times
    assert spark.table("kept").schema.simpleString() == "struct<id:bigint,months:interval year to month>"
    assert spark.table("kept").rdd.getNumPartitions() <= 8
