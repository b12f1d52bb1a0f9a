"""Folding ranges at once gives what folding each by itself gives."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anabranch.kernel.fold import Summary, fold
from tests.oracle.profiles import examples


def join_texts(left: Summary, right: Summary) -> Summary:
    """Not commutative, so that the order of merging shows."""
    return (left[0] + right[0],)


@st.composite
def ranges(draw: st.DrawFn) -> tuple[list[str], list[tuple[int, int]]]:
    rows = draw(st.lists(st.sampled_from("abcd"), max_size=40))
    bounds = st.tuples(st.integers(0, len(rows)), st.integers(0, len(rows)))
    return rows, draw(st.lists(bounds, max_size=20))


@examples(300)
@given(ranges())
def test_any_range_of_any_array_is_folded_in_order(case: tuple[list[str], list[tuple[int, int]]]) -> None:
    rows, bounds = case
    start = np.array([low for low, _ in bounds], dtype=np.int64)
    stop = np.array([high for _, high in bounds], dtype=np.int64)
    (found,) = fold((np.array(rows, dtype=object),), start, stop, join_texts, ("",))
    assert found.tolist() == ["".join(rows[low:high]) for low, high in bounds]


def test_sums_of_long_ranges_lose_nothing_to_what_lies_before_them() -> None:
    rows = np.array([1e16, 1.0, 1.0, -1e16, 0.5])
    (found,) = fold((rows,), np.array([1, 4]), np.array([3, 5]), lambda a, b: (a[0] + b[0],), (0.0,))
    assert found.tolist() == [2.0, 0.5]
