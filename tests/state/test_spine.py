"""Spines: whatever happens to them, every row is listed exactly once, in few sorted runs, at a bounded price.

The constants that decide when and how much is merged are made small, so that a few dozen rows go through several
tiers, half-done merges and many files.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from anabranch.plan.placement import even_placement
from anabranch.state import spine as spine_module
from anabranch.state.groups import GroupSet
from anabranch.state.run import RunCache, map_run, write_run
from anabranch.state.spine import Merge, Slice, SortedRun, Spine, merge_segments
from tests.oracle.profiles import examples
from tests.state.segments import MemoryRuns, segment

EVERYTHING = 10**9


@contextmanager
def small_constants(fan_in: int = 2, smallest_tier: int = 2, max_file_rows: int = 1_000_000) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spine_module, "FAN_IN", fan_in)
        patch.setattr(spine_module, "SMALLEST_TIER", smallest_tier)
        patch.setattr(spine_module, "MAX_FILE_ROWS", max_file_rows)
        yield


@dataclass
class Ledger:
    """A spine next to the plain list of rows that it must be equivalent to."""

    timed: bool
    max_span: int | None = None
    runs: MemoryRuns = field(default_factory=MemoryRuns)
    spine: Spine = field(default_factory=Spine)
    rows: list[tuple[int, int]] = field(default_factory=list)
    threshold: int | None = None

    def insert(self, rows: Sequence[tuple[int, int]]) -> None:
        ids = range(len(self.rows), len(self.rows) + len(rows))
        ts = [row[1] for row in rows] if self.timed else None
        self.rows += rows
        self.spine = self.spine.insert(self.runs.write(segment([row[0] for row in rows], ts, id=list(ids))))

    def compact(self, budget: int) -> int:
        """Compact, and return how many rows were moved."""
        rows, files = self.spine.rows, len(self.runs.written)
        self.spine = self.spine.compact(budget, self.runs.open, self.runs.write, self.threshold, self.max_span)
        dropped = rows - self.spine.rows
        return dropped + sum(file.rows for file in self.runs.written[files:])

    def consolidate(self, budget: int) -> None:
        self.spine = self.spine.consolidate(budget, self.runs.open, self.runs.write, self.threshold, self.max_span)

    def purge(self, threshold: int) -> None:
        self.threshold = max(threshold, self.threshold or threshold) if self.timed else None
        self.spine = self.spine.purge(self.threshold)

    def largest_hash(self) -> int:
        return max(Counter(row[0] for row in self.rows).values(), default=0)

    def check(self) -> None:
        """Every row is listed once, as it was; only rows below the threshold may be missing."""
        listed = self.runs.column(self.spine, "id")
        assert len(listed) == len(set(listed)) == self.spine.rows
        needed = {n for n, (_, ts) in enumerate(self.rows) if self.threshold is None or ts >= self.threshold}
        assert needed <= set(listed) <= set(range(len(self.rows)))
        assert self.runs.column(self.spine, "hash") == [self.rows[n][0] for n in listed]
        if self.timed:
            assert self.runs.column(self.spine, "ts") == [self.rows[n][1] for n in listed]
        for run in sorted_runs(self.spine):
            self.check_sorted(run)
        for merge in self.spine.merges:
            assert merge.sources, "a finished merge is a run"
            for source in merge.sources:
                self.check_sorted((*merge.target, *source))

    def check_sorted(self, run: SortedRun) -> None:
        last = -1
        for piece in run:
            opened = self.runs.open(piece).solid()
            assert len(opened) == piece.rows
            hashes = opened.hashes.tolist()
            assert last < hashes[0], "slices overlap, or one hash lies in two of them"
            last = hashes[-1]
            rows = hashes if opened.ts is None else list(zip(hashes, opened.ts.tolist(), strict=True))
            assert rows == sorted(rows)


def sorted_runs(spine: Spine) -> list[SortedRun]:
    merging = [run for merge in spine.merges for run in (merge.target, *merge.sources) if run]
    return [*spine.runs, *merging]


@dataclass(frozen=True)
class Step:
    """What happens to a spine in one batch."""

    rows: list[tuple[int, int]]
    budget: int
    purge: int | None


hashes = st.integers(0, 20) | st.integers(0, 2**64 - 1)
histories = st.lists(
    st.builds(
        Step,
        rows=st.lists(st.tuples(hashes, st.integers(0, 30)), min_size=1, max_size=12),
        budget=st.sampled_from([0, 1, 2, 5, 10, 20, EVERYTHING]),
        purge=st.none() | st.none() | st.integers(0, 20),
    ),
    min_size=6,
    max_size=16,
)
spine_sizes = st.fixed_dictionaries(
    {
        "fan_in": st.integers(2, 4),
        "smallest_tier": st.integers(1, 8),
        "max_file_rows": st.sampled_from([1, 3, 8, 1_000]),
    }
)


def live(ledger: Ledger, step: Step) -> int:
    """One batch, checked after each of its parts; returns how many rows were moved."""
    if step.purge is not None:
        ledger.purge(step.purge)
        ledger.check()
    ledger.insert(step.rows)
    ledger.check()
    moved = ledger.compact(step.budget)
    ledger.check()
    return moved


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
        tier_sizes = Counter(spine_module._tier(sum(s.rows for s in run)) for run in ledger.spine.runs)
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


@examples(40)
@given(
    history=histories,
    groups=st.sampled_from([1, 2, 8, 64]),
    processors=st.integers(1, 4),
    scattered=st.none() | st.integers(0, 2**32),
    max_span=st.none() | st.integers(0, 40),
)
def test_the_groups_of_all_processors_partition_a_spine(
    history: list[Step], groups: int, processors: int, scattered: int | None, max_span: int | None
) -> None:
    ledger = Ledger(timed=True, max_span=max_span)
    spread = 2**64 // 21
    with small_constants(max_file_rows=5):
        for step in history:
            live(ledger, replace(step, rows=[(h * spread % 2**64, ts) for h, ts in step.rows]))
        placement = list(even_placement(groups, min(processors, groups)))
        if scattered is not None:
            np.random.default_rng(scattered).shuffle(placement)
        before = ledger.runs.column(ledger.spine, "id")
        files = len(ledger.runs.written)
        parts = []
        for processor in sorted(set(placement)):
            part = ledger.spine.of_groups(GroupSet.owned(placement, processor), ledger.runs.cuts(groups))
            owned = {group for group, owner in enumerate(placement) if owner == processor}
            assert {h * groups >> 64 for h in ledger.runs.column(part, "hash")} <= owned
            parts.append(part)
        assert Counter(v for part in parts for v in ledger.runs.column(part, "id")) == Counter(before)
        assert len(ledger.runs.written) == files, "listing state anew moves no rows"
        ledger.spine = Spine()
        for part in parts:
            ledger.spine = ledger.spine.union(part)
        ledger.check()
        ledger.consolidate(7)
        ledger.check()
        ledger.compact(7)
        ledger.check()
        ledger.consolidate(EVERYTHING)
        ledger.check()
        while ledger.compact(EVERYTHING):
            pass
        ledger.check()


@pytest.mark.parametrize(("max_span", "runs"), [(None, 1), (10, 2)])
def test_runs_of_which_few_groups_have_moved_here_become_one_as_far_as_time_allows(
    max_span: int | None, runs: int
) -> None:
    ledger = Ledger(timed=True, max_span=max_span)
    spread = 2**64 // 16
    for start, copies in ((0, 1), (2, 4), (50, 1), (52, 20)):
        ledger.insert([(n * spread, start) for n in range(16)] * copies)
    moved = ledger.spine.of_groups(GroupSet.of(16, [0, 8, 15]), ledger.runs.cuts(16))
    assert len(moved.runs) == 4, "of whatever sizes"
    merged = moved.consolidate(EVERYTHING, ledger.runs.open, ledger.runs.write, max_span=max_span)
    assert len(merged.runs) == runs
    assert not merged.merges
    assert Counter(ledger.runs.column(merged, "id")) == Counter(ledger.runs.column(moved, "id"))


def test_narrow_runs_are_not_written_into_one_with_a_wide_one_that_would_outlive_them() -> None:
    ledger = Ledger(timed=True, max_span=10)
    spread = 2**64 // 16
    for times in ((0, 1), (2, 1_000), (5, 6), (7, 8)):
        ledger.insert([(n * spread, ts) for n in range(16) for ts in times])
    moved = ledger.spine.of_groups(GroupSet.of(16, [0, 8, 15]), ledger.runs.cuts(16))
    merged = moved.consolidate(EVERYTHING, ledger.runs.open, ledger.runs.write, max_span=10)
    spans = sorted(spine_module._span(run) for run in merged.runs)
    assert spans == [(0, 8), (2, 1_000)]


@pytest.mark.parametrize("moved", [False, True])
def test_a_run_that_reaches_back_for_keys_that_came_is_merged_after_what_is_older_of_the_others(
    moved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then rows of no key have to be sorted by time, as they would be if runs were ordered by their first times."""
    seen: list[list[tuple[int, int]]] = []

    def by_hash(hashes: NDArray[np.uint64], ts: NDArray[np.int64]) -> NDArray[np.int64]:
        order = np.argsort(hashes, kind="stable")
        seen.append(list(zip(hashes[order].tolist(), ts[order].tolist(), strict=True)))
        return order

    monkeypatch.setattr(spine_module, "order_of", by_hash)
    ledger = Ledger(timed=True)
    half = 2**63
    with small_constants(fan_in=2, smallest_tier=8):
        ledger.insert([(1, 5), (1, 6), *[(half - 1, 6)] * 6, (half, 6), (half + 1, 0)])
        ledger.insert([(1, 3), (1, 4), *[(half - 1, 4)] * 6, (half, 4)])
        if moved:
            ledger.spine = ledger.spine.of_groups(GroupSet.of(16, [0, 8]), ledger.runs.cuts(16))
            ledger.consolidate(EVERYTHING)
        else:
            ledger.compact(EVERYTHING)
    assert len(ledger.spine.runs) == 1
    assert seen
    assert all(rows == sorted(rows) for rows in seen)


