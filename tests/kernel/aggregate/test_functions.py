"""Windowed aggregates against DuckDB's window functions."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import BadRowError
from anabranch.kernel.aggregate.functions import AGGREGATES, count, total
from anabranch.kernel.aggregate.range_sums import Reach
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


def reach_of(windows: list[range], rows: int) -> Reach:
    """The reach of rows, given which of them are in the window of each: a range, as sorted rows have it."""
    asked = [[place for place, window in enumerate(windows) if row in window] for row in range(rows)]
    start = np.array([places[0] if places else 0 for places in asked], dtype=np.int64)
    stop = np.array([places[-1] + 1 if places else 0 for places in asked], dtype=np.int64)
    return Reach(start, stop, len(windows))


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


def check(table: pa.Table, windows: list[range], wanted: list[dict[str, object]]) -> None:
    reach = reach_of(windows, len(table))
    assert count(None, reach).to_pylist() == [row["rows"] for row in wanted]
    for name, functions in ASKED.items():
        values = table.column(name).combine_chunks()
        for function in functions:
            found = AGGREGATES[function](values, reach).to_pylist()
            for row, value in zip(wanted, found, strict=True):
                assert same(value, row[f"{name}_{function}"]), (name, function, value, row)


@examples(100)
@given(tables(), st.integers(0, 13))
def test_aggregates_over_a_range_of_time_are_those_of_duckdb(table: pa.Table, width: int) -> None:
    places = list(zip(table.column("g").to_pylist(), table.column("ts").to_pylist(), strict=True))
    windows = []
    for group, ts in places:
        inside = [n for n, (g, t) in enumerate(places) if g == group and ts - width <= t <= ts]
        windows.append(range(inside[0], inside[-1] + 1))
    check(table, windows, expected(table, f" RANGE BETWEEN {width} PRECEDING AND CURRENT ROW)"))


@examples(100)
@given(tables(), st.integers(1, 6))
def test_aggregates_over_the_last_rows_are_those_of_duckdb(table: pa.Table, rows: int) -> None:
    groups = table.column("g").to_pylist()
    windows = [range(max(groups.index(group), n + 1 - rows), n + 1) for n, group in enumerate(groups)]
    check(table, windows, expected(table, f", i ROWS BETWEEN {rows - 1} PRECEDING AND CURRENT ROW)"))


def test_a_sum_is_exact_also_where_running_totals_overflow_and_refused_where_it_does() -> None:
    most = 2**63 - 1
    values = pa.array([most, most, -most, -5, None], pa.int64())
    places = np.arange(5)
    alone = Reach(places, places + 1, 5)
    assert total(values, alone).to_pylist() == [most, most, -most, -5, None]
    assert total(values, Reach(np.zeros(5, np.int64), np.ones(5, np.int64), 1)).to_pylist() == [most - 5]
    with pytest.raises(BadRowError, match=f"a SUM is {2 * most}, which is no BIGINT"):
        total(values.slice(0, 2), Reach(np.zeros(2, np.int64), np.ones(2, np.int64), 1))


def test_large_integers_have_a_deviation() -> None:
    values = pa.array([2**53 + 1, 2**53 + 3, 2**62], pa.int64())
    assert AGGREGATES["stddev"](values, Reach(np.zeros(3, np.int64), np.ones(3, np.int64), 1))[0].as_py() > 1e18


def test_decimals_of_any_size_are_summed_exactly() -> None:
    large, small = Decimal("99999999999999999999999999.999"), Decimal("-99999999999999999999999999.999")
    values = pa.array([large, small, Decimal("0.001"), None, small], pa.decimal128(29, 3))
    reach = Reach(np.array([0, 1, 0, 0, 2]), np.array([1, 3, 2, 3, 3]), 3)
    with localcontext(prec=40):
        wanted = [large + Decimal("0.001"), Decimal("0.001") - large, -2 * large]
    assert total(values, reach).to_pylist() == wanted
