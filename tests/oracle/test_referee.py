"""The referee itself, on cases small enough to decide by hand."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from tests.oracle.referee import Stream, assert_same_rows, difference, join

NAN = float("nan")


def rows(**columns: list) -> pa.Table:
    return pa.table(columns)


def pairs(answer: pa.Table) -> list[tuple]:
    return sorted(zip(*(column.to_pylist() for column in answer.columns), strict=True))


def test_a_row_is_in_the_window_up_to_and_including_its_edge() -> None:
    left = Stream(rows(k=[1, 1, 1], ts=[0, 1, 2], v=["a", "b", "c"]), ["k"], "ts", window=4)
    right = Stream(rows(k=[1], ts=[5], v=["x"]), ["k"], "ts", window=0)
    assert pairs(join({"L": left, "R": right}, ["L.v", "R.v"])) == [("b", "x"), ("c", "x")]


def test_each_stream_has_its_own_window_and_the_newest_row_of_all_counts() -> None:
    a = Stream(rows(k=[1], ts=[0]), ["k"], "ts", window=10)
    b = Stream(rows(k=[1], ts=[5]), ["k"], "ts")
    late, later = (Stream(rows(k=[1], ts=[ts]), ["k"], "ts", window=0) for ts in (10, 11))
    assert len(join({"A": a, "B": b, "C": late})) == 1
    assert len(join({"A": a, "B": b, "C": later})) == 0


def test_untimed_streams_take_no_part_in_the_window() -> None:
    a = Stream(rows(k=[1, 1], ts=[0, 9]), ["k"], "ts", window=1)
    b = Stream(rows(k=[1], v=["x"]), ["k"])
    assert len(join({"A": a, "B": b})) == 2


def test_null_keys_match_nothing_and_nan_and_zero_match_as_in_spark() -> None:
    left = Stream(rows(k=[None, NAN, 0.0], v=[1, 2, 3]), ["k"])
    right = Stream(rows(k=[None, NAN, -0.0], v=[10, 20, 30]), ["k"])
    assert pairs(join({"L": left, "R": right}, ["L.v", "R.v"])) == [(2, 20), (3, 30)]


def test_duplicates_multiply() -> None:
    stream = Stream(rows(k=["a", "a"]), ["k"])
    assert len(join({"A": stream, "B": stream, "C": stream})) == 8


def test_keys_of_several_columns_may_have_other_names_in_each_stream() -> None:
    left = Stream(rows(k=[1, 1], l=[1, 2]), ["k", "l"])
    right = Stream(rows(x=[1, 2], y=[1, 1]), ["y", "x"])
    assert pairs(join({"L": left, "R": right})) == [(1, 1, 1, 1), (1, 2, 2, 1)]


def test_timestamps_are_compared_in_microseconds() -> None:
    start = dt.datetime(2024, 1, 1)
    left = Stream(rows(k=[1, 1], ts=[start, start + dt.timedelta(seconds=1)]), ["k"], "ts", window=1_000_000)
    right = Stream(rows(k=[1], ts=[start + dt.timedelta(seconds=2)]), ["k"], "ts", window=0)
    assert len(join({"L": left, "R": right})) == 1


def test_residual_predicates_and_self_joins() -> None:
    stream = Stream(rows(k=[1, 1], v=[1, 2]), ["k"])
    assert pairs(join({"A": stream, "B": stream}, ["A.v", "B.v"], where="A.v < B.v")) == [(1, 2)]


def test_a_difference_counts_duplicates_and_takes_nan_and_null_as_equal() -> None:
    actual = rows(k=[NAN, None, 1.0, 1.0], v=[[1], [2], [3], [3]])
    expected = rows(k=[1.0, NAN, None], v=[[3], [1], [2]])
    missing, surplus = difference(actual, expected)
    assert len(missing) == 0
    assert surplus.to_pylist() == [{"k": 1.0, "v": [3]}]
    with pytest.raises(AssertionError, match="1 too many, such as"):
        assert_same_rows(actual, expected)
