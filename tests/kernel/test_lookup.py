"""What is read of the state: the last rows of each key, whichever runs they lie in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.kernel.lookup import gather, last_rows, ranges_of
from anabranch.state.run import HASH, TS, Segment
from tests.oracle.profiles import examples
from tests.state.segments import segment

FUTURE = 10**6
Row = tuple[int, int]


def rows_read(runs: Sequence[Sequence[Row]], since: int, count: int) -> list[Row]:
    segments = [segment([key for key, _ in run], [ts for _, ts in run]) for run in runs]
    wanted = np.unique(np.concatenate([one.hashes for one in segments]))
    past, future = (np.full(len(wanted), time) for time in (since, FUTURE))
    found = last_rows(segments, ranges_of(segments, wanted, future), past, count)
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


@examples(300)
@given(runs, st.integers(0, 40), st.integers(0, 4))
def test_the_last_rows_of_each_key_and_all_newer_ones_are_read(runs: list[list[Row]], since: int, count: int) -> None:
    everything = sorted(row for run in runs for row in run)
    read = rows_read(runs, since, count)
    for key in {key for key, _ in everything}:
        times = [ts for row_key, ts in everything if row_key == key]
        before = [ts for ts in times if ts < since]
        needed = [ts for ts in times if ts >= since or ts in before[len(before) - count :]]
        found = sorted(ts for row_key, ts in read if row_key == key)
        assert found[len(found) - len(needed) :] == needed
        assert set(found) <= set(times)


@pytest.mark.parametrize("older", [1, 4, 16])
def test_runs_that_are_older_than_what_is_needed_are_not_read(older: int) -> None:
    runs = [[(key, 10 * n + ts) for key in range(50) for ts in range(4)] for n in range(older + 1)]
    assert len(rows_read(runs, 10 * older + 4, 3)) == 50 * 3


def test_a_mapped_run_is_known_by_the_span_of_its_file() -> None:
    old = segment([1, 1], [0, 5])
    new = segment([1, 1], [6, 9])
    whole = [Segment(one.rows, one.hashes, one.ts, span=span) for one, span in ((old, (0, 5)), (new, (6, 9)))]
    wide = [whole[0], Segment(new.rows, new.hashes, new.ts, span=(3, 9))]
    for segments, read in ((whole, [0, 2]), (wide, [2, 2])):
        wanted, past, future = np.array([1], dtype=np.uint64), np.array([10]), np.array([FUTURE])
        found = last_rows(segments, ranges_of(segments, wanted, future), past, 2)
        assert [int(ranges.lengths.sum()) for ranges in found] == read
