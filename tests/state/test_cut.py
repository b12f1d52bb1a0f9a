"""Cutting groups into parts and putting parts together: no row is lost or copied, and no file is written."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.state.cut import cut, put_back, put_together, take_out
from anabranch.state.groups import GroupSet
from anabranch.state.runs.slice import SortedRun, count_rows
from anabranch.state.runs.spine import Spine
from tests.oracle.profiles import examples
from tests.state.ledger import EVERYTHING, Ledger, Step, histories, live, small_constants
from tests.state.segments import segment

GROUPS = 8
SPREAD = 2**64 // 21
all_weights = st.lists(st.sampled_from([0.1, 1.0, 1.0, 2.5, 40.0]), min_size=2, max_size=5)


def lived(history: list[Step], group: int | None = None) -> Ledger:
    """A spine with a history, merges under way among it; if a group is named, every third row is of one key there."""
    ledger = Ledger(timed=True)
    for step in history:
        hot = [] if group is None else [(group << 61, ts) for n, (_, ts) in enumerate(step.rows) if n % 3 == 0]
        live(ledger, replace(step, rows=[*((h * SPREAD % 2**64, ts) for h, ts in step.rows), *hot]))
    return ledger


def rows(ledger: Ledger, runs: list[SortedRun] | tuple[SortedRun, ...]) -> list[int]:
    return ledger.runs.values((piece for run in runs for piece in run), "id")


@examples(40)
@given(history=histories, group=st.integers(0, GROUPS - 1), weights=all_weights, restricted=st.booleans())
def test_a_group_is_parted_from_a_spine_and_cut_into_disjoint_parts_that_are_all_of_it(
    history: list[Step], group: int, weights: list[float], restricted: bool
) -> None:
    with small_constants(max_file_rows=5):
        ledger = lived(history, group)
        cuts, files = ledger.runs.cuts(GROUPS), len(ledger.runs.written)
        if restricted:
            ledger.spine = ledger.spine.of_groups(GroupSet.of(GROUPS, {group, 1, 6}), cuts)
        before = ledger.runs.column(ledger.spine, "id")
        expected = [n for n in before if ledger.rows[n][0] >> 61 == group]
        rest, runs = take_out(ledger.spine, group, cuts)
        assert Counter(rows(ledger, runs)) == Counter(expected)
        assert Counter(ledger.runs.column(rest, "id")) == Counter(before) - Counter(expected)
        assert not any(piece.only for run in runs for piece in run)
        parts = cut(runs, weights)
        assert Counter(row for part in parts for row in rows(ledger, part)) == Counter(expected)
        total = sum(map(count_rows, runs))
        for part, weight in zip(parts, weights, strict=True):
            assert abs(sum(map(count_rows, part)) - total * weight / sum(weights)) < len(weights)
            for run in part:
                ledger.check_sorted(run)
        together = put_together(parts)
        assert Counter(rows(ledger, together)) == Counter(expected)
        for run in together:
            ledger.check_sorted(run)
        ledger.spine = put_back(rest, together)
        assert Counter(ledger.runs.column(ledger.spine, "id")) == Counter(before)
        for run in ledger.spine.runs:
            ledger.check_sorted(run)
        assert len(ledger.runs.written) == files, "nothing is copied"


@examples(20)
@given(history=histories, group=st.integers(0, GROUPS - 1), weights=all_weights)
def test_parts_at_several_spines_go_on_and_come_together_again(
    history: list[Step], group: int, weights: list[float]
) -> None:
    with small_constants(max_file_rows=5):
        ledger = lived(history, group)
        before, cuts = ledger.runs.column(ledger.spine, "id"), ledger.runs.cuts(GROUPS)
        ledger.threshold = None  # from here on all rows stay
        home, runs = take_out(ledger.spine, group, cuts)
        first, *parts = cut(runs, weights)
        hosts = [put_back(home, first), *(put_back(Spine(), part) for part in parts)]
        merged = []
        for spine in hosts:
            ledger.spine = spine
            ledger.compact(7)
            ledger.consolidate(3)
            merged.append(ledger.spine)
        taken = [take_out(spine, group, cuts) for spine in merged]
        assert not any(rest.rows for rest, _ in taken[1:])
        ledger.spine = put_back(taken[0][0], put_together(part for _, part in taken))
        assert Counter(ledger.runs.column(ledger.spine, "id")) == Counter(before)
        while ledger.compact(EVERYTHING):
            pass
        assert Counter(ledger.runs.column(ledger.spine, "id")) == Counter(before)
        for run in ledger.spine.runs:
            ledger.check_sorted(run)


@pytest.mark.parametrize("weights", [[1, 1], [3, 1, 1], [1, 0.1, 5, 1]])
def test_what_was_cut_and_put_together_is_listed_as_before(weights: list[float]) -> None:
    ledger = Ledger(timed=True)
    for start in range(5):
        ledger.insert([(n << 60, start) for n in range(16)] + [(5 << 61, start)] * 40)
    cuts, before = ledger.runs.cuts(GROUPS), ledger.spine
    rest, runs = take_out(before, 5, cuts)
    assert [count_rows(run) for run in runs] == [42] * 5
    home, *others = cut(runs, weights)
    spine = put_back(rest, home)
    assert len(spine.runs) == 5, "the home's part touches what was before it"
    assert not any(piece.only for piece in spine.slices()), "so no run is written anew for having lost a group"
    left, own = take_out(spine, 5, cuts)
    assert put_back(left, put_together([own, *others])) == before


def test_of_a_group_that_is_one_key_every_part_has_rows_of_every_time() -> None:
    ledger = Ledger(timed=True)
    for start in range(6):
        ledger.insert([(7, start)] * 10)
    parts = cut(take_out(ledger.spine, 0, ledger.runs.cuts(GROUPS))[1], [1, 1, 3])
    times = [Counter(ledger.runs.values((piece for run in part for piece in run), "ts")) for part in parts]
    assert times == [Counter(dict.fromkeys(range(6), rows)) for rows in (2, 2, 6)]


def test_rows_that_cannot_be_divided_take_turns() -> None:
    ledger = Ledger(timed=True)
    for start in range(30):
        ledger.insert([(7, start)])
    parts = cut(take_out(ledger.spine, 0, ledger.runs.cuts(GROUPS))[1], [1, 2, 3])
    assert [sum(map(count_rows, part)) for part in parts] == [5, 10, 15]


def test_a_run_of_several_files_is_one_run_again() -> None:
    ledger = Ledger(timed=True)
    files = [ledger.runs.write(segment([(5 << 61) + n] * 10, [0] * 10, id=list(range(10)))) for n in range(4)]
    ledger.spine = Spine(((*(Spine().insert(file).runs[0][0] for file in files),),))
    cuts = ledger.runs.cuts(GROUPS)
    rest, runs = take_out(ledger.spine, 5, cuts)
    assert put_back(rest, put_together(cut(runs, [1, 1, 1.5]))) == ledger.spine
