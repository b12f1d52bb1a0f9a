"""Equalities between keys of different types: each means what Spark means by that very pair, or the query is refused.

Spark's own batch join of the same rows is the referee.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from anabranch.errors import ConfigError, QueryError
from anabranch.runtime.rows.carried import type_text
from anabranch.runtime.rows.exactness import is_exact
from tests.oracle.steps import Kind, Steps

NUMBERS = pa.schema([("i", pa.int64())])
SEEDS = 2
ZONE = "spark.sql.session.timeZone"

# Values that are near each other, and equal in one type or another, by the types they are tried in.
FAMILIES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (
        "DECIMAL(38,18) DECIMAL(38,0) DECIMAL(20,2) DECIMAL(5,1) TINYINT INT BIGINT FLOAT DOUBLE".split(),
        ("7", "7.3", "7.4", "7.30", "7.49", "6.9999999", "100", "16777216", "16777217", "NULL"),
    ),
    (
        "DECIMAL(20,0) BIGINT INT FLOAT DOUBLE".split(),
        ("9007199254740992", "9007199254740993", "16777217", "16777216", "0", "NULL"),
    ),
    (
        "DATE TIMESTAMP_LTZ TIMESTAMP_NTZ".split(),
        # Clocks in Berlin went from 02:00 to 03:00, and half a year later back from 03:00 to 02:00.
        tuple(
            f"'{day}'"
            for day in (
                "2024-03-31 00:00:00",
                "2024-03-31 02:30:00",
                "2024-03-31 03:30:00",
                "2024-10-27 02:30:00",
                "2024-10-27 03:30:00",
                "2024-10-27 00:00:00",
            )
        ),
    ),
)

COARSELY_COMPARED = (
    ("DECIMAL(38,18)", "DECIMAL(38,0)"),
    ("BIGINT", "DOUBLE"),
    ("INT", "FLOAT"),
    ("TIMESTAMP_NTZ", "TIMESTAMP_LTZ"),
    ("DATE", "TIMESTAMP_LTZ"),
)


def keyed(types: dict[str, str], values: tuple[str, ...]) -> Kind:
    """A stream whose row i has the i-th value in columns of these types; what does not fit is null."""
    listed = ", ".join(f"CAST({value} AS STRING)" for value in values)
    value = f"element_at(array({listed}), CAST(i + 1 AS INT))"
    return Kind(NUMBERS, select=("i", *(f"try_cast({value} AS {t}) AS {name}" for name, t in types.items())))


def rows_of(spark: SparkSession, kinds: dict[str, Kind], count: int, text: str) -> Counter[tuple[int, ...]]:
    """Spark's own answer."""
    rows = pa.table({"i": list(range(count))}, schema=NUMBERS)
    for name, kind in kinds.items():
        kind.frame(spark, rows).createOrReplaceTempView(name)
    return Counter(tuple(row) for row in spark.sql(text).collect())


def answer(
    spark: SparkSession,
    checkpoint: Path,
    kinds: dict[str, Kind],
    count: int,
    text: str,
    joins: str = "auto",
    then: str | None = None,
) -> Counter[tuple[int, ...]]:
    """The answer to rows that come in two batches. Between them the query migrates to another order, if it can."""
    rows = pa.table({"i": list(range(count))}, schema=NUMBERS)
    with Steps(spark, checkpoint, text, kinds, joins=joins) as steps:
        steps.feed(dict.fromkeys(kinds, rows.slice(0, 3)))
        if then is not None:
            with suppress(ConfigError):  # the order is in force, or would cross streams
                steps.public.migrate(then, "moving-state")
        steps.feed(dict.fromkeys(kinds, rows.slice(3)))
        return Counter(zip(*(column.to_pylist() for column in steps.answer.columns), strict=True))


COARSE = ("7", "7.3", "7.4", "8")


