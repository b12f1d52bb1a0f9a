"""Expressions in a processor mean what they mean to Spark: expression by expression, value by value."""

from __future__ import annotations

import datetime
import math
import random
import re
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from anabranch.errors import BadRowError
from anabranch.kernel.expression import evaluate, select
from anabranch.runtime.compile.fuse import fuse
from tests.oracle.referee import assert_same_rows, query
from tests.oracle.steps import Kind, Steps

pytestmark = pytest.mark.spark

DAY = datetime.date(2026, 2, 28)
MOMENT = datetime.datetime(2026, 2, 28, 12, 30, 0, 5, tzinfo=datetime.UTC)
VALUES = {
    "i": (pa.int32(), [None, 0, 1, -7, 2**31 - 1, -(2**31)]),
    "j": (pa.int64(), [None, 0, 1, 3, 2**62, -(2**63)]),
    "b": (pa.int8(), [None, 0, 1, 127, -128, 3]),
    "d": (pa.float64(), [None, 0.0, -0.0, math.nan, math.inf, 1.5]),
    "f": (pa.float32(), [None, -0.0, math.nan, -math.inf, 1.5, 0.1]),
    "p": (pa.bool_(), [None, True, False]),
    "s": (pa.string(), [None, "", "a", "aé", "b", "A"]),
    "day": (pa.date32(), [None, DAY, DAY + datetime.timedelta(days=1)]),
    "at": (pa.timestamp("us", "UTC"), [None, MOMENT, MOMENT + datetime.timedelta(microseconds=1)]),
    "local": (pa.timestamp("us"), [None, MOMENT.replace(tzinfo=None)]),
}
FUSED = [
    *(f"{left} {op} {right}" for op in ("=", "<", "<=", ">", ">=", "<=>", "<>") for left, right in
      (("i", "i2"), ("i", "j"), ("d", "d2"), ("d", "f"), ("f", "f2"), ("i", "d"), ("b", "f"), ("s", "s2"), ("p", "p2"),
       ("day", "day2"), ("at", "at2"), ("local", "local2"), ("j", "7"), ("d", "CAST('NaN' AS DOUBLE)"), ("d", "0"),
       ("s", "'a'"), ("f", "1.5F"))),
    "p AND p2", "p OR p2", "NOT p", "NOT (p AND i > 0)", "p AND NULL", "p OR NULL",
    "i IS NULL", "d IS NOT NULL", "(i > 0) IS NULL",
    "i IN (1, -7)", "i IN (1, NULL)", "s IN ('a', 'b', NULL)", "d IN (CAST('NaN' AS DOUBLE), 0)", "NOT i IN (1, 2)",
    "i BETWEEN 0 AND j", "coalesce(i, j, 5)", "coalesce(s, 'none')", "nvl(i, 0) > 1",
    "if(p, i, j)", "CASE WHEN p THEN s WHEN i > 0 THEN 'more' END", "CASE WHEN p THEN 1 ELSE 0 END = 1",
    "CASE i WHEN 1 THEN 'one' WHEN 0 THEN s ELSE 'other' END",
    "d + d2", "f - f2", "d * f", "-d", "i + 0.5D", "CAST(i AS BIGINT)", "CAST(b AS DOUBLE)", "CAST(f AS DOUBLE)",
    "CAST(j AS DOUBLE)", "i > 0 AND j < 5 OR s = 'a'", "true", "1 + 1 = 2",
]  # fmt: skip
OVERFLOWING = ["i + i2", "j - i2", "j * j2", "-b", "b + b2", "i + 1 > 0", "-i < 3", "i * 2 = 4 AND p"]
LEFT_TO_SPARK = [
    "i / 2", "i % 2", "i DIV 2", "upper(s)", "length(s)", "s || 'x'", "CAST(s AS INT)", "CAST(i AS STRING)",
    "CAST(d AS INT)", "CAST(j AS FLOAT)", "CAST(CAST(j AS FLOAT) AS DOUBLE)",
    "CAST(i AS DECIMAL(12, 2))", "i + CAST(1.5 AS DECIMAL(3, 1))", "year(day)", "p AND i + 1 > 0", "if(p, i + 1, 0)",
    "coalesce(i, j + 1)", "CAST(j AS INT)", "date_add(day, 1)", "NULL", "abs(i)", "greatest(i, j)", "s LIKE 'a%'",
    "i IN (j, i2 + 1)",
]  # fmt: skip


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """Every value of a type beside every other of it, and beside one of each other type."""
    columns: dict[str, pa.Array] = {}
    size = max(len(values) for _, values in VALUES.values()) ** 2
    for name, (data_type, values) in VALUES.items():
        pairs = list(product(values, values))
        rows = [pairs[n % len(pairs)] for n in range(size)]
        columns[name] = pa.array([left for left, _ in rows], data_type)
        columns[f"{name}2"] = pa.array([right for _, right in rows], data_type)
    return pa.table(columns)


def as_python(column: pa.Array) -> list[object]:
    return ["NaN" if isinstance(value, float) and math.isnan(value) else repr(value) for value in column.to_pylist()]


@pytest.mark.parametrize("text", FUSED)
def test_an_expression_has_the_value_that_spark_gives_it(text: str, spark: SparkSession, table: pa.Table) -> None:
    rows = spark.createDataFrame(table)
    (fused,) = fuse(rows, [text], {name: name for name in table.column_names})
    assert fused is not None
    (batch,) = table.combine_chunks().to_batches()
    asked = rows.selectExpr(f"{text} AS e").toArrow().column("e").combine_chunks()
    found = evaluate(fused, batch)
    if pa.types.is_timestamp(found.type):
        found = found.cast(asked.type)
    assert as_python(found) == as_python(asked)
    assert found.type == asked.type or pa.types.is_null(asked.type)


