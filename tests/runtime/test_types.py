"""Payload of every Spark SQL type goes through shuffle, state, restart and results unharmed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession

from anabranch.errors import UnsupportedError
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
    "variant": """parse_json(concat('{"a": [', i, ', null, "x"]}'))""",
    "array": "array(i, NULL)",
    "nested_array": "array(array('a', CAST(i AS STRING)), array(), NULL)",
    "map": "map(concat('k', coalesce(i, 0)), array(i), 'z', NULL)",
    "struct": "named_struct('a', i, 'b', named_struct('c', array(map(DATE'2024-01-01', timestamp_micros(i)))))",
    "array_of_structs": "array(named_struct('d', CAST(i AS DECIMAL(10, 3)), 'v', parse_json('1'), 'n', NULL))",
    "intervals_inside": "named_struct('a', array(make_dt_interval(1)), 't', TIME'01:02:03')",
    "no_fields": "named_struct()",
}

UNSUPPORTED = {
    "year_month": "make_ym_interval(CAST(i AS INT), 3)",
    "calendar": "make_interval(1, 2, 3)",
    "inside": "array(named_struct('a', make_ym_interval(1, 1)))",
    "void_inside": "array()",
}


@pytest.fixture(autouse=True)
def _time_type(spark: SparkSession) -> None:
    """Spark 4.3 has TIME, but not by default."""
    spark.conf.set("spark.sql.timeType.enabled", "true")


def test_payload_of_every_type_survives_state_and_restart(spark: SparkSession, tmp_path: Path) -> None:
    select = ("k", *(f"{expression} AS {name}" for name, expression in PAYLOAD.items()))
    kinds = {"L": Kind(NUMBERS, select=select), "R": Kind(NUMBERS)}
    rows = pa.table({"k": [1, 2, 3], "i": [1, 2, None]}, schema=NUMBERS)
    collected: list[Row] = []

    def run(processors: int, *batches: dict[str, pa.Table]) -> None:
        text = "SELECT L.*, R.i FROM L, R WHERE L.k = R.k"
        with Steps(
            spark,
            tmp_path / "checkpoint",
            text,
            kinds,
            processors=processors,
            sink=lambda results, _: collected.extend(results.collect()),
        ) as steps:
            for batch in batches:
                steps.feed(batch)

    run(2, {"L": rows}, {"R": rows.slice(0, 1)})
    run(3, {"R": rows.slice(1)})
    expected = spark.createDataFrame(rows).selectExpr(*select, "i").collect()
    assert sorted(map(repr, collected)) == sorted(map(repr, expected))
    assert collected[0].asDict().keys() == {"k", *PAYLOAD, "i"}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_types_that_arrow_cannot_carry_are_refused_before_anything_starts(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    kinds = {"L": Kind(NUMBERS, select=("k", f"{UNSUPPORTED[name]} AS p")), "R": Kind(NUMBERS)}
    with (
        pytest.raises(UnsupportedError, match="L.p"),
        Steps(spark, tmp_path / "checkpoint", "SELECT L.p, R.i FROM L, R WHERE L.k = R.k", kinds),
    ):
        pass


def test_a_month_interval_may_be_the_key_but_not_a_part_of_one(spark: SparkSession, tmp_path: Path) -> None:
    kinds = {name: Kind(NUMBERS, select=("*", "make_ym_interval(1, 1) AS p")) for name in "LR"}
    with (
        pytest.raises(UnsupportedError, match="interval"),
        Steps(spark, tmp_path / "checkpoint", "SELECT L.i FROM L, R WHERE L.k = R.k AND L.p = R.p", kinds),
    ):
        pass
