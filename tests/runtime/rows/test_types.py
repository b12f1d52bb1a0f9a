"""Payload of every Spark SQL type goes through shuffle, state, restart and results unharmed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql import DataFrame, Row, SparkSession

import anabranch as ab
from anabranch.errors import UnsupportedError
from tests.oracle.feed import Feed, run_to_end
from tests.oracle.settings import odd_settings
from tests.oracle.steps import Kind, Steps

pytestmark = pytest.mark.spark

NUMBERS = pa.schema([("k", pa.int64()), ("i", pa.int64())])

PAYLOAD = {
    "boolean": "i % 2 = 0",
    "tinyint": "CAST(-i AS TINYINT)",
    "smallint": "CAST(i * 1000 AS SMALLINT)",
    "int": "CAST(i AS INT)",
    "float": "CAST(i AS FLOAT) / 3",
    "double": "IF(i = 1, double('NaN'), -0D)",
    "small_decimal": "CAST(i AS DECIMAL(9, 2))",
    "large_decimal": "CAST(i AS DECIMAL(38, 18)) / 7",
    "string": "concat('ä😀', i)",
    "empty": "''",
    "char": "CAST(i AS CHAR(5))",
    "varchar": "CAST(i AS VARCHAR(5))",
    "collated": "concat('A', i) COLLATE UTF8_LCASE",
    "binary": "unhex(concat('00FF', hex(i)))",
    "date": "date_add(DATE'1969-12-31', CAST(i AS INT))",
    "timestamp": "timestamp_micros(i * 1000001 - 1000000)",
    "timestamp_ntz": "CAST(timestamp_micros(i * 1000001) AS TIMESTAMP_NTZ)",
    "time": "make_time(1, 2, i + 0.000001)",
    "day_time": "make_dt_interval(CAST(i AS INT), 3, -4, 5.000006)",
    "void": "NULL",
    "geometry": "st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')",
    "geography": "IF(i = 1, st_geogfromwkb(X'0101000000000000000000F03F0000000000000040'), NULL)",
    "variant": """parse_json(concat('{"a": [', i, ', null, "x"]}'))""",
    "array": "array(i, NULL)",
    "nested_array": "array(array('a', CAST(i AS STRING)), array(), NULL)",
    "map": "map(concat('k', coalesce(i, 0)), array(i), 'z', NULL)",
    "struct": "named_struct('a', i, 'b', named_struct('c', array(map(DATE'2024-01-01', timestamp_micros(i)))))",
    "array_of_structs": "array(named_struct('d', CAST(i AS DECIMAL(10, 3)), 'v', parse_json('1'), 'n', NULL))",
    "intervals_inside": "named_struct('a', array(make_dt_interval(1)), 't', TIME'01:02:03')",
    "map_of_structs": "map(coalesce(i, 0), named_struct('m', map('x', named_struct('y', array(map(i <=> 1, 1)))))) ",
    "struct_as_key": "map(named_struct('a', coalesce(i, 0), 'b', TIME'01:02:03'), X'00')",
    "shapes": "array(st_geomfromwkb(X'0101000000000000000000F03F0000000000000040'), NULL)",
    "null_structs": "named_struct('a', array(named_struct('a', 1), NULL), 'm', map(1, named_struct('a', 1), 2, NULL))",
    "collated_inside": "map('x', array(named_struct('c', concat('A', i) COLLATE UTF8_LCASE)))",
    "no_fields": "named_struct()",
}

# Nested types that processors may write into files themselves, as far as their parts may be null.
NESTED_AND_PLAIN = [
    "nested_array",
    "map",
    "struct",
    "null_structs",
    "map_of_structs",
    "large_decimal",
    "double",
    "binary",
]

# Types that travel in another form. PySpark cannot collect all of them, so they are compared as text.
CARRIED = {
    "year_month": "make_ym_interval(CAST(i AS INT), -3)",
    "least_months": "IF(i = 1, INTERVAL '-178956970-8' YEAR TO MONTH, INTERVAL '178956970-7' YEAR TO MONTH)",
    "year": "CAST(make_ym_interval(CAST(-i AS INT), 0) AS INTERVAL YEAR)",
    "month": "CAST(make_ym_interval(1, CAST(i AS INT)) AS INTERVAL MONTH)",
    "calendar": "make_interval(CAST(i AS INT), -2, 3, CAST(i AS INT), -5, 6, -7.000008)",
    "long_calendar": "make_interval(0, 0, 0, 0, 2147483647, 2147483647, i * 99999999999.999999)",
    "no_time_at_all": "make_interval(0)",
    "no_elements": "array()",
    "no_entries": "map()",
    "voids": "array(NULL, NULL)",
    "void_in_struct": "named_struct('a', array(), 'b', NULL, 'c', map(1, NULL))",
    "months_in_array": "array(make_ym_interval(0, CAST(i AS INT)), NULL)",
    "months_as_key": """map(make_ym_interval(0, CAST(coalesce(i, 0) AS INT)), make_interval(0, 0, 0, 1),
        INTERVAL '9' MONTH, NULL)""",
    "struct_of_months": """IF(i = 2, NULL,
        named_struct('it''s `odd` \\\\', make_ym_interval(1, CAST(i AS INT)), 'b', i))""",
    "mixed": """named_struct('m', make_ym_interval(1), 'v', parse_json('[1]'), 't', TIME'01:02:03', 'b', X'00',
        'c', 'A' COLLATE UTF8_LCASE, 'z', timestamp_micros(i), 'f', map(1, 1.5F))""",
    "deep": """array(map('k', array(
        named_struct('m', map(named_struct('y', INTERVAL '1' YEAR), array(make_interval(1))),
                     'x', i, 'none', array(), 'null', CAST(NULL AS STRUCT<a: INTERVAL>)),
        NULL)), NULL)""",
}


@pytest.fixture(autouse=True)
def _time_type(spark: SparkSession) -> None:
    """Spark 4.3 has TIME, but not by default."""
    spark.conf.set("spark.sql.timeType.enabled", "true")


def through_the_join(
    spark: SparkSession, checkpoint: Path, select: tuple[str, ...], text: str, rows: pa.Table
) -> list[Row]:
    """What comes out for rows that meet their partners at once, or wait in state for those of another run."""
    kinds = {"L": Kind(NUMBERS, select=select), "R": Kind(NUMBERS)}
    collected: list[Row] = []

    def run(processors: int, batch: dict[str, pa.Table]) -> None:
        def sink(results: DataFrame, _: int) -> None:
            collected.extend(results.collect())

        with Steps(spark, checkpoint, text, kinds, processors=processors, sink=sink) as steps:
            steps.feed(batch)

    run(2, {"L": rows, "R": rows.slice(0, 1)})
    run(3, {"R": rows.slice(1)})
    return collected


ROWS = pa.table({"k": [1, 2, 3], "i": [1, 2, None]}, schema=NUMBERS)


@pytest.fixture(params=[nullcontext, odd_settings], ids=["usual settings", "odd settings"])
def _settings(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[None]:
    """The session as it is, and one with settings that nobody has together."""
    with request.param(spark):
        yield


@pytest.mark.usefixtures("_settings")
def test_payload_of_every_type_survives_state_and_restart(spark: SparkSession, tmp_path: Path) -> None:
    select = ("k", *(f"{expression} AS {name}" for name, expression in PAYLOAD.items()))
    text = "SELECT L.*, R.i FROM L, R WHERE L.k = R.k"
    collected = through_the_join(spark, tmp_path / "checkpoint", select, text, ROWS)
    expected = spark.createDataFrame(ROWS).selectExpr(*select, "i").collect()
    assert sorted(map(repr, collected)) == sorted(map(repr, expected))
    assert collected[0].asDict().keys() == {"k", *PAYLOAD, "i"}


@pytest.mark.usefixtures("_settings")
def test_payload_that_arrow_cannot_carry_comes_back_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    select = ("k", *(f"{expression} AS {name}" for name, expression in CARRIED.items()))
    as_text = [f"concat_ws(' ', typeof(L.{name}), CAST(L.{name} AS STRING)) AS {name}" for name in CARRIED]
    text = f"SELECT L.k, {', '.join(as_text)} FROM L, R WHERE L.k = R.k"
    collected = through_the_join(spark, tmp_path / "checkpoint", select, text, ROWS)
    spark.createDataFrame(ROWS).selectExpr(*select).createOrReplaceTempView("L")
    expected = spark.sql(f"SELECT L.k, {', '.join(as_text)} FROM L").collect()
    assert sorted(collected) == sorted(expected)


def test_fields_of_structs_are_called_as_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    text = """SELECT struct(L.k, R.I, L.p.a, L.i + 1) AS s, to_json(struct(L.k)) AS j, struct(q.z).z AS z
        FROM L, R, (SELECT k + 0 AS z, k FROM L) AS q WHERE L.k = R.k AND R.k = q.k"""
    kinds = {name: Kind(NUMBERS, select=("k", "i", "named_struct('a', i) AS p")) for name in "LR"}
    for name, kind in kinds.items():
        kind.frame(spark, ROWS).createOrReplaceTempView(name)
    with Steps(spark, tmp_path / "checkpoint", text, kinds) as steps:
        steps.feed({"L": ROWS, "R": ROWS})
        assert steps.query.schema.simpleString() == spark.sql(text).schema.simpleString()
        assert sorted(steps.answer.column("j").to_pylist()) == ['{"k":1}', '{"k":2}', '{"k":3}']


def test_user_defined_types_and_preserved_char_types_come_back_as_they_were(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.udf.register("vector_of", lambda i: None if i is None else Vectors.dense(i, -i), VectorUDT())
    spark.conf.set("spark.sql.preserveCharVarcharTypeInfo", "true")
    try:
        select = (
            "k",
            "vector_of(i) AS v",
            "array(named_struct('m', make_ym_interval(1), 'v', vector_of(i))) AS w",
            "CAST(i AS CHAR(5)) AS c",
            "array(CAST(i AS VARCHAR(5))) AS d",
        )
        types = "typeof(v) AS tv, typeof(w) AS tw, typeof(c) AS tc, typeof(d) AS td"
        text = f"SELECT L.k, v, w[0].v AS u, c, d, {types} FROM L, R WHERE L.k = R.k"
        collected = through_the_join(spark, tmp_path / "checkpoint", select, text, ROWS)
        rows = spark.createDataFrame(ROWS).selectExpr(*select)
        expected = rows.selectExpr("k", "v", "w[0].v AS u", "c", "d", *types.split(", ")).collect()
    finally:
        spark.conf.unset("spark.sql.preserveCharVarcharTypeInfo")
    assert sorted(map(repr, collected)) == sorted(map(repr, expected))


def test_a_struct_with_two_fields_of_one_name_is_refused_before_anything_starts(
    spark: SparkSession, tmp_path: Path
) -> None:
    kinds = {"L": Kind(NUMBERS, select=("k", "named_struct('a', 1, 'a', 2) AS p")), "R": Kind(NUMBERS)}
    with (
        pytest.raises(UnsupportedError, match="L.p of type struct<a:int,a:int> cannot travel"),
        Steps(spark, tmp_path / "checkpoint", "SELECT L.p, R.i FROM L, R WHERE L.k = R.k", kinds),
    ):
        pass


@pytest.fixture
def months(spark: SparkSession, tmp_path: Path) -> ab.Query:
    """A query that selects a column which travels in another form, and plain columns only."""
    feeds = {name: Feed(tmp_path / name, NUMBERS) for name in "LR"}
    for feed in feeds.values():
        feed.add_table(ROWS.slice(0, 2))
    engine = ab.Engine(spark, tmp_path / "checkpoint", processors=2)
    engine.register("L", feeds["L"].stream(spark).selectExpr("k", "make_ym_interval(CAST(i AS INT), 1) AS p"))
    engine.register("R", feeds["R"].stream(spark))
    return engine.sql("SELECT L.p, R.i FROM L, R WHERE L.k = R.k")


@pytest.mark.parametrize(
    "names",
    [NESTED_AND_PLAIN, ["nested_array", "map", "large_decimal"], ["collated"], ["collated_inside"]],
    ids=["all", "plain", "collated", "collated inside"],
)
def test_parquet_files_hold_nested_columns_as_spark_would_write_them(
    spark: SparkSession, tmp_path: Path, names: list[str]
) -> None:
    select = ("k", *(f"{PAYLOAD[name]} AS {name}" for name in names))
    feeds = {name: Feed(tmp_path / name, NUMBERS) for name in "LR"}
    for feed in feeds.values():
        feed.add_table(ROWS)
    engine = ab.Engine(spark, tmp_path / "checkpoint", processors=2)
    engine.register("L", feeds["L"].stream(spark).selectExpr(*select))
    engine.register("R", feeds["R"].stream(spark))
    run_to_end(engine.sql("SELECT L.* FROM L, R WHERE L.k = R.k"), tmp_path / "out")
    found = spark.read.parquet(str(tmp_path / "out"))
    expected = spark.createDataFrame(ROWS).selectExpr(*select)
    assert found.schema.simpleString() == expected.schema.simpleString()
    assert sorted(map(repr, found.collect())) == sorted(map(repr, expected.collect()))


def test_files_and_views_hold_restored_types_also_of_plain_columns(
    spark: SparkSession, tmp_path: Path, months: ab.Query
) -> None:
    """Processors may write plain columns themselves, but not those that travelled in another form."""
    schema = "struct<p:interval year to month,i:bigint>"
    assert months.schema.simpleString() == schema
    run_to_end(months, tmp_path / "out")
    writer = months.writeStream.format("memory").queryName("months").option("checkpointLocation", tmp_path / "other")
    writer.trigger(availableNow=True).start().awaitTermination()
    for written in (spark.read.parquet(str(tmp_path / "out")), spark.table("months")):
        assert written.schema.simpleString() == schema
        found = sorted(written.selectExpr("CAST(p AS STRING)", "i").collect())
        assert found == [("INTERVAL '1-1' YEAR TO MONTH", 1), ("INTERVAL '2-1' YEAR TO MONTH", 2)]
