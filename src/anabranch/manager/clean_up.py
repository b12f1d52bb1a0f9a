"""What is owed and what is behind: which spilled groups are to be cleaned up next, and what was.

Results that spilling has postponed come when clean-up is asked for, when the input ends, or when a batch is quiet.
Groups of a grouping are rotated beside that (paper 2, section 6): what arrives for them waits until they are cleaned
up, so in every step the longest spilled of them are, as many as it takes for each to have its turn within `ROTATION`
steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch.manager.budgets import Memory
from anabranch.manager.debt import owed_results, results_out, waiting_rows
from anabranch.manager.memory_use import MemoryUse, allowed_bytes
from anabranch.manager.operators import Known
from anabranch.observe.events import EventKind, EventLog
from anabranch.observe.numbers import format_bytes
from anabranch.plan.watermark import Behind
from anabranch.state.generation import spilled_groups
from anabranch.state.groups import GroupSet
from anabranch.state.manifest import Manifest
from anabranch.state.report import Report
from anabranch.state.spill import CleanUp, spilled_bytes

# State that is read in one step of clean-up, per processor, if that is not more than its memory; so much in any case,
# since a step takes its time whatever it reads; and in a quiet batch that does it in passing.
CLEAN_UP_BYTES = 64 << 20
LEAST_CLEAN_UP_BYTES = 8 << 20
QUIET_BYTES = 8 << 20
# State is brought back only as far as this share of the memory that it may take, so that it is not pushed out again at
# once.
ROOM = 0.7
# Steps within which every spilled group of a grouping has its turn.
ROTATION = 16


@dataclass(frozen=True, slots=True)
class CleanedUp:
    """What a step has cleaned up, by operator; the rows of answers, if that was all it did, -1 if unknown."""

    what: Mapping[int, CleanUp]
    answered: int | None = None


class Cleaning:
    """What there is to clean up in a run."""

    def __init__(self, operators: Sequence[Known], groups: int, memory: Memory, events: EventLog) -> None:
        """Of a plan's operators, with so many partition groups."""
        self._operators = operators
        self._groups = groups
        self._memory = memory
        self._events = events

    def behind(self, manifests: Sequence[Manifest]) -> Behind:
        """What is behind the watermarks, since it was spilled or is held back; None is a time that is not known."""
        owed: dict[int, int | None] = {}
        held: dict[int, int | None] = {}
        for operator in self._operators:
            since: list[int | None] = []
            for manifest in manifests:
                state = manifest.operators[operator.number]
                owing = state.owing()
                if owing is not None:
                    frozen = operator.grouping is not None
                    since += [g.since for g in state.generations if frozen or g.groups & owing]
            if since:
                known = [time for time in since if time is not None]
                owed[operator.number] = min(known) if len(known) == len(since) else None
            states = [manifest.operators[operator.number] for manifest in manifests]
            if operator.grouping is not None:
                waiting = [time for state in states for _, time in state.overdue]
            else:
                waiting = [piece.file.min_ts for state in states for slices in state.held for piece in slices]
            if waiting:
                known = [time for time in waiting if time is not None]
                held[operator.number] = min(known) if len(known) == len(waiting) else None
        return Behind(owed, held)

    def owes(self, manifests: Sequence[Manifest], settled: Sequence[int | None], spilled_by: int | None = None) -> bool:
        """Whether any result is owed, by groups that were spilled up to a step if one is given."""
        return any(self._owed(operator, m, settled, spilled_by) for operator in self._operators for m in manifests)

    def memory_uses(self, manifests: Sequence[Manifest], settled: Sequence[int | None]) -> tuple[MemoryUse, ...]:
        """What the memory of each processor is used for, and what it owes for lack of it."""
        return tuple(self._memory_use(p, manifest, settled) for p, manifest in enumerate(manifests))

    def _memory_use(self, processor: int, manifest: Manifest, settled: Sequence[int | None]) -> MemoryUse:
        owing_groups, owed, at_most = 0, 0, False
        for operator in self._operators:
            owing = self._owed(operator, manifest, settled)
            if owing is None:
                continue
            state = manifest.operators[operator.number]
            owing_groups += len(owing)
            at_most |= not operator.unbounded
            if operator.grouping is None:
                owed += owed_results(state, self._groups, len(operator.ports))
            else:
                owed += waiting_rows(state, self._groups, owing)
        return MemoryUse(
            processor,
            self._memory.of(processor),
            manifest.bytes,
            self._unspillable(manifest),
            tuple(operator.name for operator in self._operators if not operator.spillable),
            manifest.spilled_bytes,
            owing_groups,
            owed,
            at_most,
            sum(map(results_out, manifest.operators)),
        )

    def _unspillable(self, manifest: Manifest) -> int:
        fixed = [manifest.operators[operator.number] for operator in self._operators if not operator.spillable]
        return sum(int(state.statistics.bytes.sum()) for state in fixed)

    def choose(
        self,
        manifests: Sequence[Manifest],
        settled: Sequence[int | None],
        reason: str,
        *,
        quiet: bool = False,
        back: bool,
        spilled_by: int | None = None,
    ) -> dict[int, CleanUp]:
        """What to clean up in the next step, by operator: lower operators first, as much as one step should do.

        What is cleaned up is brought back if it fits into memory and that is wanted. In a `quiet` batch only that is.
        If a step is given, only groups that were spilled up to it.
        """
        chosen: dict[int, CleanUp] = {}
        nothing = GroupSet(self._groups, 0)
        for p, manifest in enumerate(manifests):
            most = max(self._memory.of(p) or CLEAN_UP_BYTES, LEAST_CLEAN_UP_BYTES)
            left = QUIET_BYTES if quiet else min(most, CLEAN_UP_BYTES)
            room = self._room(p, manifest) if back else 0
            for operator in self._operators:
                owed = self._owed(operator, manifest, settled, spilled_by)
                if not owed:
                    continue
                state = manifest.operators[operator.number]
                count = self._groups
                sizes = spilled_bytes(state.generations, count) + state.statistics.dense(count).bytes
                known = chosen.get(operator.number, CleanUp(nothing, nothing))
                groups, fitting = self._pick(owed.numbers(), sizes, left, room, only_fitting=quiet)
                if groups:
                    chosen[operator.number] = CleanUp(known.groups | groups, known.back | fitting, reason)
                    break  # what it owes to those above comes first
        return chosen

    def rotate(
        self, manifests: Sequence[Manifest], settled: Sequence[int | None], chosen: Mapping[int, CleanUp]
    ) -> dict[int, CleanUp]:
        """What was chosen, and the groups of groupings whose turn it is: those that were spilled the longest."""
        found = dict(chosen)
        nothing = GroupSet(self._groups, 0)
        for operator in (operator for operator in self._operators if operator.grouping is not None):
            for p, manifest in enumerate(manifests):
                owed = self._owed(operator, manifest, settled)
                if not owed:
                    continue
                generations = manifest.operators[operator.number].generations
                spilled = np.full(self._groups, -1)
                for generation in reversed(generations):
                    spilled[generation.groups.numbers()] = generation.step
                numbers = owed.numbers()
                order = numbers[np.argsort(spilled[numbers], kind="stable")]
                turn = GroupSet.of(self._groups, order[: -(-len(order) // ROTATION)])
                sizes = spilled_bytes(generations, self._groups)
                fits = sizes[turn.numbers()].sum() <= self._room(p, manifest)
                known = found.get(operator.number, CleanUp(nothing, nothing, "it is their turn"))
                back = known.back | (turn if fits else nothing)
                found[operator.number] = CleanUp(known.groups | turn, back, known.reason)
        return found

    def everything_frozen(self, manifests: Sequence[Manifest]) -> dict[int, CleanUp]:
        """All groups of groupings that have spilled state, to be answered with the end of the input."""
        chosen = {}
        nothing = GroupSet(self._groups, 0)
        for operator in self._operators:
            groups = nothing
            for manifest in manifests if operator.grouping is not None else ():
                for generation in manifest.operators[operator.number].generations:
                    groups |= generation.groups
            if groups:
                chosen[operator.number] = CleanUp(groups, nothing, "the input has ended")
        return chosen

    def tell_cleaned_up(self, done: CleanedUp, reports: Sequence[Report], before: Sequence[Manifest]) -> None:
        """Record what a step has cleaned up, per operator and processor; `before` are the manifests that it opened."""
        answered = done.answered
        for number, cleaning in done.what.items():
            operator = self._operators[number]
            for report, manifest in zip(reports, before, strict=True):
                state, count = manifest.operators[number], self._groups
                own = (spilled_groups(state.generations) or GroupSet(count, 0)) & cleaning.groups
                if not own:
                    continue
                sizes = spilled_bytes(state.generations, count) + state.statistics.dense(count).bytes
                read, back = int(sizes[own.numbers()].sum()), len(own & cleaning.back)
                self._events.add(
                    EventKind.CLEAN_UP,
                    f"{operator.name}: {report.owed[number]:,} postponed results of {len(own)} groups of processor "
                    f"{report.processor} ({format_bytes(read)}){f', {back} active again' if back else ''}, "
                    f"since {cleaning.reason}",
                    processor=report.processor,
                    operator=operator.name,
                    groups=own.numbers().tolist(),
                    results=report.owed[number],
                    bytes=read,
                    answered=answered,
                )
                answered = None if answered is None else 0

    def _pick(
        self,
        groups: NDArray[np.int64],
        sizes: NDArray[np.int64],
        most: int,
        room: int,
        *,
        only_fitting: bool,
    ) -> tuple[GroupSet, GroupSet]:
        """The smallest groups, up to so many bytes but at least one, and those of them that fit into the room."""
        order = groups[np.argsort(sizes[groups], kind="stable")]
        total = np.cumsum(sizes[order])
        fitting = total <= room
        taken = total <= most
        taken[:1] = True
        if only_fitting:
            taken &= fitting
        count = self._groups
        return GroupSet.of(count, order[taken]), GroupSet.of(count, order[taken & fitting])

    def _room(self, processor: int, manifest: Manifest) -> int:
        budget = self._memory.of(processor)
        if budget is None:
            return 1 << 62
        unspillable = self._unspillable(manifest)
        for_spillable = allowed_bytes(budget, unspillable) - unspillable
        return max(int(ROOM * for_spillable) - (manifest.bytes - unspillable), 0)

    def _owed(
        self,
        operator: Known,
        manifest: Manifest,
        settled: Sequence[int | None],
        spilled_by: int | None = None,
    ) -> GroupSet | None:
        """The groups of an operator on a processor that owe results; None if there are none."""
        state = manifest.operators[operator.number]
        early = [g for g in state.generations if spilled_by is None or g.step <= spilled_by]
        meant = spilled_groups(early)
        if meant is None:
            return None
        if operator.grouping is None:
            owing = state.owing()
            return owing & meant or None if owing is not None else None
        until, found = settled[operator.grouping], GroupSet(self._groups, 0)
        for generation in state.generations:
            if until is not None and (generation.since is None or generation.since < until):
                found |= generation.groups
        return found & meant or None