def test_a_merge_of_runs_with_few_groups_left_writes_no_more_files_than_its_budget_asks_for() -> None:
    ledger = Ledger(timed=False)
    spread = 2**64 // 64
    for start in range(4):
        ledger.insert([(group * spread + 10 * n + start, 0) for group in range(64) for n in range(16)])
    moved = ledger.spine.of_groups(GroupSet.of(64, [5, 33]), ledger.runs.cuts(64))
    before = len(ledger.runs.written)
    merged = moved.consolidate(moved.rows, ledger.runs.open, ledger.runs.write)
    assert len(ledger.runs.written) == before + 1
    assert merged.rows == moved.rows
    assert not merged.merges


def test_a_merge_of_which_few_groups_have_moved_here_is_not_gone_on_with_but_written_as_one() -> None:
    ledger = Ledger(timed=False)
    spread = 2**64 // 64
    with small_constants(fan_in=4, smallest_tier=4):
        for start in range(4):
            ledger.insert([(group * spread + start, 0) for group in range(64)])
        ledger.compact(128)
        assert ledger.spine.merges
        moved = ledger.spine.of_groups(GroupSet.of(64, [5, 17, 40, 60]), ledger.runs.cuts(64))
        assert moved.merges
        found = moved.consolidate(EVERYTHING, ledger.runs.open, ledger.runs.write)
    assert not found.merges
    assert len(found.runs) == 1
    assert Counter(ledger.runs.column(found, "id")) == Counter(ledger.runs.column(moved, "id"))


def test_what_is_left_of_consolidating_goes_on_as_a_merge() -> None:
    ledger = Ledger(timed=False)
    spread = 2**64 // 64
    for start in range(3):
        ledger.insert([(group * spread + start, 0) for group in range(64)])
    ledger.spine = ledger.spine.of_groups(GroupSet.of(64, range(0, 64, 6)), ledger.runs.cuts(64))
    listed = Counter(ledger.runs.column(ledger.spine, "id"))
    ledger.consolidate(12)
    (merge,) = ledger.spine.merges
    assert merge.target
    assert merge.sources
    begun = ledger.spine
    ledger.consolidate(0)
    assert ledger.spine == begun
    while ledger.compact(20):
        pass
    assert not ledger.spine.merges
    assert Counter(ledger.runs.column(ledger.spine, "id")) == listed


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
