"""The whole answer, batch after batch: state in spines, merges, purges, processors, spills, moves and clean-ups.

However the input is cut into batches, ordered inside a batch, grouped and spread over processors, and whatever is
merged, purged, spilled, moved and cleaned up on the way, the union of all results is the answer on the complete input.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.kernel.join.combinations import UNBOUNDED, JoinShape
from anabranch.kernel.join.multiway import join_deltas, join_generations
from anabranch.plan.placement import even_placement, moved
from anabranch.plan.routing import Routing
from anabranch.state.groups import GroupSet, group_bits
from anabranch.state.manifest import Manifest, OperatorState
from anabranch.state.partition import extract, install
from anabranch.state.runs import merge, merge_choice
from anabranch.state.runs.expiry import keep_alive
from anabranch.state.runs.merge import merge_segments
from anabranch.state.runs.slice import Cuts, Slice
from anabranch.state.runs.spine import Spine
from anabranch.state.share import list_by_owner
from anabranch.state.spill import (
    CleanedGroups,
    all_generations,
    drop_expired,
    leave_spilled,
    present_groups,
    reunite,
    spared,
    spill,
)
from anabranch.state.statistics import Statistics
from tests.kernel.join.streams import (
    Answer,
    Join,
    Row,
    collect,
    duckdb,
    joins,
    nested_loops,
    punctual_joins,
    share_with_results,
)
from tests.oracle.profiles import examples
from tests.state.segments import MemoryRuns

BATCHES = 6


@pytest.fixture(autouse=True, scope="module")
def eager_merges() -> Iterator[None]:
    """Merge from the second run on, in small files, so that a handful of rows sees half-done merges."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge_choice, "FAN_IN", 2)
        patch.setattr(merge_choice, "SMALLEST_TIER", 1)
        patch.setattr(merge, "MAX_FILE_ROWS", 4)
        yield


@dataclass(frozen=True)
class Setting:
    """What must not matter."""

    seed: int = 0
    groups: int = 1
    processors: int = 1
    shift: int = 0
    budget: int = 3
    chunk_rows: int = 1_000
    gather_rows: int = 1_000
    lateness: tuple[int, ...] | None = None
    max_span: int | None = None
    rescale: int | None = None
    spills: int = 0
    moves: int = 0


settings_that_must_not_matter = st.builds(
    Setting,
    seed=st.integers(0, 99),
    groups=st.sampled_from([4, 16, 256]),
    processors=st.integers(1, 4),
    shift=st.integers(0, 255),
    budget=st.sampled_from([0, 1, 3, 10**6]),
    chunk_rows=st.sampled_from([1, 5, 1_000]),
    gather_rows=st.sampled_from([1, 10, 1_000]),
    max_span=st.none() | st.integers(1, 10),
    rescale=st.none() | st.integers(1, 4),
)
spilling_settings = st.builds(replace, settings_that_must_not_matter, spills=st.integers(1, 2**32))
moving_settings = st.builds(replace, spilling_settings, moves=st.integers(1, 2**32))


def run(join: Join, setting: Setting) -> tuple[Answer, int]:
    """The union of all batches' results, and how many rows were purged; lots are batches."""
    runs = MemoryRuns()
    shape = join.shape(chunk_rows=setting.chunk_rows, gather_rows=setting.gather_rows)
    placement = place(setting, setting.processors)
    manifests = [Manifest.empty(len(join.windows), 1)] * setting.processors
    newest: list[int | None] = [None] * len(join.windows)
    answer: Answer = Counter()
    inserted = 0
    chance = random.Random(setting.spills)
    cuts = runs.cuts(setting.groups)
    windows = [None if window == UNBOUNDED else window for window in join.windows]
    for batch in range(BATCHES):
        if setting.rescale is not None and batch == BATCHES // 2:
            placement = place(setting, setting.rescale)
            manifests = list_anew(manifests, placement, setting.rescale, cuts)
        if setting.moves:
            move(random.Random(f"{setting.moves} {batch}"), manifests, placement, cuts)
        thresholds = purge_thresholds(join, newest, setting.lateness)
        for processor, manifest in enumerate(manifests):
            groups = owned_by(placement, processor)

            def arrives(row: Row, batch: int = batch, owned: set[int] = groups) -> bool:
                return row.lot == batch and join.hash(row.key) >> (64 - group_bits(setting.groups)) in owned

            deltas = [join.segment(i, arrives, setting.seed + batch) for i in range(len(join.windows))]
            state = manifest.operators[0]
            needed = spared(state, windows)
            spines = [spine.purge(t, needed, cuts) for spine, t in zip(manifest.spines, thresholds, strict=True)]
            spines = [
                spine.consolidate(setting.budget, runs.open, runs.write, t, setting.max_span, needed)
                for spine, t in zip(spines, thresholds, strict=True)
            ]
            old = [[runs.open(piece) for piece in spine.slices()] for spine in spines]
            answer += collect(join, shape, join_deltas(shape, old, deltas))
            for i, delta in enumerate(deltas):
                inserted += len(delta)
                kept = keep_alive(delta, thresholds[i], needed)
                if kept is not None:
                    spines[i] = spines[i].insert(runs.write(kept))
                spines[i] = spines[i].compact(
                    setting.budget, runs.open, runs.write, thresholds[i], setting.max_span, needed
                )
            if setting.spills:
                spines, state = adapt(chance, setting.groups, spines, state, batch, cuts)
                cleaned, results = clean_up(join, shape, chance, runs, cuts, (spines, state), thresholds, batch)
                answer += results
                spines, state = cleaned
                counted = with_statistics(spines, state, cuts)
                state = replace(state, generations=drop_expired(counted, thresholds, cuts).generations)
            manifests[processor] = Manifest.from_json(Manifest(tuple(spines), (state,)).to_json())
        for i, rows in enumerate(join.rows):
            seen = [row.ts for row in rows if row.lot <= batch]
            newest[i] = max(seen, default=None)
    for manifest in manifests:
        held = list(manifest.spines), manifest.operators[0]
        (spines, state), results = clean_up(join, shape, None, runs, cuts, held, [None] * len(join.windows), BATCHES)
        assert not owing(spines, state, cuts)
        answer += results
    return answer, inserted - sum(manifest.rows for manifest in manifests)


