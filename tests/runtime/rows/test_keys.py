"""Join keys of every hashable type. A case lists literals with the class they belong to: equal class, equal key."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from anabranch.errors import QueryError, UnsupportedError
from tests.oracle.steps import Kind, Steps

pytestmark = pytest.mark.spark

NUMBERS = pa.schema([("i", pa.int64())])

# Literal -> class. Everything that SQL calls null is of class None and matches nothing.
Literals = dict[str, object]
NULL: Literals = {"NULL": None}

SAME_TYPE: dict[str, Literals] = {
    "boolean": {"true": 1, "false": 0},
    "tinyint": {"-128Y": 1, "127Y": 2, "0Y": 3},
    "smallint": {"-32768S": 1, "0S": 2},
    "int": {"-2147483648": 1, "2147483647": 2, "-1": 3},
    "bigint": {"-9223372036854775807L": 1, "9223372036854775807L": 2, "0L": 3, "4294967296L": 4},
    "float": {"float('NaN')": "nan", "-float('NaN')": "nan", "float('0')": 0, "float('-0.0')": 0, "float('inf')": 1},
    "double": {"double('NaN')": "nan", "0D": 0, "-0D": 0, "1e-320D": 1, "double('-inf')": 2, "sqrt(-1D)": "nan"},
    "decimal(9,2)": {"1.50BD": 1, "-1.50BD": 2},
    "decimal(38,10)": {"1234567890123456789012345678.0000000001BD": 1, "0BD": 2, "-0.0000000001BD": 3},
    "string": {"''": 0, "'a'": 1, "'A'": 2, "'a '": 3, "'\\u00e9'": 4, "'e\\u0301'": 5, "repeat('x', 1000)": 6},
    "varchar(3)": {"'ab'": 1, "'abc'": 2},
    "binary": {"X''": 0, "X'00'": 1, "X'0000'": 2, "CAST('a' AS BINARY)": 3},
    "date": {"DATE'1969-12-31'": 1, "DATE'2024-02-29'": 2},
    "timestamp": {"TIMESTAMP'1969-12-31 23:59:59.999999'": 1, "TIMESTAMP'2024-02-29 12:00:00'": 2},
    "timestamp_ntz": {"TIMESTAMP_NTZ'1582-10-04 00:00:00'": 1, "TIMESTAMP_NTZ'2024-02-29 12:00:00.000001'": 2},
    "time": {"TIME'00:00:00'": 1, "TIME'23:59:59.999999'": 2, "TIME'00:00:00.000001'": 3},
    "time(0)": {"TIME'00:00:01'": 1, "TIME'00:00:01.9'": 1, "TIME'12:00:00'": 2},
    "interval year": {"INTERVAL '1' YEAR": 1, "INTERVAL '-1' YEAR": 2},
    "interval month": {"INTERVAL '1' YEAR": 1, "INTERVAL '12' MONTH": 1, "INTERVAL '-178956970-8' YEAR TO MONTH": 2},
    "interval hour": {"INTERVAL '1' DAY": 1, "INTERVAL '24' HOUR": 1, "INTERVAL '1' HOUR": 2},
    "interval day to second": {"INTERVAL '1 00:00:00' DAY TO SECOND": 1, "INTERVAL '-0 00:00:01' DAY TO SECOND": 2},
    "interval year to month": {"INTERVAL '1-1' YEAR TO MONTH": 1, "INTERVAL '13' MONTH": 1, "INTERVAL '2' YEAR": 2},
}

MIXED_TYPES: dict[str, tuple[tuple[str, Literals], tuple[str, Literals]]] = {
    "int and bigint": (("int", {"1": 1, "-1": -1}), ("bigint", {"1L": 1, "4294967297L": 2, "-1L": -1})),
    "int and double": (("int", {"1": 1, "0": 0}), ("double", {"1D": 1, "-0D": 0, "1.5D": 2, "double('NaN')": 3})),
    "decimals": (("decimal(5,2)", {"1.50BD": 1, "2BD": 2}), ("decimal(20,4)", {"1.5BD": 1, "1.5001BD": 3, "2BD": 2})),
    "times": (
        ("time(0)", {"TIME'01:00:00'": 1, "TIME'02:00:00'": 2}),
        ("time(6)", {"TIME'01:00:00'": 1, "TIME'02:00:00.000001'": 3}),
    ),
    "years and months": (
        ("interval year", {"INTERVAL '1' YEAR": 1, "INTERVAL '2' YEAR": 2}),
        ("interval month", {"INTERVAL '12' MONTH": 1, "INTERVAL '13' MONTH": 3}),
    ),
    "days and seconds": (
        ("interval day", {"INTERVAL '1' DAY": 1}),
        ("interval second", {"INTERVAL '86400' SECOND": 1, "INTERVAL '86400.000001' SECOND": 2}),
    ),
    "date and timestamp": (
        ("date", {"DATE'2024-01-01'": 1}),
        ("timestamp", {"TIMESTAMP'2024-01-01 00:00:00'": 1, "TIMESTAMP'2024-01-01 00:00:01'": 2}),
    ),
}


@pytest.fixture(autouse=True)
def _time_type(spark: SparkSession) -> None:
    """Spark 4.3 has TIME, but not by default."""
    spark.conf.set("spark.sql.timeType.enabled", "true")


def keyed(data_type: str, literals: Literals) -> Kind:
    """A stream whose row i has the i-th literal as its key."""
    cases = " ".join(f"WHEN {i} THEN CAST({literal} AS {data_type})" for i, literal in enumerate(literals))
    return Kind(NUMBERS, select=("i", f"CASE i {cases} END AS k"))


def numbered(literals: Literals) -> pa.Table:
    return pa.table({"i": list(range(len(literals)))}, schema=NUMBERS)


def expected_pairs(left: Literals, right: Literals) -> Counter[tuple[int, int]]:
    return Counter(
        (i, j)
        for i, one in enumerate(left.values())
        for j, other in enumerate(right.values())
        if one == other and one is not None
    )


def joined_pairs(
    spark: SparkSession, checkpoint: Path, left: tuple[str, Literals], right: tuple[str, Literals]
) -> Counter[tuple[int, int]]:
    """All pairs of row numbers that join; half of the left rows come after the right ones."""
    kinds = {"L": keyed(*left), "R": keyed(*right)}
    rows = numbered(left[1])
    with Steps(spark, checkpoint, "SELECT L.i, R.i AS j FROM L, R WHERE L.k = R.k", kinds, processors=1) as steps:
        steps.feed({"L": rows.slice(0, 1), "R": numbered(right[1])})
        steps.feed({"L": rows.slice(1)})
        return Counter(zip(*(column.to_pylist() for column in steps.answer.columns), strict=True))


@pytest.mark.parametrize("data_type", SAME_TYPE)
def test_equal_keys_join_and_nulls_do_not(spark: SparkSession, tmp_path: Path, data_type: str) -> None:
    literals = SAME_TYPE[data_type] | NULL
    found = joined_pairs(spark, tmp_path / "checkpoint", (data_type, literals), (data_type, literals))
    assert found == expected_pairs(literals, literals)


@pytest.mark.parametrize("types", MIXED_TYPES)
def test_keys_of_different_types_are_compared_as_spark_does(spark: SparkSession, tmp_path: Path, types: str) -> None:
    left, right = MIXED_TYPES[types]
    left, right = (left[0], left[1] | NULL), (right[0], right[1] | NULL)
    assert joined_pairs(spark, tmp_path / "checkpoint", left, right) == expected_pairs(left[1], right[1])


def test_every_column_of_a_long_key_counts(spark: SparkSession, tmp_path: Path) -> None:
    """Several columns of different types, three streams, and rows that differ in one column only or have a null."""
    columns = {
        "a": ["'x'", "'x'", "'y'", "NULL", "'x'"],
        "b": ["double('NaN')", "double('NaN')", "0D", "1D", "0D"],
        "c": ["DATE'2024-01-01'", "DATE'2024-01-02'", "NULL", "DATE'2024-01-01'", "DATE'2024-01-01'"],
        "d": ["INTERVAL '1' DAY", "INTERVAL '1' DAY", "INTERVAL '1' DAY", "INTERVAL '1' DAY", "INTERVAL '2' DAY"],
        "e": ["1.5BD", "1.5BD", "1.5BD", "1.5BD", "1.5BD"],
        "f": ["X'01'", "X'01'", "X'01'", "X'01'", "X'01'"],
        "g": ["true", "true", "true", "true", "true"],
        "h": ["TIME'01:00:00'"] * 5,
        "j": ["TIMESTAMP_NTZ'2024-01-01 00:00:00'"] * 5,
        "l": ["INTERVAL '1-1' YEAR TO MONTH"] * 5 + ["INTERVAL '13' MONTH", "INTERVAL '14' MONTH"],
        "m": ["TIMESTAMP'2024-01-01 00:00:00'"] * 5,
        "n": ["1Y"] * 5,
        "o": ["1.5F"] * 5,
        "p": ["12345678901234567890.5BD"] * 5,
    }
    columns = {name: values + [values[0]] * (7 - len(values)) for name, values in columns.items()}
    picks = [
        f"element_at(array({', '.join(values)}), CAST(i + 1 AS INT)) AS {name}" for name, values in columns.items()
    ]
    kinds = {name: Kind(NUMBERS, select=("i", *picks)) for name in "RST"}
    equal = " AND ".join(f"{one}.{name} = {two}.{name}" for name in columns for one, two in ("RS", "ST"))
    rows = pa.table({"i": [0, 1, 2, 3, 4, 5, 6]}, schema=NUMBERS)
    text = f"SELECT R.i, S.i AS j, T.i AS l FROM R, S, T WHERE {equal}"
    with Steps(spark, tmp_path / "checkpoint", text, kinds, processors=3) as steps:
        steps.feed({"R": rows, "T": rows.slice(0, 3)})
        steps.feed({"S": rows, "T": rows.slice(3)})
        found = Counter(zip(*(column.to_pylist() for column in steps.answer.columns), strict=True))
    same = Counter(itertools.product([0, 5], repeat=3))
    assert found == same | Counter({(1, 1, 1): 1, (4, 4, 4): 1, (6, 6, 6): 1})


@pytest.mark.parametrize(
    "key", ["array(1)", "map(1, 2)", "named_struct('a', 1)", "parse_json('1')", "make_interval(1)"]
)
def test_keys_that_cannot_be_hashed_are_refused_by_type(spark: SparkSession, tmp_path: Path, key: str) -> None:
    kind = Kind(NUMBERS, select=("i", f"{key} AS k"))
    with (
        pytest.raises(QueryError),
        Steps(spark, tmp_path, "SELECT L.i FROM L, R WHERE L.k = R.k", {"L": kind, "R": kind}),
    ):
        pass


def test_a_string_and_a_number_are_not_guessed_into_one_type(spark: SparkSession, tmp_path: Path) -> None:
    kinds = {"L": keyed("int", {"1": 1}), "R": keyed("string", {"'1'": 1})}
    with (
        pytest.raises(QueryError, match=r"L: `k` is int, R: `k` is string\); CAST"),
        Steps(spark, tmp_path, "SELECT L.i FROM L, R WHERE L.k = R.k", kinds),
    ):
        pass
    collated = Kind(NUMBERS, select=("i", "'a' COLLATE UTF8_LCASE AS k"))
    with (
        pytest.raises(UnsupportedError, match="collate"),
        Steps(spark, tmp_path, "SELECT L.i FROM L, R WHERE L.k = R.k", {"L": collated, "R": collated}),
    ):
        pass
