"""The groups of a key are those that its rows are in, whatever its type."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from anabranch.errors import ConfigError
from anabranch.testing import Steps

pytestmark = pytest.mark.spark

JOIN = "SELECT A.v AS a, B.v AS b FROM A, B WHERE A.k = B.k"
NAN = float("nan")


@pytest.mark.parametrize(
    ("left", "right", "stored", "keys"),
    [
        ("BIGINT", "BIGINT", [7, -1], [7, -1]),
        ("INT", "BIGINT", [7, 2**31 - 1], [7, 2**31 - 1]),
        ("INT", "STRING", ["7"], None),
        ("DOUBLE", "DOUBLE", [NAN, -0.0, 0.1], [NAN, 0.0, 0.1]),
        ("DOUBLE", "DOUBLE", [-NAN, 0.0], [-NAN, -0.0]),
        ("FLOAT", "FLOAT", [0.1, NAN], [0.1, NAN]),
        ("FLOAT", "DOUBLE", [0.5], [0.5]),
        ("DECIMAL(10,2)", "DECIMAL(20,4)", ["1.50", "2.25"], [1.5, Decimal("2.2500")]),
        ("STRING", "STRING", ["Ä", ""], ["Ä", ""]),
        ("BOOLEAN", "BOOLEAN", [True], [True]),
        ("DATE", "DATE", ["2026-03-29"], [dt.date(2026, 3, 29)]),
        ("TIMESTAMP", "TIMESTAMP", ["2026-03-29 12:00:00"], ["2026-03-29 12:00:00"]),
        ("DATE", "TIMESTAMP", ["2026-03-29"], ["2026-03-29"]),
        ("BINARY", "BINARY", [b"\x00\xff"], [b"\x00\xff"]),
    ],
)
def test_the_groups_of_keys_are_where_their_rows_are(
    spark: SparkSession, tmp_path: Path, left: str, right: str, stored: list[Any], keys: list[Any] | None
) -> None:
    with Steps(spark, tmp_path / "state") as steps:
        steps.stream("A", f"k {left}, v INT")
        steps.stream("B", f"k {right}, v INT")
        if keys is None:
            steps.query("SELECT A.v AS a, B.v AS b FROM A, B WHERE CAST(A.k AS STRING) = B.k")
            stored, keys = [7], ["7"]
        else:
            steps.query(JOIN)
        steps.feed(A=[(key, n) for n, key in enumerate(stored)])
        there = {entry["group"] for entry in steps.state()}
        assert steps.groups_of("join of A, B", key=keys) == sorted(there)
        each = {group for key in keys for group in steps.groups_of(key=key)}
        assert each == there


def test_a_key_of_several_columns_is_a_tuple(spark: SparkSession, tmp_path: Path) -> None:
    with Steps(spark, tmp_path / "state") as steps:
        for name in "AB":
            steps.stream(name, "k DOUBLE, d DATE, v INT")
        steps.query("SELECT A.v AS a, B.v AS b FROM A, B WHERE A.d = B.d AND A.k = B.k")
        steps.feed(A=[{"k": -0.0, "d": "2026-01-01", "v": 1}])
        (there,) = {entry["group"] for entry in steps.state()}
        # The order of the columns is the one that the error names.
        with pytest.raises(ConfigError, match=r"the key of the join of A, B is .* give a tuple of 2 values, not 7"):
            steps.groups_of(key=7)
        day = dt.date(2026, 1, 1)
        found = []
        for key in ((0.0, day), (day, 0.0)):
            try:
                found += steps.groups_of(key=key)
            except ConfigError:
                continue
        assert found == [there]


def test_the_groups_of_a_grouping_are_found_too(spark: SparkSession, tmp_path: Path) -> None:
    with Steps(spark, tmp_path / "state") as steps:
        steps.stream("A", "k INT, g STRING, t BIGINT", time="t", lateness="0 seconds")
        steps.query("SELECT k, g, count(*) AS n FROM A [RANGE 5 SECONDS] GROUP BY k, g")
        steps.feed(A=[(None, "x", 1), (1, None, 1)])
        there = sorted({entry["group"] for entry in steps.state()})
        assert steps.groups_of("groups of A", key=[(None, "x"), (1, None)]) == there


def test_what_is_grouped_where_it_is_joined_has_the_groups_of_the_join(spark: SparkSession, tmp_path: Path) -> None:
    with Steps(spark, tmp_path / "state") as steps:
        for name in "AB":
            steps.stream(name, "k INT, g STRING, t BIGINT", time="t", lateness="0 seconds")
        steps.query(
            "SELECT A.g, A.k, count(*) AS n FROM A [RANGE 5 SECONDS], B [RANGE 5 SECONDS] "
            "WHERE A.k = B.k AND A.g = B.g GROUP BY A.g, A.k"
        )
        steps.feed(A=[(1, "x", 1)], B=[(1, "x", 1)])
        (there,) = {entry["group"] for entry in steps.state()}
        assert steps.groups_of("groups of A, B", key=("x", 1)) == [there]
        assert steps.groups_of("join of A, B", key=("x", 1)) == [there]


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("seven", "the key A.k = B.k of the join of A, B is int, and 'seven' is none"),
        (7.5, "is int, and 7.5 is none"),
        (2**40, "is int, and 1099511627776 is none"),
        (None, "A.k = B.k: a null joins with nothing"),
        ((1, 2), "give one value, not"),
        ([], "no key was given"),
        ({1}, "is no key"),
    ],
)
def test_what_no_row_can_have_as_its_key_is_refused(spark: SparkSession, tmp_path: Path, key: Any, told: str) -> None:
    with Steps(spark, tmp_path / "state") as steps:
        for name in "AB":
            steps.stream(name, "k INT, v INT")
        steps.query(JOIN)
        with pytest.raises(ConfigError, match=told):
            steps.groups_of(key=key)
        with pytest.raises(ConfigError, match="there is no operator 'join of A'; did you mean 'join of A, B'"):
            steps.groups_of("join of A", key=1)