def adapt(
    chance: random.Random, groups: int, spines: list[Spine], state: OperatorState, step: int, cuts: Cuts
) -> tuple[list[Spine], OperatorState]:
    """Spill some groups, or all, or none."""
    share = chance.choice([0, 0.3, 0.6, 1])
    chosen = GroupSet.of(groups, (g for g in range(groups) if chance.random() < share))
    before = sum(spine.rows for spine in spines)
    spines, state = spill(spines, state, chosen, step, None, cuts)
    assert sum(spine.rows for spine in spines) <= before
    return spines, state


def owing(spines: list[Spine], state: OperatorState, cuts: Cuts) -> GroupSet | None:
    """The groups that owe results."""
    return with_statistics(spines, state, cuts).owing()


def with_statistics(spines: list[Spine], state: OperatorState, cuts: Cuts) -> OperatorState:
    """The state with what a processor knows of its groups: which of them are active, and which have retired rows."""
    if not state.generations:
        return state
    count = state.generations[0].groups.count
    active = present_groups((piece for spine in spines for piece in spine.slices()), count, cuts).mask().astype(int)
    retired = present_groups((piece for spine in spines for piece in spine.retired), count, cuts)
    shares = active.astype(float)
    known = Statistics(np.arange(len(active)), active, active, shares, shares, active[:, None]).present()
    return replace(state, statistics=known, retired=retired or None)


def clean_up(
    join: Join,
    shape: JoinShape,
    chance: random.Random | None,
    runs: MemoryRuns,
    cuts: Cuts,
    held: tuple[list[Spine], OperatorState],
    thresholds: list[int | None],
    step: int,
) -> tuple[tuple[list[Spine], OperatorState], Answer]:
    """Clean up some of the groups that owe results, or all of them if it is not left to chance."""
    owed = owing(*held, cuts)
    if not owed or (chance is not None and chance.random() < 0.5):
        return held, Counter()
    chosen = owed
    if chance is not None:
        chosen = GroupSet.of(owed.count, (g for g in owed.numbers() if chance.random() < 0.7))
    generations = [
        [[runs.open(piece) for piece in slices] for slices in ports] for ports in all_generations(*held, chosen, cuts)
    ]
    results = collect(join, shape, join_generations(shape, generations))
    ports: list[Slice | None] = []
    for port, threshold in enumerate(thresholds):
        rows = [segment.only_selected() for generation in generations for segment in generation[port]]
        merged = merge_segments(rows, threshold) if rows else None
        ports.append(None if merged is None else Slice(file := runs.write(merged), 0, file.rows))
    nothing = (0,) * len(chosen)
    now = CleanedGroups(chosen, tuple(ports), nothing, nothing)
    if chance is None or chance.random() < 0.5:
        return leave_spilled(*held, now, cuts, step, None), results
    return reunite(*held, now, cuts), results


def place(setting: Setting, processors: int) -> list[int]:
    """An even placement, turned round so that ranges wrap and a processor owns several."""
    placement = even_placement(setting.groups, processors)
    shift = setting.shift % setting.groups
    return [*placement[shift:], *placement[:shift]]


def owned_by(placement: list[int], processor: int) -> set[int]:
    return {group for group, owner in enumerate(placement) if owner == processor}


def list_anew(manifests: list[Manifest], placement: list[int], processors: int, cuts: Cuts) -> list[Manifest]:
    """The same state for another number of processors; no rows are moved."""
    owners = [0] * len(manifests[0].spines)
    return list(list_by_owner(manifests, [Routing(tuple(placement))], owners, processors, cuts))


