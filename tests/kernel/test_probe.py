"""The probe kernel against loops."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.kernel.probe import Ranges, bisect_ranges, expand, narrow, probe, ranges_to_rows
from anabranch.state.arrays.hash_index import HashIndex
from tests.oracle.profiles import examples
from tests.state.segments import segment

many_hashes = st.integers(0, 30) | st.sampled_from([0, 2**63 - 1, 2**63, 2**64 - 1])


def as_triples(ranges: Ranges) -> list[tuple[int, int, int]]:
    return list(zip(ranges.owner.tolist(), ranges.start.tolist(), ranges.stop.tolist(), strict=True))


@examples(200)
@given(
    # The kernel looks for the rows among the wanted or the other way round: either may be fewer.
    wanted=st.sets(many_hashes, min_size=1, max_size=4) | st.sets(many_hashes, min_size=12),
    hashes=st.lists(many_hashes, max_size=4) | st.lists(many_hashes, min_size=20, max_size=60),
    indexed=st.booleans(),
    edges=st.tuples(st.integers(0, 60), st.integers(0, 60)),
)
@example(wanted=set(range(10, 50)), hashes=[20, 20, 40], indexed=True, edges=(0, 99))
@example(wanted={5, 20, 40, 99}, hashes=[7, *[20] * 9, 40, 41], indexed=True, edges=(0, 99))
@example(wanted={20}, hashes=[7, *[20] * 9, 40, 41], indexed=True, edges=(1, 11))
@example(wanted={20}, hashes=[7, *[20] * 9, 40, 41], indexed=True, edges=(3, 5))
@example(wanted={7, 20}, hashes=[7, *[20] * 9, 40, 41], indexed=True, edges=(0, 8))
def test_a_probe_finds_what_a_loop_finds(
    wanted: set[int], hashes: list[int], indexed: bool, edges: tuple[int, int]
) -> None:
    """Also in a slice, which has the index of its whole file and may be cut among the rows of one hash."""
    first, last = sorted(edges)
    whole = segment(hashes).indexed() if indexed else segment(hashes)
    ordered = sorted(hashes)[first:last]
    sought = sorted(wanted)
    found = probe(HashIndex.of(np.array(sought, dtype=np.uint64)), whole.slice(first, first + len(ordered)))
    naive = [
        (n, ordered.index(value), ordered.index(value) + ordered.count(value))
        for n, value in enumerate(sought)
        if value in ordered
    ]
    assert as_triples(found) == naive
    assert found.lengths.tolist() == [stop - start for _, start, stop in naive]


@st.composite
def ranges_over_times(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Blocks of ascending values one after the other, and ranges inside the blocks."""
    blocks = draw(st.lists(st.lists(st.integers(-9, 9), max_size=12).map(sorted), max_size=6))
    values, start, stop = [], [], []
    for block in blocks:
        cuts = sorted(draw(st.tuples(*[st.integers(0, len(block))] * 2)))
        start.append(len(values) + cuts[0])
        stop.append(len(values) + cuts[1])
        values += block
    return tuple(np.array(part, dtype=np.int64) for part in (values, start, stop))  # type: ignore[return-value]


@examples(200)
@given(case=ranges_over_times(), data=st.data())
def test_ranges_are_cut_to_the_values_between_two_bounds(
    case: tuple[np.ndarray, np.ndarray, np.ndarray], data: st.DataObject
) -> None:
    values, start, stop = case
    bounds = st.lists(st.integers(-11, 11), min_size=len(start), max_size=len(start))
    lowest, highest = (np.array(data.draw(bounds), dtype=np.int64) for _ in range(2))
    before = start.copy(), stop.copy()
    first, last = narrow(values, start, stop, lowest, highest)
    for n in range(len(start)):
        naive = [row for row in range(start[n], stop[n]) if lowest[n] <= values[row] <= highest[n]]
        assert list(range(first[n], last[n])) == naive
        assert start[n] <= first[n] <= last[n] <= stop[n]
    assert (before[0] == start).all()
    assert (before[1] == stop).all()


def test_bisection_stops_before_or_after_equal_values() -> None:
    values, start, stop = np.array([1, 2, 2, 2, 3]), np.array([0, 1, 4]), np.array([5, 3, 4])
    target = np.array([2, 2, 2])
    assert bisect_ranges(values, start, stop, target, after_equal=False).tolist() == [1, 1, 4]
    assert bisect_ranges(values, start, stop, target, after_equal=True).tolist() == [4, 3, 4]


lengths_of_ranges = st.lists(st.integers(0, 7), max_size=12)


@examples(100)
@given(ranges=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 7)), max_size=12))
def test_ranges_become_row_numbers(ranges: list[tuple[int, int]]) -> None:
    start, lengths = (np.array([r[part] for r in ranges], dtype=np.int64) for part in (0, 1))
    assert ranges_to_rows(start, lengths).tolist() == [first + n for first, length in ranges for n in range(length)]


@examples(200)
@given(lengths=lengths_of_ranges, chunk_rows=st.integers(1, 20))
def test_expansion_names_every_row_of_every_range_once_in_full_chunks(lengths: list[int], chunk_rows: int) -> None:
    chunks = list(expand(np.array(lengths, dtype=np.int64), chunk_rows))
    pairs = [pair for owner, offset in chunks for pair in zip(owner.tolist(), offset.tolist(), strict=True)]
    assert pairs == [(n, offset) for n, length in enumerate(lengths) for offset in range(length)]
    sizes = [len(owner) for owner, _ in chunks]
    assert all(size == chunk_rows for size in sizes[:-1])
    assert all(0 < size <= chunk_rows for size in sizes)


def test_an_enormous_range_is_expanded_lazily() -> None:
    chunks = expand(np.array([10**12]), 10)
    owner, offset = next(chunks)
    assert owner.tolist() == [0] * 10
    assert offset.tolist() == list(range(10))
