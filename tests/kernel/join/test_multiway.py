"""The m-way join of one batch: exactly the new combinations, in bounded chunks, touching only the window."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.kernel.join.combinations import MAX_TIME, UNBOUNDED, JoinShape, Matches, keys_equal
from anabranch.kernel.join.multiway import join_deltas
from anabranch.state.runs.run import Segment
from tests.kernel.join.streams import HASHES, KEYS, Join, Row, collect, duckdb, joins, nested_loops, share_with_results
from tests.oracle.profiles import examples
from tests.state.segments import segment

OLD_LOTS = 3
sizes = st.fixed_dictionaries(
    {"chunk_rows": st.sampled_from([1, 2, 7, 1_000]), "gather_rows": st.sampled_from([1, 9, 99])}
)


def new_combinations(join: Join, everything: Counter) -> Counter:
    """Those with at least one row of the delta, which is the last lot."""

    def is_new(ids: tuple[int, ...]) -> bool:
        return any(join.rows[i][n].lot == OLD_LOTS for i, n in enumerate(ids))

    return Counter({ids: count for ids, count in everything.items() if is_new(ids)})


def by_kernel(join: Join, seed: int | None = None, **limits: int) -> Counter:
    shape = join.shape(**limits)
    old, deltas = [], []
    for i in range(len(join.windows)):
        lots = [join.segment(i, lambda row, lot=lot: row.lot == lot, seed) for lot in range(OLD_LOTS + 1)]
        old.append([lot.indexed() if n else lot for n, lot in enumerate(lots[:-1]) if len(lot)])
        deltas.append(lots[-1])
    return collect(join, shape, join_deltas(shape, old, deltas))


def test_most_joins_that_are_tried_have_results() -> None:
    assert share_with_results(joins(lots=OLD_LOTS + 1)) > 0.6


@examples(150)
@given(join=joins(lots=OLD_LOTS + 1), limits=sizes, seed=st.integers(0, 9))
def test_the_join_of_a_batch_is_every_new_combination_once(join: Join, limits: dict, seed: int) -> None:
    assert by_kernel(join, seed, **limits) == new_combinations(join, nested_loops(join))


@examples(40)
@given(join=joins(lots=OLD_LOTS + 1))
def test_duckdb_agrees(join: Join) -> None:
    everything = duckdb(join)
    assert everything == nested_loops(join)
    assert by_kernel(join) == new_combinations(join, everything)


@pytest.mark.parametrize("hashes", sorted(set(HASHES) - {"distinct"}))
@pytest.mark.parametrize("keys", KEYS)
def test_rows_with_equal_hashes_and_different_keys_do_not_match(keys: str, hashes: str) -> None:
    rows = tuple(Row(key, 0, lot) for key, lot in product(range(4), (0, OLD_LOTS)))
    join = Join((None, None, None), (rows,) * 3, keys, hashes)
    expected = new_combinations(join, nested_loops(join))
    assert len(expected) == 4 * (2**3 - 1)
    assert by_kernel(join) == by_kernel(join, chunk_rows=3) == expected
    assert duckdb(join) == nested_loops(join)


def test_keys_are_equal_as_values_and_floats_as_bits() -> None:
    nan = float("nan")
    for bits in (pa.float32(), pa.float64()):
        assert keys_equal(pa.array([nan, 1.0, 0.0], bits), pa.array([nan, 1.5, 0.0], bits)).tolist() == [
            True,
            False,
            True,
        ]
    assert keys_equal(pa.array(["a", "b"]), pa.array(["a", "c"])).tolist() == [True, False]


def test_every_window_counts_from_the_newest_row_of_the_combination() -> None:
    """Two rows may both be near a third without being near each other: pairs are not enough."""
    join = Join(
        (10, 10, UNBOUNDED),
        ((Row(0, 0, OLD_LOTS),), (Row(0, 8),), (Row(0, 10), Row(0, 11), Row(0, -100))),
    )
    assert by_kernel(join) == Counter({(0, 0, 0): 1, (0, 0, 2): 1})


@pytest.mark.parametrize("lots", [(0, OLD_LOTS), (OLD_LOTS, 0), (OLD_LOTS, OLD_LOTS)])
@pytest.mark.parametrize("windows", list(product([0, 1, MAX_TIME, 2 * MAX_TIME - 1, UNBOUNDED], repeat=2)))
def test_times_and_windows_at_the_ends_of_their_range_do_not_overflow(
    windows: tuple[int, int], lots: tuple[int, int]
) -> None:
    times = [-MAX_TIME, -MAX_TIME + 1, 0, MAX_TIME - 1, MAX_TIME]
    join = Join(windows, tuple(tuple(Row(0, ts, lot) for ts in times) for lot in lots))
    assert by_kernel(join) == nested_loops(join)


def test_a_batch_without_rows_or_without_partners_has_no_results() -> None:
    rows = (Row(0, 0, OLD_LOTS), Row(1, 0, OLD_LOTS))
    assert by_kernel(Join((None, None), ((), ()))) == Counter()
    assert by_kernel(Join((3, 3), ((Row(0, 0),), (Row(0, 0),)))) == Counter()
    assert by_kernel(Join((3, None, 3), (rows, (), rows))) == Counter()


def hot_key(rows: int, segments: int) -> list[Segment]:
    """One key with a long history, spread over several segments."""
    times = np.arange(rows)
    return [segment([7] * len(part), part, id=part) for part in (times[n::segments] for n in range(segments))]


def run_hot_key(
    windows: tuple[int | None, ...], old: list[list[Segment]], deltas: list[Segment], **limits: int
) -> tuple[int, int]:
    """The number of results, and the largest number of rows gathered at once."""
    shape = JoinShape(windows, **limits)
    results = gathered = 0
    for matches in join_deltas(shape, old, deltas):
        assert len(matches) <= shape.chunk_rows
        results += len(matches)
        gathered = max(gathered, sum(table.num_rows for table in matches.tables))
    return results, gathered


@pytest.mark.parametrize("segments", [1, 5])
@pytest.mark.parametrize("window", [0, 10])
def test_rows_of_a_hot_key_outside_the_window_are_not_touched(segments: int, window: int) -> None:
    arriving, nothing = segment([7], [50_000], id=[0]), segment([], [], id=pa.array([], pa.int64()))
    history = hot_key(100_000, segments)
    results, gathered = run_hot_key((window, window), [[], history], [arriving, nothing])
    assert results == 2 * window + 1
    assert gathered == 1 + results
    results, gathered = run_hot_key((window,) * 3, [history, [], history], [nothing, arriving, nothing])
    assert gathered == 1 + 2 * (2 * window + 1)
    assert results == sum(abs(a - b) <= window for a, b in product(range(-window, window + 1), repeat=2))


def test_a_window_of_one_stream_does_not_hide_rows_of_an_unbounded_one() -> None:
    arriving, nothing = segment([7], [500], id=[0]), segment([], [], id=pa.array([], pa.int64()))
    history = hot_key(1_000, 3)
    assert run_hot_key((10, UNBOUNDED), [[], history], [arriving, nothing]) == (511, 512)
    assert run_hot_key((UNBOUNDED, 10), [[], history], [arriving, nothing]) == (510, 511)


def test_the_results_of_a_hot_key_leave_in_chunks_of_bounded_size() -> None:
    many = segment([7] * 300, id=range(300))
    chunks = join_deltas(JoinShape((None,) * 3, chunk_rows=1_000), [[], [], []], [many] * 3)
    first = [next(chunks) for _ in range(5)]
    assert [len(matches) for matches in first] == [1_000] * 5
    assert all(isinstance(matches, Matches) for matches in first)
    results, _ = run_hot_key((None,) * 3, [[], [], []], [segment([7] * 40, id=range(40))] * 3, chunk_rows=999)
    assert results == 40**3


def test_state_of_a_hot_key_is_gathered_once_per_batch_and_other_keys_in_blocks() -> None:
    state = segment([1] * 50 + list(range(2, 40)), id=range(88))
    arriving = segment(range(1, 40), id=range(39))
    nothing = segment([], id=pa.array([], pa.int64()))
    results, gathered = run_hot_key((None, None), [[], [state]], [arriving, nothing], gather_rows=10)
    assert results == 88
    assert gathered == 51


def test_keys_that_some_input_lacks_are_not_gathered() -> None:
    arriving, nothing = segment(range(100), id=range(100)), segment([], id=pa.array([], pa.int64()))
    state = segment([*range(50, 60), 59], id=range(11))
    other = segment(range(59, 200), id=range(141))
    assert run_hot_key((None,) * 3, [[], [state], [other]], [arriving, nothing, nothing]) == (2, 4)


@pytest.mark.parametrize(("gather_rows", "gathered"), [(8, 8), (9, 8), (10, 10)])
def test_blocks_of_keys_keep_to_the_number_of_rows_to_gather(gather_rows: int, gathered: int) -> None:
    arriving, nothing = segment(range(20), id=range(20)), segment([], id=pa.array([], pa.int64()))
    assert run_hot_key((None, None), [[], [arriving]], [arriving, nothing], gather_rows=gather_rows) == (20, gathered)
