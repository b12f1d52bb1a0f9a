"""A spine next to the plain list of rows that it must be equivalent to, and what may happen to both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st

from anabranch.state.runs import merge as merge_module
from anabranch.state.runs import merge_choice
from anabranch.state.runs.slice import SortedRun
from anabranch.state.runs.spine import Spine
from tests.state.segments import MemoryRuns, segment

EVERYTHING = 10**9


@contextmanager
def small_constants(fan_in: int = 2, smallest_tier: int = 2, max_file_rows: int = 1_000_000) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge_choice, "FAN_IN", fan_in)
        patch.setattr(merge_choice, "SMALLEST_TIER", smallest_tier)
        patch.setattr(merge_module, "MAX_FILE_ROWS", max_file_rows)
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
            opened = self.runs.open(piece).only_selected()
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
