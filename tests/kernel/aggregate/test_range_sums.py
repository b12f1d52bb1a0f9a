"""Spreading rows over ranges at once gives what adding them one by one gives."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anabranch.kernel.aggregate.range_sums import Indices, Reach, Summary, running_sum, spread
from tests.oracle.profiles import examples


@st.composite
def ranges(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    places = draw(st.integers(0, 40))
    bounds = st.tuples(st.integers(0, places), st.integers(0, places)).map(lambda pair: (min(pair), max(pair)))
    return places, draw(st.lists(bounds, max_size=25))


def reach_of(places: int, bounds: list[tuple[int, int]]) -> Reach:
    start, stop = (np.array([pair[side] for pair in bounds], dtype=np.int64) for side in (0, 1))
    return Reach(start, stop, places)


def collect_bits(rows: Indices, nodes: Indices, size: int) -> Summary:
    """Each row is a bit of its own, so that a row which is missing or comes twice shows."""
    found = np.zeros(size, dtype=object)
    np.add.at(found, nodes, np.array([1 << int(row) for row in rows], dtype=object))
    return (found,)


@examples(300)
@given(ranges())
def test_every_row_counts_once_for_every_place_in_its_range(case: tuple[int, list[tuple[int, int]]]) -> None:
    places, bounds = case
    wanted = [sum(1 << n for n, (low, high) in enumerate(bounds) if low <= place < high) for place in range(places)]
    (found,) = spread(reach_of(places, bounds), collect_bits, lambda left, right: (left[0] + right[0],))
    assert found.tolist() == wanted
    bits = np.array([1 << n for n in range(len(bounds))], dtype=object)
    assert running_sum(bits, reach_of(places, bounds)).tolist() == wanted


def test_sums_lose_nothing_to_what_counts_elsewhere() -> None:
    numbers = np.array([1e16, 1.0, 1.0, -1e16, 0.5])

    def collect(rows: Indices, nodes: Indices, size: int) -> Summary:
        return (np.bincount(nodes, numbers[rows], size),)

    reach = reach_of(3, [(0, 1), (1, 2), (1, 2), (0, 1), (1, 3)])
    (found,) = spread(reach, collect, lambda left, right: (left[0] + right[0],))
    assert found.tolist() == [0.0, 2.5, 0.5]
