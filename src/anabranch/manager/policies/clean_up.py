"""Clean-up: deliver results that spilling has postponed while the query goes on (paper 1, section 4.4).

Postponed results are delivered when somebody waits for them, when a batch is quiet, or when the input has ended
(`ending`).
Groups of a grouping are rotated beside that (paper 2, section 6): what arrives for them waits until they are cleaned
up, so in every step the longest spilled of them are, as many as it takes for each to have its turn within `ROTATION`
steps.

Every run has this policy, after those that it was given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch.manager.actions import CleanUpGroups
from anabranch.manager.memory.memory_use import allowed_bytes
from anabranch.manager.snapshot import OperatorView, ProcessorView, Snapshot

ON_REQUEST = "it was asked for"
ENDED = "the input has ended"
MIGRATING = "its query migrates to another plan"
QUIET_BATCH = "the batch before was quiet"
THEIR_TURN = "it is their turn"

# State that is read in one step of clean-up, per processor, if that is not more than its memory; so much in any case,
# since a step takes its time whatever it reads; and in a quiet batch that does it in passing.
CLEAN_UP_BYTES = 64 << 20
LEAST_CLEAN_UP_BYTES = 8 << 20
QUIET_BYTES = 8 << 20
# A batch is quiet if it brings less than this share of what batches bring on average.
QUIET = 0.25
# State is brought back only as far as this share of the memory that it may take, so that it is not pushed out again at
# once.
ROOM = 0.7
# Steps within which every spilled group of a grouping has its turn.
ROTATION = 16


@dataclass(frozen=True, slots=True)
class CleanUpInPassing:
    """Clean up some of what is owed in the next step, if there is an occasion, and groups of groupings in turn."""

    def decide(self, snapshot: Snapshot) -> Iterator[CleanUpGroups]:
        """Yield the clean-ups of the next step."""
        yield from self._on_occasion(snapshot)
        for processor in snapshot.processors:
            for view in processor.operators:
                if view.debt is not None and snapshot.plan.operators[view.operator].grouping is not None:
                    yield _turn(processor, view)

    def _on_occasion(self, snapshot: Snapshot) -> Iterator[CleanUpGroups]:
        if snapshot.awaiting is not None:
            yield from choose(snapshot, ON_REQUEST, back=True)
        elif snapshot.arrived < QUIET * snapshot.usual:
            yield from choose(snapshot, QUIET_BATCH, back=True, quiet=True)


def choose(snapshot: Snapshot, reason: str, *, back: bool, quiet: bool = False) -> Iterator[CleanUpGroups]:
    """Choose clean-ups for the next step: per processor, as many groups of the lowest operator that owes as one step
    should read.

    What is cleaned up is brought `back` if it fits into memory and that is wanted. In a `quiet` batch only that is
    cleaned up. If somebody awaits results, only groups that were spilled before they asked.
    """
    for processor in snapshot.processors:
        most = max(processor.memory or CLEAN_UP_BYTES, LEAST_CLEAN_UP_BYTES)
        left = QUIET_BYTES if quiet else min(most, CLEAN_UP_BYTES)
        room = _room(processor) if back else 0
        for view in processor.operators:
            groups, fitting = _smallest(view, snapshot.awaiting, left, room, only_fitting=quiet)
            if groups:
                yield CleanUpGroups(processor.processor, view.operator, groups, fitting, reason)
                break  # what it owes to those above comes first


def everything_spilled_of_groupings(snapshot: Snapshot) -> Iterator[CleanUpGroups]:
    """All groups of groupings that have spilled state, to be answered with the end of the input."""
    for processor in snapshot.processors:
        for view in processor.operators:
            if view.spilled is not None and snapshot.plan.operators[view.operator].grouping is not None:
                groups = tuple(view.spilled.numbers().tolist())
                yield CleanUpGroups(processor.processor, view.operator, groups, (), ENDED)


def _smallest(
    view: OperatorView, spilled_by: int | None, most: int, room: int, *, only_fitting: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The smallest groups that owe, up to `most` bytes but at least one; and those of them that fit into the room."""
    if view.debt is None:
        return (), ()
    groups = view.debt.owing.numbers()
    if spilled_by is not None:
        groups = groups[view.debt.first_spilled[groups] <= spilled_by]
    sizes = _sizes(view)
    order = groups[np.argsort(sizes[groups], kind="stable")]
    total = np.cumsum(sizes[order])
    fitting = total <= room
    taken = total <= most
    taken[:1] = True
    if only_fitting:
        taken &= fitting
    return tuple(order[taken].tolist()), tuple(order[taken & fitting].tolist())


def _turn(processor: ProcessorView, view: OperatorView) -> CleanUpGroups:
    """The groups of a grouping whose turn it is: those that were spilled the longest."""
    assert view.debt is not None, "nothing is owed"
    numbers = view.debt.owing.numbers()
    order = numbers[np.argsort(view.debt.first_spilled[numbers], kind="stable")]
    turn = tuple(order[: -(-len(order) // ROTATION)].tolist())
    fits = int(view.debt.bytes[list(turn)].sum()) <= _room(processor)
    return CleanUpGroups(processor.processor, view.operator, turn, turn if fits else (), THEIR_TURN)


def _sizes(view: OperatorView) -> NDArray[np.int64]:
    """How many bytes each group has, on disk and active."""
    assert view.debt is not None, "nothing is owed"
    return view.debt.bytes + view.statistics.dense(len(view.debt.bytes)).bytes


def _room(processor: ProcessorView) -> int:
    """How many bytes may come back."""
    if processor.memory is None:
        return 1 << 62
    unspillable = processor.unspillable_bytes
    for_spillable = allowed_bytes(processor.memory, unspillable) - unspillable
    return max(int(ROOM * for_spillable) - (processor.active_bytes - unspillable), 0)