@pytest.mark.spark
def test_two_terms_are_compared_in_the_type_of_the_pair_however_coarse(spark: SparkSession, tmp_path: Path) -> None:
    kinds = {"A": keyed({"x": "DECIMAL(38,18)"}, COARSE), "B": keyed({"x": "DECIMAL(38,0)"}, COARSE)}
    text = "SELECT A.i, B.i AS j FROM A, B WHERE A.x = B.x"
    found = answer(spark, tmp_path / "checkpoint", kinds, len(COARSE), text)
    assert found == rows_of(spark, kinds, len(COARSE), text)
    assert {(1, 0), (2, 0)} <= found.keys()


@pytest.mark.spark
@pytest.mark.parametrize(
    "where",
    [
        "A.x = C.x AND A.x = B.k",
        "A.x = B.k AND A.y = B.k AND A.i = C.i",
        "A.x = B.k AND C.x = B.k",
    ],
)
def test_a_class_that_a_common_type_would_coarsen_is_refused_by_name(
    spark: SparkSession, tmp_path: Path, where: str
) -> None:
    fine = {"x": "DECIMAL(38,18)", "y": "DECIMAL(38,18)"}
    kinds = {"A": keyed(fine, COARSE), "B": keyed({"k": "DECIMAL(38,0)"}, COARSE), "C": keyed(fine, COARSE)}
    text = f"SELECT A.i, B.i AS j, C.i AS k FROM A, B, C WHERE {where}"
    with (
        pytest.raises(QueryError, match=r"A: `x` is decimal\(38,18\).*B: `k` is decimal\(38,0\).*CAST"),
        Steps(spark, tmp_path / "checkpoint", text, kinds),
    ):
        pass