def move(chance: random.Random, manifests: list[Manifest], placement: list[int], cuts: Cuts) -> None:
    """Move some groups from a processor to another one, a few times."""
    owners = [0] * len(manifests[0].spines)
    for _ in range(chance.choice([0, 1, 3])):
        sender, receiver = (chance.randrange(len(manifests)) for _ in range(2))
        share = chance.choice([0.2, 0.6, 1])
        groups = {group for group in owned_by(placement, sender) if chance.random() < share}
        if sender != receiver and groups:
            rows, chosen = sum(m.rows for m in manifests), GroupSet.of(len(placement), groups)
            manifests[sender], part = extract(manifests[sender], [0], chosen, owners, cuts)
            manifests[receiver] = install(manifests[receiver], part)
            placement[:] = moved(tuple(placement), groups, receiver)
            assert sum(m.rows for m in manifests) == rows


def purge_thresholds(join: Join, newest: list[int | None], lateness: tuple[int, ...] | None) -> list[int | None]:
    """Rows of i older than this meet no row that is still to come: those are no older than their input's watermark."""
    thresholds: list[int | None] = []
    for i, window in enumerate(join.windows):
        others = [j for j in range(len(newest)) if j != i]
        never = window is None or window == UNBOUNDED or lateness is None
        if never or any(join.windows[j] is None or newest[j] is None for j in others):
            thresholds.append(None)
        else:
            thresholds.append(min(newest[j] - lateness[j] for j in others) - window)
    return thresholds


@examples(80)
@given(join=joins(lots=BATCHES), setting=settings_that_must_not_matter)
def test_the_union_of_all_batches_is_the_answer_whatever_must_not_matter(join: Join, setting: Setting) -> None:
    answer, purged = run(join, setting)
    assert answer == nested_loops(join)
    assert purged == 0


@examples(25)
@given(join=joins(lots=BATCHES), setting=settings_that_must_not_matter)
def test_duckdb_agrees(join: Join, setting: Setting) -> None:
    assert run(join, setting)[0] == duckdb(join)


@examples(25)
@given(join=joins(lots=1), setting=settings_that_must_not_matter, data=st.data())
def test_the_same_rows_in_other_batches_give_the_same_answer(join: Join, setting: Setting, data: st.DataObject) -> None:
    at_once, _ = run(join, Setting())
    lots = st.integers(0, BATCHES - 1)
    other = replace(join, rows=tuple(tuple(row._replace(lot=data.draw(lots)) for row in rows) for rows in join.rows))
    assert run(other, setting)[0] == at_once


@examples(60)
@given(case=punctual_joins(lots=BATCHES), setting=settings_that_must_not_matter)
def test_purging_what_no_punctual_row_can_meet_changes_nothing(
    case: tuple[Join, tuple[int, ...]], setting: Setting
) -> None:
    join, lateness = case
    answer, _ = run(join, replace(setting, lateness=lateness))
    assert answer == nested_loops(join)


@examples(75)
@given(join=joins(lots=BATCHES), setting=spilling_settings)
def test_spilling_any_groups_at_any_time_postpones_results_and_loses_none(join: Join, setting: Setting) -> None:
    assert run(join, setting)[0] == nested_loops(join)


@examples(75)
@given(case=punctual_joins(lots=BATCHES), setting=spilling_settings)
def test_rows_that_spilled_state_has_still_to_meet_outlive_their_time(
    case: tuple[Join, tuple[int, ...]], setting: Setting
) -> None:
    join, lateness = case
    assert run(join, replace(setting, lateness=lateness))[0] == nested_loops(join)


@examples(30)
@given(join=joins(lots=BATCHES), setting=spilling_settings)
def test_duckdb_agrees_when_groups_are_spilled(join: Join, setting: Setting) -> None:
    assert run(join, setting)[0] == duckdb(join)


@examples(100)
@given(join=joins(lots=BATCHES), setting=moving_settings)
def test_moving_any_groups_at_any_time_changes_nothing(join: Join, setting: Setting) -> None:
    assert run(join, setting)[0] == nested_loops(join)


@examples(60)
@given(case=punctual_joins(lots=BATCHES), setting=moving_settings)
def test_groups_that_move_are_purged_as_if_they_had_stayed(
    case: tuple[Join, tuple[int, ...]], setting: Setting
) -> None:
    join, lateness = case
    assert run(join, replace(setting, lateness=lateness))[0] == nested_loops(join)


@examples(20)
@given(join=joins(lots=BATCHES), setting=moving_settings)
def test_duckdb_agrees_when_groups_move(join: Join, setting: Setting) -> None:
    assert run(join, setting)[0] == duckdb(join)


def test_most_joins_that_are_tried_have_results() -> None:
    assert share_with_results(joins(lots=BATCHES)) > 0.6
    assert share_with_results(punctual_joins(lots=BATCHES).map(lambda case: case[0])) > 0.5


def test_purging_does_happen() -> None:
    rows = tuple(Row(0, ts, ts // 10) for ts in range(0, 60, 2))
    join = Join((5, 5, 0), (rows,) * 3)
    answer, purged = run(join, Setting(lateness=(0, 0, 0), budget=10**6))
    assert answer == duckdb(join)
    assert purged >= 2 * len(rows)
