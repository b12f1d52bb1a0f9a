"""Between two batches: let policies look at the state, and do what they decide.

Everything here is an edit of manifests, made by the driver before it commits a step, or a choice of what the next step
has to clean up. What was done is told as events.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anabranch.errors import ConfigError
from anabranch.kernel.operator import SpillableOperator
from anabranch.manager.actions import SpillGroups
from anabranch.manager.debt import owed_results
from anabranch.manager.snapshot import OperatorSeen, Policy, ProcessorSeen, Snapshot
from anabranch.observe.events import EventLog
from anabranch.observe.numbers import format_bytes
from anabranch.plan.network import Network
from anabranch.runtime.report import Report
from anabranch.runtime.tasks import ProcessorPlan
from anabranch.state.generation import spilled_groups
from anabranch.state.groups import GroupSet
from anabranch.state.manifest import Manifest, OperatorState
from anabranch.state.run import FileCuts
from anabranch.state.spill import CleanUp, spill, spilled_bytes
from anabranch.state.spine import Spine

# State that is read in one step of clean-up, per processor, if that is not more than its memory; and in a quiet batch
# that does it in passing.
CLEAN_UP_BYTES = 64 << 20
QUIET_BYTES = 8 << 20
# State is brought back only as far as this share of the memory, so that it is not pushed out again at once.
ROOM = 0.7


@dataclass(frozen=True, slots=True)
class CleanedUp:
    """What a step has cleaned up, by operator, and why; the rows of answers, if that was all it did, -1 if unknown."""

    what: Mapping[int, CleanUp]
    reason: str
    answered: int | None = None


@dataclass(frozen=True, slots=True)
class _Operator:
    """An operator as adaptations see it."""

    number: int
    name: str
    ports: tuple[int, ...]
    spillable: bool
    grouping: int | None
    unbounded: bool


class Adaptation:
    """What is adapted between the steps of a run."""

    def __init__(
        self,
        network: Network,
        plan: ProcessorPlan,
        state: Path,
        memory: int | None,
        policies: Sequence[Policy],
        events: EventLog,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Nothing is done yet. `memory` is the budget of a processor."""
        self._plan = plan
        self._memory = memory
        self._policies = policies
        self._events = events
        self._clock = clock
        self._cuts = FileCuts(state, plan.groups)
        self._operators = sorted(
            (
                _Operator(
                    entry.number,
                    _name(network, entry.number),
                    entry.ports,
                    isinstance(entry.operator, SpillableOperator) and entry.operator.can_spill,
                    plan.groupings.index(entry.number) if entry.number in plan.groupings else None,
                    entry.number not in plan.groupings and all(plan.windows[port] is None for port in entry.ports),
                )
                for number in plan.rounds
                for entry in number.operators
            ),
            key=lambda operator: operator.number,
        )
        self._over: set[int] = set()
        self._pushed: list[SpillGroups] = []

    def frontiers(self, manifests: Sequence[Manifest]) -> dict[int, int | None]:
        """By operator that owes results, the time that none of them is older than; None if that is not known."""
        found: dict[int, int | None] = {}
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
                found[operator.number] = min(known) if len(known) == len(since) else None
        return found

    def adapt(
        self, step: int, manifests: list[Manifest], since: Sequence[int | None]
    ) -> tuple[list[Manifest], set[int]]:
        """The manifests after what policies decide, and the processors whose manifests have changed.

        `since` is per operator: no result of rows that are still to come is older.
        """
        snapshot = self._snapshot(step, manifests)
        self._pushed.clear()
        manifests, changed = list(manifests), set()
        for policy in self._policies:
            for action in policy.decide(snapshot):
                self._check(policy, action, len(manifests))
                manifests[action.processor] = self._spill(action, manifests[action.processor], step, since)
                changed.add(action.processor)
        return manifests, changed

    def tell(self, manifests: Sequence[Manifest]) -> None:
        """Tell what was decided, once it counts."""
        for action in self._pushed:
            operator = self._operators[action.operator]
            self._events.add(
                "spill",
                f"{operator.name}: {len(action.groups)} groups of processor {action.processor} pushed to disk "
                f"({format_bytes(action.bytes)}), since {action.reason}",
                processor=action.processor,
                operator=operator.name,
                groups=list(action.groups),
                bytes=action.bytes,
            )
        self._tell_over_memory(manifests)

    def owes(self, manifests: Sequence[Manifest], settled: Sequence[int | None], spilled_by: int | None = None) -> bool:
        """Whether any result is owed, by groups that were spilled up to a step if one is given."""
        return any(self._owed(operator, m, settled, spilled_by) for operator in self._operators for m in manifests)

    def debts(self, manifests: Sequence[Manifest], settled: Sequence[int | None]) -> list[tuple[int, int | None]]:
        """Per processor, how many groups owe results, and about how many results; None if that cannot be known."""
        found = []
        for manifest in manifests:
            groups, results = 0, 0
            known = True
            for operator in self._operators:
                owing = self._owed(operator, manifest, settled)
                if owing is not None:
                    groups += len(owing)
                    known &= operator.unbounded
                    if operator.unbounded:
                        state = manifest.operators[operator.number]
                        results += owed_results(state, self._plan.groups, len(operator.ports))
            found.append((groups, results if known else None))
        return found

    def groups(self, manifest: Manifest) -> dict[str, Any]:
        """What is known of the partition groups of each operator: active and spilled bytes, results, generations."""
        found = {}
        for operator in self._operators:
            state, count = manifest.operators[operator.number], self._plan.groups
            active, produced, _, _ = state.statistics.dense(count)
            spilled = spilled_bytes(state.generations, count)
            generations = np.zeros(count, dtype=np.int64)
            for generation in state.generations:
                generations += generation.groups.mask()
            present = np.flatnonzero((active > 0) | (spilled > 0)).tolist()
            found[operator.name] = {
                group: {
                    "activeBytes": int(active[group]),
                    "spilledBytes": int(spilled[group]),
                    "results": int(produced[group]),
                    "generations": int(generations[group]),
                }
                for group in present
            }
        return found

    def choose(
        self,
        manifests: Sequence[Manifest],
        settled: Sequence[int | None],
        *,
        quiet: bool,
        back: bool,
        spilled_by: int | None = None,
    ) -> dict[int, CleanUp]:
        """What to clean up in the next step, by operator: lower operators first, as much as one step should do.

        What is cleaned up is brought back if it fits into memory and that is wanted. In a `quiet` batch only that is.
        If a step is given, only groups that were spilled up to it.
        """
        chosen: dict[int, CleanUp] = {}
        nothing = GroupSet(self._plan.groups, 0)
        for manifest in manifests:
            left = QUIET_BYTES if quiet else min(self._memory or CLEAN_UP_BYTES, CLEAN_UP_BYTES)
            room = self._room(manifest) if back else 0
            for operator in self._operators:
                owed = self._owed(operator, manifest, settled, spilled_by)
                if not owed:
                    continue
                state = manifest.operators[operator.number]
                sizes = (
                    spilled_bytes(state.generations, self._plan.groups) + state.statistics.dense(self._plan.groups)[0]
                )
                known = chosen.get(operator.number, CleanUp(nothing, nothing))
                groups, fitting = self._pick(owed.numbers(), sizes, left, room, only_fitting=quiet)
                if groups:
                    chosen[operator.number] = CleanUp(known.groups | groups, known.back | fitting)
                    break  # what it owes to those above comes first
        return chosen

    def everything_frozen(self, manifests: Sequence[Manifest]) -> dict[int, CleanUp]:
        """All groups of groupings that have spilled state, to be answered with the end of the input."""
        chosen = {}
        nothing = GroupSet(self._plan.groups, 0)
        for operator in self._operators:
            groups = nothing
            for manifest in manifests if operator.grouping is not None else ():
                for generation in manifest.operators[operator.number].generations:
                    groups |= generation.groups
            if groups:
                chosen[operator.number] = CleanUp(groups, nothing)
        return chosen

    def tell_cleaned_up(self, done: CleanedUp, reports: Sequence[Report], before: Sequence[Manifest]) -> None:
        """Record what a step has cleaned up, per operator and processor; `before` are the manifests that it opened."""
        answered = done.answered
        for number, cleaning in done.what.items():
            operator = self._operators[number]
            for report, manifest in zip(reports, before, strict=True):
                state, count = manifest.operators[number], self._plan.groups
                own = (spilled_groups(state.generations) or GroupSet(count, 0)) & cleaning.groups
                if not own:
                    continue
                sizes = spilled_bytes(state.generations, count) + state.statistics.dense(count)[0]
                read, back = int(sizes[own.numbers()].sum()), len(own & cleaning.back)
                self._events.add(
                    "clean-up",
                    f"{operator.name}: {report.owed[number]:,} postponed results of {len(own)} groups of processor "
                    f"{report.processor} ({format_bytes(read)}){f', {back} active again' if back else ''}, "
                    f"since {done.reason}",
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
        count = self._plan.groups
        return GroupSet.of(count, order[taken]), GroupSet.of(count, order[taken & fitting])

    def _room(self, manifest: Manifest) -> int:
        if self._memory is None:
            return 1 << 62
        return max(int(ROOM * self._memory) - manifest.bytes, 0)

    def _owed(
        self,
        operator: _Operator,
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
        until, found = settled[operator.grouping], GroupSet(self._plan.groups, 0)
        for generation in state.generations:
            if until is not None and (generation.since is None or generation.since < until):
                found |= generation.groups
        return found & meant or None

    def _snapshot(self, step: int, manifests: Sequence[Manifest]) -> Snapshot:
        seen = [
            ProcessorSeen(
                p,
                manifest.bytes,
                tuple(
                    OperatorSeen(operator.number, manifest.operators[operator.number].statistics, operator.spillable)
                    for operator in self._operators
                ),
            )
            for p, manifest in enumerate(manifests)
        ]
        return Snapshot(step, self._clock(), self._memory, tuple(seen))

    def _spill(self, action: SpillGroups, manifest: Manifest, step: int, since: Sequence[int | None]) -> Manifest:
        operator = self._operators[action.operator]
        groups = GroupSet.of(self._plan.groups, action.groups)
        spines: list[Spine] = list(manifest.spines)
        states: list[OperatorState] = list(manifest.operators)
        own = [spines[port] for port in operator.ports]
        own, states[operator.number] = spill(
            own, states[operator.number], groups, step, since[operator.number], self._cuts
        )
        for port, spine in zip(operator.ports, own, strict=True):
            spines[port] = spine
        self._pushed.append(action)
        return Manifest(tuple(spines), tuple(states))

    def _check(self, policy: Policy, action: SpillGroups, processors: int) -> None:
        """Refuse what a policy of a user's own may have got wrong."""
        known = (
            0 <= action.processor < processors
            and 0 <= action.operator < len(self._operators)
            and self._operators[action.operator].spillable
            and all(0 <= group < self._plan.groups for group in action.groups)
        )
        if not known:
            raise ConfigError(f"the policy {policy!r} decided on {action}, which is not there or cannot be spilled")

    def _tell_over_memory(self, manifests: Sequence[Manifest]) -> None:
        """Tell once that a processor is over its budget for good, not at every batch that it stays there."""
        budget = self._memory
        over = {p for p, manifest in enumerate(manifests) if budget is not None and manifest.bytes > budget}
        for p in sorted(over - self._over):
            assert budget is not None, "without a budget nobody is over it"
            held = manifests[p].bytes
            self._events.add(
                "memory",
                f"processor {p} holds {format_bytes(held)} of active state, more than its budget of "
                f"{format_bytes(budget)}, and no policy has pushed it to disk",
                processor=p,
                active_bytes=held,
            )
        self._over = over


def _name(network: Network, n: int) -> str:
    """An operator for people."""
    aliases = [network.inputs[i].entry.alias for i in network.inputs_of(len(network.inputs) + n)]
    return f"{'join' if network.operators[n].grouping is None else 'groups'} of {', '.join(aliases)}"
