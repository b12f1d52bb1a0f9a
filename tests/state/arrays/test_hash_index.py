"""The hash index against binary search."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.state.arrays.hash_index import COMPARED_ROWS, HashIndex
from tests.oracle.profiles import examples

TOP = 2**64 - 1
spread = st.integers(0, TOP)
crowded = st.integers(0, 40) | st.integers(TOP - 3, TOP)
lists_of_hashes = st.lists(spread, min_size=1, max_size=80) | st.lists(crowded, min_size=1, max_size=80)


def ascending(values: list[int]) -> np.ndarray:
    return np.array(sorted(values), dtype=np.uint64)


@examples(300)
@given(hashes=lists_of_hashes, others=lists_of_hashes)
@example(hashes=[0], others=[0, TOP])
@example(hashes=[TOP], others=[0, TOP])
@example(hashes=[0, TOP], others=[0, 1, TOP - 1, TOP])
@example(hashes=[*[5] * (3 * COMPARED_ROWS), 6, TOP], others=[4, 5, 6, 7, TOP])
def test_it_finds_the_rows_that_binary_search_finds(hashes: list[int], others: list[int]) -> None:
    rows, wanted = ascending(hashes), np.unique(ascending(others + hashes[::2]))
    index = HashIndex.of(rows)
    which, row = index.locate(wanted)
    present = np.isin(wanted, rows)
    assert which.tolist() == np.flatnonzero(present).tolist()
    assert row.tolist() == np.searchsorted(rows, wanted[present], side="left").tolist()
    assert index.ends(row).tolist() == np.searchsorted(rows, wanted[present], side="right").tolist()


@pytest.mark.parametrize("wanted", [[], [1, 2], [98, 99], [1, 99]])
def test_nothing_is_found_of_what_lies_outside(wanted: list[int]) -> None:
    which, row = HashIndex.of(ascending([10, 10, 40, 90])).locate(np.array(wanted, dtype=np.uint64))
    assert which.tolist() == row.tolist() == []


def test_what_is_wanted_twice_is_found_twice() -> None:
    which, row = HashIndex.of(ascending([10, 10, 40, 90])).locate(ascending([10, 10, 20, 40, 40, 90]))
    assert which.tolist() == [0, 1, 3, 4, 5]
    assert row.tolist() == [0, 0, 2, 2, 3]


@pytest.mark.parametrize("rows", [1, 2, 1_000, 65_536])
def test_it_is_small(rows: int) -> None:
    """Four to eight bytes per row, however the hashes lie."""
    for hashes in (np.arange(rows, dtype=np.uint64) * np.uint64(TOP // rows), np.zeros(rows, dtype=np.uint64)):
        assert HashIndex.of(hashes).offsets.nbytes <= 8 * rows + 8