@pytest.mark.parametrize("text", OVERFLOWING)
def test_an_expression_fails_on_the_rows_on_which_it_fails_in_spark(
    text: str, spark: SparkSession, table: pa.Table
) -> None:
    rows = spark.createDataFrame(table)
    (fused,) = fuse(rows, [text], {name: name for name in table.column_names})
    assert fused is not None
    failed = 0
    words = re.findall(r"\w+", text)
    names = sorted(set(words).intersection(table.column_names))
    for values in {tuple(row[name] for name in names) for row in table.to_pylist()}:
        fields = [table.schema.field(name) for name in names]
        one = pa.table([pa.array([v], f.type) for f, v in zip(fields, values, strict=True)], pa.schema(fields))
        (batch,) = one.to_batches()
        try:
            asked = spark.createDataFrame(one).selectExpr(f"{text} AS e").toArrow().column("e").combine_chunks()
        except PySparkException:
            failed += 1
            with pytest.raises(BadRowError, match="fails on a joined row"):
                evaluate(fused, batch)
        else:
            assert as_python(evaluate(fused, batch)) == as_python(asked)
    assert failed


def test_what_arrow_does_otherwise_or_not_at_all_is_left_to_spark(spark: SparkSession, table: pa.Table) -> None:
    found = fuse(spark.createDataFrame(table), LEFT_TO_SPARK, {name: name for name in table.column_names})
    assert [text for text, fused in zip(LEFT_TO_SPARK, found, strict=True) if fused is not None] == []


def test_a_condition_is_asked_only_of_rows_that_meet_those_before(spark: SparkSession) -> None:
    rows = pa.record_batch({"i": pa.array([1, 2**31 - 1, None, 5], pa.int32())})
    conditions = fuse(spark.createDataFrame(pa.table(rows)), ["i < 100", "i + 1 > 2"], {"i": "i"})
    assert select([fused for fused in conditions if fused is not None], rows).column("i").to_pylist() == [5]


def test_what_is_selected_between_joins_on_one_key_needs_no_exchange(spark: SparkSession, tmp_path: Path) -> None:
    """In the shape (A B) C conditions between A and B are decided before C is joined."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.int32()), ("ts", pa.int64())])
    kinds = {name: Kind(schema, "ts", 60_000_000) for name in "ABC"}
    chance = random.Random(7)
    rows = {
        name: pa.table([[chance.randrange(4) for _ in range(40)] for _ in range(3)], schema=schema) for name in "ABC"
    }
    joined = "FROM A [RANGE 1 MINUTE], B [RANGE 1 MINUTE], C [RANGE 1 MINUTE] WHERE A.k = B.k AND B.k = C.k"
    between, left = "A.v + B.v > 2 AND A.v < C.v", "A.v % 2 = B.v % 2"
    grouped = "SELECT A.k, count(*) AS n, sum(A.v * B.v) AS s"
    for text, rounds, groups in (
        (f"SELECT A.v, B.v AS b, C.v AS c {joined} AND {between}", 1, False),
        (f"SELECT A.v, B.v AS b, C.v AS c {joined} AND {left}", 2, False),
        (f"{grouped} {joined} AND {between} GROUP BY A.k", 1, True),
        (f"SELECT A.k, count(*) AS n, sum(A.v / 2) AS s {joined} GROUP BY A.k", 2, True),
    ):
        with Steps(spark, tmp_path / str(hash(text)), text, kinds, joins="(A B) C") as steps:
            assert max(steps.plan.layout.rounds) + 1 == rounds, text
            steps.feed({name: table.slice(0, 25) for name, table in rows.items()})
            steps.feed({name: table.slice(25) for name, table in rows.items()})
            steps.end()
        if not groups:
            plain = text.replace(" [RANGE 1 MINUTE]", "")
            assert_same_rows(steps.answer, query(plain, rows))
            continue
        times = "greatest(A.ts, B.ts, C.ts) AS t"
        argument = "A.v * B.v" if "*" in text.split("sum")[1][:10] else "A.v / 2"
        where = text.split("FROM")[1].split("GROUP")[0].replace(" [RANGE 1 MINUTE]", "")
        expected = query(
            f"SELECT k, count(*) OVER w, sum(x) OVER w FROM (SELECT A.k, {argument} AS x, {times} FROM {where}) "
            "WINDOW w AS (PARTITION BY k ORDER BY t RANGE BETWEEN 60000 PRECEDING AND CURRENT ROW)",
            rows,
        )
        assert_same_rows(steps.answer, expected)


def test_an_overflow_between_joins_names_the_expression(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int32())])
    text = "SELECT A.v FROM A, B, C WHERE A.k = B.k AND B.k = C.k AND A.v + B.v > 0"
    row = pa.table({"k": [1], "v": [2**31 - 1]}, schema=schema)
    with Steps(spark, tmp_path / "checkpoint", text, {name: Kind(schema) for name in "ABC"}, joins="(A B) C") as steps:
        with pytest.raises(Exception, match="overflow"):
            steps.feed(dict.fromkeys("ABC", row))
        assert isinstance(steps.runner.failure, BadRowError)
        assert "`A.v` + `B.v` > 0 fails on a joined row: overflow" in str(steps.runner.failure)
