"""What is read of the state: the last rows of each key, whichever runs they lie in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.kernel.lookup import gather, in_time, last_rows
from anabranch.state.runs.run import HASH, TS, Segment
from tests.oracle.profiles import examples
from tests.state.segments import segment

FUTURE = 10**6
Row = tuple[int, int]


def rows_read(
    runs: Sequence[Sequence[Row]],
    since: Mapping[int, int],
    until: Mapping[int, int],
    count: int,
    *,
    mapped: bool = False,
) -> list[Row]:
    segments = [segment([key for key, _ in run], [ts for _, ts in run]) for run in runs]
    if mapped:
        segments = [
            replace(one, span=(min(ts for _, ts in run), max(ts for _, ts in run)))
            for one, run in zip(segments, runs, strict=True)
        ]
    wanted = np.unique(np.concatenate([one.hashes for one in segments]))
    past, future = (np.array([times[key] for key in wanted.tolist()]) for times in (since, until))
    found = last_rows(segments, wanted, past, future, count)
    if not any(len(ranges.owner) for ranges in found):
        return []
    read = gather(segments, found)
    return list(zip(read.column(HASH).to_pylist(), read.column(TS).to_pylist(), strict=True))


runs = st.lists(
    st.tuples(st.integers(0, 3), st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9)), min_size=1, max_size=8)).map(
        lambda drawn: [(key, ts + 10 * drawn[0]) for key, ts in drawn[1]]
    ),
    min_size=1,
    max_size=6,
)


KEYS = range(1, 5)
times = st.lists(st.integers(0, 40), min_size=len(KEYS), max_size=len(KEYS)).map(
    lambda drawn: dict(zip(KEYS, drawn, strict=True))
)


@examples(300)
@given(runs, times, times, st.integers(0, 4), st.booleans())
def test_the_last_rows_of_each_key_and_all_newer_ones_are_read(
    runs: list[list[Row]], since: dict[int, int], length: dict[int, int], count: int, mapped: bool
) -> None:
    everything = sorted(row for run in runs for row in run)
    until = {key: since[key] + length[key] for key in KEYS}
    read = rows_read(runs, since, until, count, mapped=mapped)
    for key in {key for key, _ in everything}:
        times = [ts for row_key, ts in everything if row_key == key and ts < until[key]]
        before = [ts for ts in times if ts < since[key]]
        needed = [ts for ts in times if ts >= since[key] or ts in before[len(before) - count :]]
        found = sorted(ts for row_key, ts in read if row_key == key)
        assert found[len(found) - len(needed) :] == needed
        assert set(found) <= set(times)


@pytest.mark.parametrize("older", [1, 4, 16])
def test_runs_that_are_older_than_what_is_needed_are_not_read(older: int) -> None:
    runs = [[(key, 10 * n + ts) for key in range(50) for ts in range(4)] for n in range(older + 1)]
    since, until = (dict.fromkeys(range(50), time) for time in (10 * older + 4, FUTURE))
    assert len(rows_read(runs, since, until, 3)) == 50 * 3


def test_of_an_older_run_only_what_newer_ones_lack_is_read() -> None:
    newer = [[(key, 10 * n + ts) for key in range(50) for ts in range(2)] for n in (1, 2, 3)]
    runs = [[(key, ts) for key in range(50) for ts in range(8)], *newer]
    since, until = (dict.fromkeys(range(50), time) for time in (30, FUTURE))
    read = rows_read(runs, since, until, 5)
    assert sorted(ts for key, ts in read if key == 7) == [7, 10, 11, 20, 21, 30, 31]
    assert len(read) == 50 * 7


def test_keys_that_are_behind_do_not_make_others_read_more() -> None:
    behind = [[(1, 10 * n + ts) for ts in range(4)] + [(2, 10 * n - 25 + ts) for ts in range(4)] for n in range(16)]
    read = rows_read(behind, {1: 154, 2: 129}, dict.fromkeys((1, 2), FUTURE), 3)
    assert [sum(key == one for key, _ in read) for one in (1, 2)] == [3, 9], "of the other its runs up to 25 later"


def test_a_mapped_run_is_known_by_the_span_of_its_file() -> None:
    old = segment([1, 1], [0, 5])
    new = segment([1, 1], [6, 9])
    whole = [Segment(one.rows, one.hashes, one.ts, span=span) for one, span in ((old, (0, 5)), (new, (6, 9)))]
    wide = [Segment(old.rows, old.hashes, old.ts, span=(0, 7)), whole[1]]
    for segments, read in ((whole, [0, 2]), (wide, [2, 2])):
        wanted, past, future = np.array([1], dtype=np.uint64), np.array([10]), np.array([FUTURE])
        found = last_rows(segments, wanted, past, future, 2)
        assert [int(ranges.lengths.sum()) for ranges in found] == read


def test_a_run_with_old_rows_of_some_keys_comes_where_its_last_rows_belong() -> None:
    """As where groups have moved: the rows of all other keys are found in the order of time."""
    wide, before, after = segment([1, 2], [0, 30]), segment([2, 2], [10, 20]), segment([2], [40])
    assert in_time([wide, before, after]) == [before, wide, after]
