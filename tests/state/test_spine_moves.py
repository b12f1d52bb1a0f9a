"""Spines of which groups go away or to which they come: they are listed anew, and written anew where that pays."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from anabranch.kernel.lookup import in_time
from anabranch.plan.placement import even_placement
from anabranch.plan.routing import Routing
from anabranch.state.groups import GroupSet
from anabranch.state.runs import merge as merge_module
from anabranch.state.runs.slice import time_span
from anabranch.state.runs.spine import Spine
from anabranch.state.share import home_groups
from tests.oracle.profiles import examples
from tests.state.ledger import EVERYTHING, Ledger, Step, histories, live, small_constants


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
        routing = Routing(tuple(placement))
        for processor in sorted(set(placement)):
            part = ledger.spine.of_groups(home_groups(routing, processor), ledger.runs.cuts(groups))
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
    spans = sorted(time_span(run) for run in merged.runs)
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

    monkeypatch.setattr(merge_module, "order_of", by_hash)
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


@examples(100)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=10, max_size=40).map(sorted),
    falling=st.booleans(),
)
def test_keys_do_not_go_back_in_time_from_run_to_run_when_batches_become_larger_or_smaller(
    sizes: list[int], falling: bool
) -> None:
    """As they do where groups come or go; if merges are done in time."""
    ledger = Ledger(timed=True)
    with small_constants(fan_in=3):
        for batch, size in enumerate(reversed(sizes) if falling else sizes):
            ledger.insert([(row * 7 % 5, batch) for row in range(size)])
            ledger.compact(EVERYTHING)
            rows: dict[int, list[int]] = {}
            for opened in in_time([ledger.runs.open(piece) for piece in ledger.spine.slices()]):
                assert opened.ts is not None
                for key, ts in zip(opened.hashes.tolist(), opened.ts.tolist(), strict=True):
                    rows.setdefault(key, []).append(ts)
            assert all(times == sorted(times) for times in rows.values())
        ledger.check()


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
