"""The order of rows in a run, against a sort by both."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.state.arrays.order import PART, order_of
from tests.oracle.profiles import examples

rows = st.tuples(st.integers(0, 5) | st.integers(2**64 - 3, 2**64 - 1), st.integers(-3, 3))


def sort(parts: list[list[tuple[int, int]]]) -> list[tuple[int, int]]:
    together = [row for part in parts for row in part]
    hashes = np.array([row[0] for row in together], dtype=np.uint64)
    ts = np.array([row[1] for row in together], dtype=np.int64)
    return [together[n] for n in order_of(hashes, ts)]


@examples(300)
@given(st.lists(st.lists(rows, max_size=3 * PART).map(sorted), max_size=4), st.booleans())
def test_rows_are_ordered_by_hash_and_then_by_time(parts: list[list[tuple[int, int]]], ascending: bool) -> None:
    if ascending:
        parts = [[(hashed, ts + 10 * n) for hashed, ts in part] for n, part in enumerate(parts)]
    assert sort(parts) == sorted(row for part in parts for row in part)


@examples(100)
@given(st.lists(st.integers(0, 19), max_size=4), st.integers(-3, 3))
def test_some_keys_may_go_back_in_time_among_others_that_do_not(back: list[int], ts: int) -> None:
    """As where a part has old rows of a few keys: only these are sorted again."""
    parts = [[(key, n) for key in range(20) for _ in range(3)] for n in range(3)]
    parts.append(sorted((key, ts) for key in [*back, *range(15, 20)]))
    assert sort(parts) == sorted(row for part in parts for row in part)


@examples(100)
@given(st.lists(rows, max_size=40))
def test_rows_in_no_order_are_ordered_too(some: list[tuple[int, int]]) -> None:
    assert sort([some]) == sorted(some)


@pytest.mark.parametrize("hashes", [[], [7], [3, 1, 3, 2], [*range(40), *range(30)]])
def test_rows_without_a_time_are_ordered_by_hash(hashes: list[int]) -> None:
    found = order_of(np.array(hashes, dtype=np.uint64), None)
    assert sorted(found.tolist()) == list(range(len(hashes)))
    assert [hashes[n] for n in found] == sorted(hashes)