@pytest.mark.spark
def test_a_class_that_is_only_checked_above_a_join_is_refused_as_well(spark: SparkSession, tmp_path: Path) -> None:
    """D connects A.y with B.y, but A and B meet before: what is checked there nobody wrote."""
    types = {"x": "INT", "y": "DECIMAL(38,18)"}
    kinds = {name: keyed(types, COARSE) for name in "ABC"} | {"D": keyed({"x": "INT", "y": "DECIMAL(38,0)"}, COARSE)}
    where = "A.x = B.x AND B.x = C.x AND C.x = D.x AND A.y = D.y AND B.y = D.y"
    with (
        pytest.raises(QueryError, match=r"A: `y` is decimal\(38,18\), D: `y` is decimal\(38,0\)"),
        Steps(spark, tmp_path / "checkpoint", f"SELECT A.i FROM A, B, C, D WHERE {where}", kinds, joins="((A B C) D)"),
    ):
        pass


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(SEEDS))
def test_equalities_of_random_types_join_as_in_spark_or_are_refused(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    before = spark.conf.get(ZONE)
    spark.conf.set(ZONE, rng.choice(["UTC", "Europe/Berlin", "Europe/Berlin", "+05:30"]))
    try:
        tried = 0
        for attempt in range(12):
            kinds, text, joins, count = drawn(rng)
            try:
                then = rng.choice(["(A B) C", "A (B C)", "(A C) B", "multiway"]) if "C" in kinds else None
                found = answer(spark, tmp_path / f"checkpoint-{attempt}", kinds, count, text, joins, then)
            except QueryError:
                continue
            tried += 1
            assert found == rows_of(spark, kinds, count, text), (text, kinds)
            if tried == 2:
                break
        assert tried
    finally:
        spark.conf.set(ZONE, before)


def drawn(rng: random.Random) -> tuple[dict[str, Kind], str, str, int]:
    """Streams with two keys of random types each, and equalities that connect them."""
    types, values = rng.choice(FAMILIES)
    values = tuple(rng.sample(values, min(len(values), 6)))
    names = rng.choice(["AB", "ABC", "ABC"])
    # Few types per case, so that not all of them are refused; most often those that Spark compares coarsely.
    coarse = [pair for pair in COARSELY_COMPARED if set(pair) <= set(types)]
    chosen = rng.sample(types, 2) if rng.random() < 0.3 else rng.choice(coarse)
    kinds = {name: keyed({"x": rng.choice(chosen), "y": rng.choice(chosen)}, values) for name in names}
    equal = [f"{one}.{rng.choice('xy')} = {other}.{rng.choice('xy')}" for one, other in pairwise(names)]
    if rng.random() < 0.5:
        one, other = rng.sample(names, 2)
        equal.append(f"{one}.{rng.choice('xy')} = {other}.{rng.choice('xy')}")
    if rng.random() < 0.2:
        equal.append("A.x = A.y")
    rng.shuffle(equal)
    joins = rng.choice(["auto", "((A B) C)"]) if names == "ABC" else "auto"
    selected = ", ".join(f"{name}.i AS {name}" for name in names)
    if rng.random() < 0.2:
        clauses = [names[0], *(f"JOIN {name} USING ({rng.choice(['x', 'y', 'x, y'])})" for name in names[1:])]
        return kinds, f"SELECT {selected} FROM {' '.join(clauses)}", joins, len(values)
    items = [made_of(rng, name, names) for name in names]
    return kinds, f"SELECT {selected} FROM {', '.join(items)} WHERE {' AND '.join(equal)}", joins, len(values)


def made_of(rng: random.Random, name: str, names: str) -> str:
    """A stream as it is, or as a sub-query makes it of one or two, or of a join."""
    other = rng.choice(names)
    return rng.choice(
        [
            *[name] * 6,
            f"(SELECT i, y AS x, x AS y FROM {name}) AS {name}",
            f"(SELECT i, x, y FROM {name} UNION ALL SELECT i + 100, y, x FROM {other}) AS {name}",
            f"(SELECT {name}.i, {name}.x, u.y FROM {name}, {other} AS u WHERE {name}.x = u.y) AS {name}",
        ]
    )


@pytest.mark.parametrize(
    ("source", "target", "exact"),
    [
        (T.IntegerType(), T.DecimalType(10, 0), True),
        (T.IntegerType(), T.DecimalType(10, 1), False),
        (T.LongType(), T.DecimalType(21, 2), True),
        (T.ShortType(), T.FloatType(), True),
        (T.IntegerType(), T.FloatType(), False),
        (T.IntegerType(), T.DoubleType(), True),
        (T.LongType(), T.DoubleType(), False),
        (T.ByteType(), T.LongType(), True),
        (T.LongType(), T.IntegerType(), False),
        (T.DecimalType(5, 2), T.DecimalType(7, 2), True),
        (T.DecimalType(5, 2), T.DecimalType(5, 3), False),
        (T.DecimalType(5, 2), T.DoubleType(), False),
        (T.FloatType(), T.DoubleType(), True),
        (T.DateType(), T.TimestampNTZType(), True),
        (T.TimeType(0), T.TimeType(6), True),
        (T.TimeType(6), T.TimeType(0), False),
        (T.DayTimeIntervalType(0, 0), T.DayTimeIntervalType(0, 3), True),
        (T.DayTimeIntervalType(0, 3), T.DayTimeIntervalType(0, 0), False),
        (T.StringType(), T.IntegerType(), False),
    ],
)
def test_a_cast_is_exact_if_it_keeps_all_values_apart(source: T.DataType, target: T.DataType, exact: bool) -> None:
    assert is_exact(source, target, fixed_offset=False) is exact


def test_days_and_local_times_are_moments_only_where_clocks_never_change() -> None:
    for local in (T.DateType(), T.TimestampNTZType()):
        assert is_exact(local, T.TimestampType(), fixed_offset=True)
        assert not is_exact(local, T.TimestampType(), fixed_offset=False)


@pytest.mark.spark
@pytest.mark.parametrize("timestamp_type", ["TIMESTAMP_LTZ", "TIMESTAMP_NTZ"])
def test_what_timestamp_means_to_spark_changes_no_answer(
    spark: SparkSession, tmp_path: Path, timestamp_type: str
) -> None:
    """Keys, and the casts of a UNION ALL, are of types that the data have; nobody wrote TIMESTAMP."""
    moments = ("'2024-03-31 00:00:00'", "'2024-10-27 02:30:00'", "'2024-10-27 03:30:00'")
    kinds = {
        "A": keyed({"x": "TIMESTAMP_LTZ"}, moments),
        "B": keyed({"x": "TIMESTAMP_NTZ"}, moments),
        "C": keyed({"x": "DATE"}, moments),
    }
    text = """SELECT A.i, U.i AS j, CAST(U.x AS STRING) AS x, typeof(U.x) AS t
        FROM A JOIN (SELECT i, x FROM A UNION ALL SELECT i, x FROM C UNION ALL SELECT i, x FROM B) AS U ON A.x = U.x"""
    before = {name: spark.conf.get(name) for name in (ZONE, "spark.sql.timestampType")}
    spark.conf.set(ZONE, "Europe/Berlin")
    try:
        expected = rows_of(spark, kinds, len(moments), text)
        spark.conf.set("spark.sql.timestampType", timestamp_type)
        assert answer(spark, tmp_path / "checkpoint", kinds, len(moments), text) == expected
        assert expected
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


@pytest.mark.spark
def test_moments_of_one_block_travel_beside_those_of_another_that_has_none(spark: SparkSession, tmp_path: Path) -> None:
    """Where the session's time zone is not UTC, and only some of the rows in an exchange have a TIMESTAMP."""
    moments = ("'2024-03-31 00:00:00'", "'2024-10-27 02:30:00'")
    kinds = {"A": keyed({"x": "TIMESTAMP_LTZ", "y": "INT"}, moments), "B": keyed({"x": "TIMESTAMP_LTZ"}, moments)}
    one = "(SELECT A.i, A.x, map('m', array(named_struct('f', A.x))) AS m FROM A, B AS u WHERE A.i = u.i) AS one"
    other = "(SELECT A.i FROM A, B AS u WHERE A.i = u.i) AS other"
    text = f"SELECT one.i, other.i AS j, CAST(m['m'][0].f AS STRING) AS t FROM {one}, {other} WHERE one.i = other.i"
    before = spark.conf.get(ZONE)
    spark.conf.set(ZONE, "Asia/Kolkata")
    try:
        found = answer(spark, tmp_path / "checkpoint", kinds, len(moments), text)
        assert found == rows_of(spark, kinds, len(moments), text) != Counter()
    finally:
        spark.conf.set(ZONE, before)


@pytest.mark.spark
def test_a_type_is_spelt_so_that_settings_do_not_change_it(spark: SparkSession) -> None:
    inner = T.StructType(
        [T.StructField("it's `odd`", T.TimestampType()), T.StructField("a b", T.StringType("UNICODE"))]
    )
    types = [
        T.TimestampType(),
        T.TimestampNTZType(),
        T.StringType(),
        T.StringType("UTF8_LCASE"),
        T.DecimalType(38, 18),
        T.YearMonthIntervalType(0, 0),
        T.DayTimeIntervalType(1, 2),
        T.CalendarIntervalType(),
        T.VariantType(),
        T.NullType(),
        T.BinaryType(),
        T.MapType(T.TimestampType(), T.ArrayType(inner)),
    ]
    before = spark.conf.get("spark.sql.timestampType")
    try:
        for setting in ("TIMESTAMP_LTZ", "TIMESTAMP_NTZ"):
            spark.conf.set("spark.sql.timestampType", setting)
            texts = [f"CAST(NULL AS {type_text(t)}) AS c{n}" for n, t in enumerate(types)]
            assert [field.dataType for field in spark.range(0).selectExpr(*texts).schema] == types
    finally:
        spark.conf.set("spark.sql.timestampType", before)
