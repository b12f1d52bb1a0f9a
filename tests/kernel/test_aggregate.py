"""Windowed aggregates against DuckDB's window functions."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import BadRowError
from anabranch.kernel.aggregate import AGGREGATES, count, range_window, rows_window, total
from tests.oracle import referee
from tests.oracle.profiles import examples

FUNCTIONS = {"count": "count", "sum": "sum", "avg": "avg", "min": "min", "max": "max", "stddev": "stddev_samp"}
COLUMNS = {
    "n": (pa.int64(), st.integers(-(2**40), 2**40)),
    "f": (pa.float64(), st.floats(-1e6, 1e6, width=32)),
    "d": (pa.decimal128(12, 3), st.integers(-(10**11), 10**11).map(lambda n: Decimal(n).scaleb(-3))),
    "s": (pa.string(), st.text("abß", max_size=3)),
}
NUMERIC = ("count", "sum", "avg", "min", "max", "stddev")
ASKED = {"n": NUMERIC, "f": NUMERIC, "d": ("count", "sum", "avg", "min", "max"), "s": ("count", "min", "max")}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Rows sorted by group, time and number, which makes the order of ROWS windows unique."""
    size = draw(st.integers(0, 25))
    places = sorted(
        zip(*(draw(st.lists(st.integers(0, top), min_size=size, max_size=size)) for top in (2, 12)), strict=True)
    )
    columns = {
        name: pa.array(draw(st.lists(st.none() | values, min_size=size, max_size=size)), kind)
        for name, (kind, values) in COLUMNS.items()
    }
    group, ts = ([place[n] for place in places] for n in (0, 1))
    return pa.table({"g": pa.array(group, pa.int64()), "ts": pa.array(ts, pa.int64()), "i": range(size), **columns})


def offsets(table: pa.Table) -> np.ndarray:
    group = table.column("g").to_numpy()
    return np.concatenate([np.flatnonzero(np.diff(group, prepend=-1)), [len(group)]])


def expected(table: pa.Table, frame: str) -> list[dict[str, object]]:
    over = f"OVER (PARTITION BY g ORDER BY ts{frame}"
    columns = [
        f"{FUNCTIONS[function]}({name}) {over} AS {name}_{function}"
        for name, functions in ASKED.items()
        for function in functions
    ]
    text = f"SELECT count(*) {over} AS rows, {', '.join(columns)} FROM t ORDER BY i"
    return referee.query(text, {"t": table}).to_pylist()


def same(found: object, wanted: object) -> bool:
    if isinstance(wanted, float) and found is not None:
        return math.isclose(float(found), wanted, rel_tol=1e-9, abs_tol=1e-6)  # type: ignore[arg-type]
    if isinstance(found, Decimal) and isinstance(wanted, float):
        return math.isclose(float(found), wanted, rel_tol=1e-9)
    return found == wanted


def check(table: pa.Table, start: np.ndarray, stop: np.ndarray, wanted: list[dict[str, object]]) -> None:
    assert count(None, start, stop).to_pylist() == [row["rows"] for row in wanted]
    for name, functions in ASKED.items():
        values = table.column(name).combine_chunks()
        for function in functions:
            found = AGGREGATES[function](values, start, stop).to_pylist()
            for row, value in zip(wanted, found, strict=True):
                assert same(value, row[f"{name}_{function}"]), (name, function, value, row)


@examples(100)
@given(tables(), st.integers(0, 13))
def test_aggregates_over_a_range_of_time_are_those_of_duckdb(table: pa.Table, width: int) -> None:
    asked = np.arange(len(table))
    start, stop = range_window(table.column("ts").to_numpy(), offsets(table), asked, width)
    check(table, start, stop, expected(table, f" RANGE BETWEEN {width} PRECEDING AND CURRENT ROW)"))


@examples(100)
@given(tables(), st.integers(1, 6))
def test_aggregates_over_the_last_rows_are_those_of_duckdb(table: pa.Table, rows: int) -> None:
    asked = np.arange(len(table))
    start, stop = rows_window(offsets(table), asked, rows)
    check(table, start, stop, expected(table, f", i ROWS BETWEEN {rows - 1} PRECEDING AND CURRENT ROW)"))


def test_a_sum_is_exact_also_where_running_totals_overflow_and_refused_where_it_does() -> None:
    most = 2**63 - 1
    values = pa.array([most, most, -most, 5, None], pa.int64())
    ends = np.array([[0, 1], [2, 4], [0, 3], [4, 5]])
    assert total(values, ends[:, 0], ends[:, 1]).to_pylist() == [most, 5 - most, most, None]
    with pytest.raises(BadRowError, match=f"a SUM is {2 * most}, which is no BIGINT"):
        total(values, np.array([0]), np.array([2]))
