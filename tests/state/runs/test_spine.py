"""Spines: whatever happens to them, every row is listed exactly once, in few sorted runs, at a bounded price.

The constants that decide when and how much is merged are made small, so that a few dozen rows go through several
tiers, half-done merges and many files.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.state.runs import merge_choice
from anabranch.state.runs.merge import Merge, merge_segments
from anabranch.state.runs.run import RunCache, map_run, write_run
from anabranch.state.runs.slice import Slice, SortedRun
from anabranch.state.runs.spine import Spine
from tests.oracle.profiles import examples
from tests.state.ledger import EVERYTHING, Ledger, Step, histories, live, small_constants, sorted_runs, spine_sizes
from tests.state.segments import MemoryRuns, segment


@examples(60)
@given(history=histories, timed=st.booleans(), sizes=spine_sizes, max_span=st.none() | st.integers(0, 30))
def test_any_history_lists_every_row_once_in_sorted_runs_at_a_bounded_price(
    history: list[Step], timed: bool, sizes: dict[str, int], max_span: int | None
) -> None:
    ledger = Ledger(timed, max_span)
    with small_constants(**sizes):
        for step in history:
            files = len(ledger.runs.written) + 1
            moved = live(ledger, step)
            assert moved <= step.budget + max(ledger.largest_hash() - 1, 0)
            largest = max((file.rows for file in ledger.runs.written[files:]), default=0)
            assert largest <= sizes["max_file_rows"] + max(ledger.largest_hash() - 1, 0)


def test_most_histories_that_are_tried_meet_half_done_merges() -> None:
    half_done = []

    @examples(25)
    @given(history=histories, sizes=spine_sizes)
    def look(history: list[Step], sizes: dict[str, int]) -> None:
        ledger = Ledger(timed=True)
        with small_constants(**sizes):
            seen = [live(ledger, step) and bool(ledger.spine.merges) for step in history]
        half_done.append(any(seen))

    look()
    assert sum(half_done) > len(half_done) / 2


def test_the_price_stays_bounded_when_runs_hold_different_parts_of_the_hash_space() -> None:
    """The runs of a spine can differ in distribution: after state was listed anew, or with a hot key."""
    ledger = Ledger(timed=False)
    with small_constants(fan_in=8, smallest_tier=100):
        ledger.insert([(10**6 + n, 0) for n in range(60)])
        for part in range(7):
            ledger.insert([(100 * part + n, 0) for n in range(50)])
        while len(ledger.spine.runs) != 1:
            assert ledger.compact(20) == 20 or not ledger.spine.merges
            ledger.check()


@pytest.mark.parametrize("fan_in", [2, 3, 8])
@pytest.mark.parametrize("batch_rows", [1, 7, 40])
def test_sorted_runs_stay_few_however_many_batches_arrive(fan_in: int, batch_rows: int) -> None:
    generator = np.random.default_rng(7)
    ledger = Ledger(timed=False)
    batches = 150
    with small_constants(fan_in, smallest_tier=4):
        for n in range(1, batches + 1):
            ledger.insert([(int(h), 0) for h in generator.integers(0, 2**63, batch_rows)])
            tiers = 1 + math.ceil(math.log(max(n * batch_rows / 4, 1), fan_in)) if n > 1 else 1
            # A merge of k tiers moves every row k times: so much budget per batch keeps up with the merges.
            ledger.compact(batch_rows * (tiers + 1))
            assert len(sorted_runs(ledger.spine)) <= 2 * fan_in * tiers + 1
        while ledger.compact(EVERYTHING):
            pass
        ledger.check()
        tier_sizes = Counter(merge_choice._tier(sum(s.rows for s in run)) for run in ledger.spine.runs)
        assert not ledger.spine.merges
        assert max(tier_sizes.values()) < fan_in


def test_merged_runs_lie_in_as_few_files_as_the_budget_allows() -> None:
    """Else probing and listing would cost as much as there ever were batches."""
    generator = np.random.default_rng(7)
    ledger = Ledger(timed=False)
    with small_constants(fan_in=4, smallest_tier=10, max_file_rows=200):
        for _ in range(64):
            ledger.insert([(int(h), 0) for h in generator.integers(0, 2**63, 10)])
            ledger.compact(80)
        while ledger.compact(80):
            pass
        (only,) = ledger.spine.runs
        assert len(only) <= 2 * 640 / 80


def test_a_merge_reads_across_the_slices_of_its_sources() -> None:
    runs = MemoryRuns()

    def in_small_slices(first: int) -> SortedRun:
        files = [runs.write(segment([n, n + 2], id=[n, n + 2])) for n in range(first, 80, 4)]
        return tuple(Slice(file, 0, 2) for file in files)

    spine = Spine(runs=(in_small_slices(0), in_small_slices(1)))
    with small_constants(smallest_tier=100):
        in_steps = spine
        while len(in_steps.runs) != 1:
            in_steps = in_steps.compact(16, runs.open, runs.write)
        assert [piece.rows for piece in in_steps.slices()] == [16] * 5
        (whole,) = spine.compact(EVERYTHING, runs.open, runs.write).slices()
    assert runs.open(whole).hashes.tolist() == list(range(80))


def arrivals(n: int, spread: int, generator: np.random.Generator) -> list[tuple[int, int]]:
    """A batch at time n, of rows that are up to `spread` old."""
    hashes, ages = generator.integers(0, 2**63, 8), generator.integers(0, spread + 1, 8)
    return [(h, n - age) for h, age in zip(hashes.tolist(), ages.tolist(), strict=True)]


@pytest.mark.parametrize("spread", [0, 20, 40, 150])
def test_sorted_runs_stay_few_in_a_window_whether_or_not_rows_come_in_order(spread: int) -> None:
    generator = np.random.default_rng(7)
    retention = 100 + spread
    ledger = Ledger(timed=True, max_span=retention // 4)
    most_runs = most_rows = 0
    with small_constants(fan_in=4, smallest_tier=8):
        for n in range(3 * retention):
            ledger.insert(arrivals(n, spread, generator))
            ledger.purge(n - retention)
            ledger.compact(80)
            most_runs = max(most_runs, len(sorted_runs(ledger.spine)))
            most_rows = max(most_rows, ledger.spine.rows)
        ledger.check()
    assert most_runs <= 30
    assert most_rows <= 1.6 * 8 * retention, "expired rows must not pile up"


def test_runs_far_apart_in_time_are_not_merged_so_that_old_files_expire_whole() -> None:
    ledger = Ledger(timed=True, max_span=10)
    with small_constants(fan_in=2, smallest_tier=2):
        for start in (0, 100, 200, 300):
            ledger.insert([(1, start), (2, start + 1)])
        assert ledger.compact(EVERYTHING) == 0
        ledger.insert([(1, 305), (2, 309)])
        assert ledger.compact(EVERYTHING) == 4
        assert len(ledger.spine.runs) == 4
        ledger.purge(201)
        assert ledger.spine.rows == 6
        ledger.check()


def test_runs_close_in_time_are_merged_in_whatever_order_they_came() -> None:
    ledger = Ledger(timed=True, max_span=10)
    with small_constants(fan_in=2, smallest_tier=2):
        for start in (0, 100, 200, 1, 101, 201):
            ledger.insert([(1, start), (2, start + 2)])
        assert ledger.compact(EVERYTHING) == 12
        assert len(ledger.spine.runs) == 3
        ledger.check()
        ledger.purge(150)
        assert ledger.spine.rows == 4


def test_a_spine_shrinks_by_whole_files_without_opening_them() -> None:
    runs = MemoryRuns()
    spine = Spine()
    for start in (0, 10, 20):
        spine = spine.insert(runs.write(segment([1, 2], [start, start + 5])))
    runs.segments.clear()
    assert spine.purge(None) == spine
    assert spine.purge(5).rows == 6
    assert spine.purge(6).rows == 4
    assert spine.purge(100) == Spine()


def test_a_purge_in_the_middle_of_a_merge_keeps_what_is_needed() -> None:
    runs = MemoryRuns()
    old, new = (runs.write(segment([1, 5], [ts, ts])) for ts in (0, 100))
    done = runs.write(segment([0], [0]))
    spine = Spine(merges=(Merge((Slice(done, 0, 1),), ((Slice(old, 0, 2),), (Slice(new, 0, 2),))),))
    purged = spine.purge(50)
    assert [piece.file for piece in purged.slices()] == [new]
    finished = purged.compact(EVERYTHING, runs.open, runs.write)
    assert finished.merges == ()
    assert runs.column(finished, "ts") == [100, 100]


def test_untimed_runs_are_never_purged() -> None:
    runs = MemoryRuns()
    spine = Spine().insert(runs.write(segment([1, 2])))
    assert spine.purge(10**15) == spine


def test_an_idle_spine_is_left_alone() -> None:
    ledger = Ledger(timed=False)
    with small_constants():
        ledger.insert([(1, 0)])
        before = ledger.spine
        assert ledger.compact(EVERYTHING) == 0
        assert ledger.spine == before
        assert Spine().compact(EVERYTHING, ledger.runs.open, ledger.runs.write) == Spine()
        assert Spine().rows == Spine().bytes == 0


def test_the_bytes_of_a_slice_are_its_share_of_the_file() -> None:
    file = MemoryRuns().write(segment(range(10)))
    assert Slice(file, 2, 5).bytes == 300
    assert Spine().insert(file).bytes == 1_000


def test_merging_drops_rows_below_the_threshold_and_nothing_else() -> None:
    parts = [segment([1, 1, 2], [3, 9, 5]), segment([1, 2], [4, 4])]
    merged = merge_segments(parts, threshold=4)
    assert merged is not None
    assert list(zip(merged.hashes.tolist(), merged.ts.tolist(), strict=True)) == [(1, 4), (1, 9), (2, 4), (2, 5)]
    assert merge_segments(parts, threshold=10) is None


def test_a_spine_on_disk_survives_merges_with_every_payload_intact(tmp_path: Path) -> None:
    cache = RunCache()
    generator = np.random.default_rng(3)
    names: Callable[[], str] = iter(f"run-{n}.arrow" for n in range(1_000)).__next__
    expected = []

    def write(rows):
        return write_run(tmp_path, names(), rows)

    def open_slice(piece):
        return cache.open(tmp_path, piece.file).slice(piece.start, piece.stop)

    spine = Spine()
    with small_constants(fan_in=3, smallest_tier=4, max_file_rows=20):
        for batch in range(12):
            hashes = generator.integers(0, 50, 5).tolist()
            texts = [f"{batch}/{h}" if h % 3 else None for h in hashes]
            nested = [{"text": [text] * (h % 4)} for h, text in zip(hashes, texts, strict=True)]
            expected += zip(hashes, texts, map(repr, nested), strict=True)
            spine = spine.insert(write(segment(hashes, [batch] * 5, text=texts, nested=nested)))
            spine = spine.compact(12, open_slice, write)
    found = []
    for piece in spine.slices():
        assert len(map_run(tmp_path, piece.file)) == piece.file.rows
        rows = open_slice(piece).rows
        columns = [rows.column(name).to_pylist() for name in ("hash", "text", "nested")]
        found += zip(columns[0], columns[1], map(repr, columns[2]), strict=True)
    assert Counter(found) == Counter(expected)
