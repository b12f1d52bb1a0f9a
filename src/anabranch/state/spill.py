"""Spilling partition groups and bringing them together again: edits of what is listed, nothing else.

`spill` ends the active generation of some groups. `all_generations` lists what clean-up has to join across: the
spilled generations and, as the last, what is active or retired. `reunite` follows a clean-up: nothing is owed any more,
so all state of a group is one, active again or as a single spilled generation.

While a group has spilled state, rows of it that expire are kept if they can still meet that state (`spared`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from anabranch.state.generation import Generation, spilled_groups
from anabranch.state.groups import GroupSet
from anabranch.state.manifest import OperatorState
from anabranch.state.spine import Cuts, Slice, Spared, Spine, slices_of_groups
from anabranch.state.store import Json

# The spines at an operator's ports, and the rest of its state.
Held = tuple[list[Spine], OperatorState]


@dataclass(frozen=True, slots=True)
class CleanUp:
    """The groups of an operator that are to be cleaned up, and those of them that are to be active afterwards."""

    groups: GroupSet
    back: GroupSet

    def to_json(self) -> Json:
        """As stored."""
        return {"count": self.groups.count, "groups": self.groups.to_text(), "back": self.back.to_text()}

    @classmethod
    def from_json(cls, data: Json) -> CleanUp:
        """The inverse of `to_json`."""
        return cls(*(GroupSet.from_text(data["count"], data[name]) for name in ("groups", "back")))


def spill(
    spines: Sequence[Spine], state: OperatorState, groups: GroupSet, step: int, since: int | None, cuts: Cuts
) -> Held:
    """Take some groups out of the active state, as a generation that ends with this step."""
    ports = tuple(slices_of_groups(_everything(spine), groups, cuts) for spine in spines)
    if not any(ports):
        return list(spines), state
    rest = GroupSet.all(groups.count) - groups
    produced = state.statistics.dense(groups.count)[1][groups.numbers()]
    generation = Generation(step, groups, since, ports, tuple(produced.tolist()))
    kept = state.retired & rest if state.retired else None
    after = OperatorState((*state.generations, generation), state.statistics.of_groups(rest), kept or None)
    return [spine.of_groups(rest, cuts) for spine in spines], after


def all_generations(
    spines: Sequence[Spine], state: OperatorState, groups: GroupSet, cuts: Cuts
) -> list[tuple[tuple[Slice, ...], ...]]:
    """Per generation of some groups, its slices at each port; the active one is the last."""
    spilled = [generation.of_groups(groups, cuts).ports for generation in state.generations]
    return [*spilled, tuple(slices_of_groups(_everything(spine), groups, cuts) for spine in spines)]


def reunite(
    spines: Sequence[Spine],
    state: OperatorState,
    groups: GroupSet,
    cuts: Cuts,
    *,
    purge: Sequence[int | None],
    stays: tuple[int, int | None] | None,
) -> Held:
    """All state of some groups as one, without what is older than `purge`, per port.

    It is active from now on; or, if it `stays` spilled, a generation of a step with its `since`.
    """
    rest = GroupSet.all(groups.count) - groups
    alive = []
    for port, slices in enumerate(zip(*all_generations(spines, state, groups, cuts), strict=True)):
        pieces = [piece for generation in slices for piece in generation]
        alive.append(tuple(piece for piece in pieces if not _is_older(piece, purge[port])))
    generations = [part for g in state.generations if (part := g.of_groups(rest, cuts)).groups]
    remaining = [spine.of_groups(rest, cuts) for spine in spines]
    retired = (state.retired & rest if state.retired else None) or None
    if stays is None:
        pairs = zip(remaining, alive, strict=True)
        back = [replace(spine, runs=(*spine.runs, *((piece,) for piece in own))) for spine, own in pairs]
        return back, OperatorState(tuple(generations), state.statistics, retired)
    if any(alive):
        generations.append(Generation(stays[0], groups, stays[1], tuple(alive)))
    return remaining, OperatorState(tuple(generations), state.statistics.of_groups(rest), retired)


def drop_expired(state: OperatorState, purge: Sequence[int | None], cuts: Cuts) -> OperatorState:
    """The state without spilled rows that have expired and have nobody left to meet.

    What is older than `purge`, per port, meets nothing that is still to come. In a group that owes results it has still
    to meet what is there; else it is of no use any more.
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
        present = present_groups((piece for slices in ports for piece in slices), owing.count, cuts)
        if present:
            rest = generation.of_groups(present, cuts)
            kept.append(replace(rest, ports=ports))
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
    found = GroupSet(count, 0)
    for piece in slices:
        found |= GroupSet.of(count, np.flatnonzero(piece_rows(piece, cuts)))
    return found


def group_bytes(generations: Iterable[Generation], count: int, cuts: Cuts) -> NDArray[np.int64]:
    """How many bytes each group has in some generations."""
    sizes = np.zeros(count)
    for piece in (piece for generation in generations for slices in generation.ports for piece in slices):
        sizes += piece_rows(piece, cuts) * (piece.file.bytes / max(piece.file.rows, 1))
    return np.rint(sizes).astype(np.int64)


def piece_rows(piece: Slice, cuts: Cuts) -> NDArray[np.int64]:
    """How many rows of a slice each group has."""
    rows = np.diff(cuts(piece.file).clip(piece.start, piece.stop))
    return rows if piece.groups is None else rows * piece.groups.mask()


def _everything(spine: Spine) -> Iterable[Slice]:
    yield from spine.slices()
    yield from spine.retired


def _is_older(piece: Slice, threshold: int | None) -> bool:
    return threshold is not None and piece.file.max_ts is not None and piece.file.max_ts < threshold
