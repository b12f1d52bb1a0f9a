"""Spilling partition groups and bringing them back: edits of which slices are listed where, nothing else.

`spill` ends the active generation of some groups. `all_generations` lists what clean-up has to join across: the
spilled generations and, as the last, what is active or retired. After that nothing is owed any more, and clean-up,
which has read all rows of its groups, has written them as one run per port: they are active again (`reunite`), or a
single spilled generation (`leave_spilled`). Files that only they were kept for can go.

While a group has spilled state, its rows that expire are kept if they can still meet that state (`spared`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from anabranch.state.generation import Generation, spilled_groups
from anabranch.state.groups import GroupSet
from anabranch.state.manifest import OperatorState
from anabranch.state.runs.expiry import Spared
from anabranch.state.runs.slice import Cuts, Slice, slices_of_groups
from anabranch.state.runs.spine import Spine
from anabranch.state.store import Json

# The spines at an operator's ports, and the rest of its state.
FullState = tuple[list[Spine], OperatorState]


@dataclass(frozen=True, slots=True)
class CleanUp:
    """The groups of an operator that are to be cleaned up, those of them that are to be active afterwards, and why."""

    groups: GroupSet
    back: GroupSet
    reason: str = ""

    def to_json(self) -> Json:
        """As stored."""
        texts = {"groups": self.groups.to_text(), "back": self.back.to_text()}
        return {"count": self.groups.count, **texts, "reason": self.reason}

    @classmethod
    def from_json(cls, data: Json) -> CleanUp:
        """The inverse of `to_json`."""
        groups, back = (GroupSet.from_text(data["count"], data[name]) for name in ("groups", "back"))
        return cls(groups, back, data["reason"])


def spill(
    spines: Sequence[Spine], state: OperatorState, groups: GroupSet, step: int, since: int | None, cuts: Cuts
) -> FullState:
    """Take some groups out of the active state, as a generation that ends with this step."""
    ports = tuple(slices_of_groups(_everything(spine), groups, cuts) for spine in spines)
    sizes = bytes_by_group((piece for slices in ports for piece in slices), groups.count, cuts)
    groups = groups & GroupSet.of(groups.count, np.flatnonzero(sizes))
    if not groups:
        return list(spines), state
    rest, numbers = GroupSet.all(groups.count) - groups, groups.numbers()
    produced = state.statistics.dense(groups.count).produced[numbers]
    generation = Generation(step, groups, since, ports, tuple(sizes[numbers].tolist()), tuple(produced.tolist()))
    after = replace(
        state,
        generations=(*state.generations, generation),
        statistics=state.statistics.of_groups(rest),
        retired=_without(state, groups),
    )
    return [spine.of_groups(rest, cuts) for spine in spines], after


def all_generations(
    spines: Sequence[Spine], state: OperatorState, groups: GroupSet, cuts: Cuts
) -> list[tuple[tuple[Slice, ...], ...]]:
    """Per generation of some groups, its slices at each port; the active one is the last."""
    spilled = [generation.of_groups(groups, cuts).ports for generation in state.generations]
    return [*spilled, tuple(slices_of_groups(_everything(spine), groups, cuts) for spine in spines)]


@dataclass(frozen=True, slots=True)
class CleanedGroups:
    """The state of some groups after clean-up. `ports` has one run per port, None if it is empty; `sizes` are the bytes
    and `produced` the results so far of each group, by ascending group."""

    groups: GroupSet
    ports: tuple[Slice | None, ...]
    sizes: tuple[int, ...]
    produced: tuple[int, ...]


def reunite(spines: Sequence[Spine], state: OperatorState, cleaned: CleanedGroups, cuts: Cuts) -> FullState:
    """Put all generations of the cleaned groups together as one, which is active."""
    remaining, kept = _leave(spines, state, cleaned.groups, cuts)
    pairs = zip(remaining, cleaned.ports, strict=True)
    back = [spine if own is None else replace(spine, runs=(*spine.runs, (own,))) for spine, own in pairs]
    return back, replace(kept, statistics=state.statistics)


def leave_spilled(
    spines: Sequence[Spine], state: OperatorState, cleaned: CleanedGroups, cuts: Cuts, step: int, since: int | None
) -> FullState:
    """Put all generations of the cleaned groups together as one, which stays spilled and ends with a step."""
    remaining, kept = _leave(spines, state, cleaned.groups, cuts)
    if not any(cleaned.ports):
        return remaining, kept
    ports = tuple(() if own is None else (own,) for own in cleaned.ports)
    generation = Generation(step, cleaned.groups, since, ports, cleaned.sizes, cleaned.produced)
    return remaining, replace(kept, generations=(*kept.generations, generation))


def _leave(spines: Sequence[Spine], state: OperatorState, groups: GroupSet, cuts: Cuts) -> FullState:
    """The state without some groups."""
    rest = GroupSet.all(groups.count) - groups
    generations = [part for g in state.generations if (part := g.of_groups(rest, cuts)).groups]
    kept = replace(
        state,
        generations=tuple(generations),
        statistics=state.statistics.of_groups(rest),
        retired=_without(state, groups),
    )
    return [spine.of_groups(rest, cuts) for spine in spines], kept


def _without(state: OperatorState, groups: GroupSet) -> GroupSet | None:
    """The groups that have retired rows, without some; None if none are left."""
    return (state.retired - groups if state.retired else None) or None


def drop_expired(state: OperatorState, purge: Sequence[int | None], cuts: Cuts) -> OperatorState:
    """Drop spilled rows that have expired and can be part of no result any more.

    A row that is older than `purge`, per port, meets no later row. In a group that owes results it has still to meet
    rows that are in the state already; otherwise it is of no use any more.
    """
    owing = state.owing()
    if owing is None:
        return state
    kept = []
    for generation in state.generations:
        ports = tuple(
            tuple(
                part
                for piece in slices
                if (part := piece.of_groups(owing, cuts) if _is_older(piece, threshold) else piece) is not None
            )
            for slices, threshold in zip(generation.ports, purge, strict=True)
        )
        if ports == generation.ports:
            kept.append(generation)
            continue
        sizes = bytes_by_group((piece for slices in ports for piece in slices), owing.count, cuts)
        present = generation.groups & GroupSet.of(owing.count, np.flatnonzero(sizes))
        if present:
            rest = generation.of_groups(present, cuts)
            kept.append(replace(rest, ports=ports, sizes=tuple(sizes[present.numbers()].tolist())))
    return replace(state, generations=tuple(kept))


def spared(state: OperatorState, windows: Sequence[int | None]) -> Spared | None:
    """The rows that must outlive their time, given the windows of an operator's ports; None if there are none.

    A row can only meet spilled rows that are in their windows when it comes, so a row that is newer than all of them
    and their windows meets none. For a grouping, whose every row may be needed, all windows are None.
    """
    groups = spilled_groups(state.generations)
    if groups is None:
        return None
    until = None
    for generation in state.generations:
        for slices, window in zip(generation.ports, windows, strict=True):
            newest = [piece.file.max_ts for piece in slices]
            if slices and (window is None or None in newest):
                return Spared(groups)
            reached = [ts + window for ts in newest if ts is not None and window is not None]
            until = max(reached if until is None else [until, *reached], default=until)
    return Spared(groups, until)


def present_groups(slices: Iterable[Slice], count: int, cuts: Cuts) -> GroupSet:
    """The groups that have rows in some slices."""
    return GroupSet.of(count, np.flatnonzero(bytes_by_group(slices, count, cuts)))


def rows_by_group(slices: Iterable[Slice], count: int, cuts: Cuts) -> NDArray[np.int64]:
    """How many rows of some slices each group has."""
    counts = np.zeros(count, dtype=np.int64)
    for piece in slices:
        rows = np.diff(cuts(piece.file).clip(piece.start, piece.stop))
        counts += rows if piece.groups is None else rows * piece.groups.mask()
    return counts


def bytes_by_group(slices: Iterable[Slice], count: int, cuts: Cuts) -> NDArray[np.int64]:
    """How many bytes of some slices each group has; at least one, if it has a row."""
    sizes = np.zeros(count)
    for piece in slices:
        rows = np.diff(cuts(piece.file).clip(piece.start, piece.stop))
        counts = rows if piece.groups is None else rows * piece.groups.mask()
        sizes += counts * (piece.file.bytes / max(piece.file.rows, 1))
    return np.ceil(sizes).astype(np.int64)


def spilled_bytes(generations: Iterable[Generation], count: int) -> NDArray[np.int64]:
    """How many bytes each group has in some generations."""
    sizes = np.zeros(count, dtype=np.int64)
    for generation in generations:
        sizes += generation.dense(generation.sizes)
    return sizes


def _everything(spine: Spine) -> Iterable[Slice]:
    yield from spine.slices()
    yield from spine.retired


def _is_older(piece: Slice, threshold: int | None) -> bool:
    return threshold is not None and piece.file.max_ts is not None and piece.file.max_ts < threshold
