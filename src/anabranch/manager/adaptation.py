"""Between two batches: let policies look at the state, and do what they decide.

Everything here is an edit of manifests and placements, made by the driver before it commits a step. What was done is
told as events. All policies look at the same state, so a processor that has a part in what one has decided is left
alone by those after it: it does not spill and relocate at the same time, and no two policies move its groups. What was
decided first is done, and the other may be decided again after the next step.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anabranch.errors import ConfigError
from anabranch.manager.actions import Action, HoldGroups, RelocateGroups, SpillGroups
from anabranch.manager.budgets import Memory
from anabranch.manager.distribution import Distribution, Relocator
from anabranch.manager.memory_use import MemoryUse, Shortage
from anabranch.manager.operators import Known
from anabranch.manager.relocation import Relocation
from anabranch.manager.snapshot import OperatorSeen, Policy, ProcessorSeen, Snapshot
from anabranch.observe.events import EventKind, EventLog
from anabranch.observe.numbers import format_bytes
from anabranch.state.generation import spilled_groups
from anabranch.state.groups import GroupSet, unite
from anabranch.state.lagging import answered
from anabranch.state.manifest import Manifest
from anabranch.state.partition import describe, held_rows
from anabranch.state.report import Report
from anabranch.state.run import FileCuts
from anabranch.state.spill import CleanUp, spill

ASKED = "it was asked for"


@dataclass
class Adapted:
    """What has become of a distribution, the processors whose state was touched, and the groups whose rows have to wait
    in the next step, by operator."""

    distribution: Distribution
    changed: set[int] = field(default_factory=set)
    hold: dict[int, GroupSet] = field(default_factory=dict)
    pushed: list[SpillGroups] = field(default_factory=list)
    moved: list[Relocation] = field(default_factory=list)

    def relocated(self, found: Distribution, moves: Sequence[Relocation]) -> None:
        """Note relocations, done or begun."""
        self.distribution = found
        self.moved += moves
        self.changed |= self.parties

    @property
    def parties(self) -> set[int]:
        """The processors that have a part in a relocation."""
        return {processor for entry in self.moved for processor in (entry.move.sender, entry.move.receiver)}


class Adaptation:
    """What is adapted between the steps of a run, which works with its own copy of the policies."""

    def __init__(
        self,
        operators: Sequence[Known],
        groups: int,
        owners: Sequence[int],
        state: Path,
        memory: Memory,
        policies: Sequence[Policy],
        events: EventLog,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Nothing is done yet. `owners` are the operators that ports belong to."""
        self._operators = operators
        self._groups = groups
        self._memory = memory
        self._policies = copy.deepcopy(list(policies))
        self._events = events
        self._clock = clock
        self._cuts = FileCuts(state, groups)
        self.relocator = Relocator([operator.family for operator in operators], owners, self._cuts, clock)
        self._looked = clock()
        self._shortage = Shortage()
        self._returned: tuple[dict[int, GroupSet], dict[int, GroupSet]] = ({}, {})  # before the last step, and in it

    def adapt(
        self,
        step: int,
        found: Distribution,
        since: Sequence[int | None],
        reports: Sequence[Report],
        cleaned_up: Mapping[int, CleanUp],
    ) -> Adapted:
        """What becomes of a distribution after a step: relocations under way go on, and policies decide.

        `since` is per operator: no result of rows that are still to come is older. What reports tell of new files is
        taken from them: it need not be written again. `cleaned_up` is what the step has cleaned up, by operator.
        """
        self._returned = (self._returned[1], {n: done.back for n, done in cleaned_up.items() if done.back})
        for report in reports:
            self._cuts.learn_texts(report.cuts)
            report.cuts = {}
        self._cuts.forget_others({name for manifest in found.manifests for name in manifest.files()})
        adapted = Adapted(found)
        adapted.relocated(*self.relocator.go_on(found))
        asked = self._clock()
        snapshot = self._snapshot(step, adapted, reports)
        for policy in self._policies:
            taken = adapted.parties
            for action in _decided(policy, snapshot):
                if not (isinstance(action, RelocateGroups) and {action.sender, action.receiver} & taken):
                    self._do(policy, action, adapted, step, since, asked)
        adapted.hold = unite(adapted.hold, self.relocator.held_back(adapted.distribution))
        return adapted

    def tell(self, adapted: Adapted) -> None:
        """Tell what was done, once it counts."""
        for action in adapted.pushed:
            operator = self._operators[action.operator]
            self._events.add(
                EventKind.SPILL,
                f"{operator.name}: {len(action.groups)} groups of processor {action.processor} pushed to disk "
                f"({format_bytes(action.bytes)}), since {action.reason}",
                processor=action.processor,
                operator=operator.name,
                groups=list(action.groups),
                bytes=action.bytes,
            )
        for relocation in adapted.moved:
            self._tell_moved(relocation)

    def tell_shortage(self, uses: Sequence[MemoryUse], adapted: Adapted) -> None:
        """Tell where there is too little memory, once it counts."""
        for reason, use in self._shortage.look(uses, {action.processor for action in adapted.pushed}):
            self._events.add(EventKind.MEMORY, reason, **use.details())

    def tell_rescaled(self, before: int, after: int, given_up: int) -> None:
        """Tell that there are more processors now, or fewer, and that so many relocations were given up for it."""
        told = f"state of {before} processors is now listed on {after}, since {ASKED}"
        if given_up:
            told += f"; {given_up} relocation{'s' if given_up > 1 else ''} under way came to nothing by that"
        self._events.add(EventKind.RESCALE, told, before=before, after=after)

    def now(self) -> float:
        """The time by the driver's clock."""
        return self._clock()

    def groups(self, manifest: Manifest) -> dict[str, Any]:
        """What is known of the partition groups of each operator."""
        return {o.name: describe(manifest.operators[o.number], self._groups) for o in self._operators}

    def _do(
        self,
        policy: Policy,
        action: Action,
        adapted: Adapted,
        step: int,
        since: Sequence[int | None],
        asked: float,
    ) -> None:
        found = adapted.distribution
        if isinstance(action, RelocateGroups):
            ends = {action.sender, action.receiver}
            if not ends & {push.processor for push in adapted.pushed} and not any(map(found.is_moving, ends)):
                after, relocation = self.relocator.begin(found, action, asked)
                adapted.relocated(after, [relocation])
        elif isinstance(action, SpillGroups):
            self._check_spill(policy, action, found)
            if action.processor not in adapted.parties and not found.is_moving(action.processor):
                spilled = self._spill(action, found.manifests[action.processor], step, since)
                adapted.distribution = found.with_manifest(action.processor, spilled)
                adapted.changed.add(action.processor)
                adapted.pushed.append(action)
        elif isinstance(action, HoldGroups):
            self._check_hold(policy, action)
            groups = GroupSet.of(self._groups, action.groups)
            adapted.hold = unite(adapted.hold, dict.fromkeys(self.relocator.members(action.family), groups))
        else:
            raise ConfigError(f"the policy {policy!r} decided on {action!r}, which is no action")

    def _snapshot(self, step: int, adapted: Adapted, reports: Sequence[Report]) -> Snapshot:
        now, found = self._clock(), adapted.distribution
        before, self._looked = self._looked, now
        seen = []
        for p, (manifest, report) in enumerate(zip(found.manifests, reports, strict=True)):
            operators = tuple(self._seen(operator, manifest) for operator in self._operators)
            seen.append(
                ProcessorSeen(
                    p,
                    manifest.bytes,
                    operators,
                    memory=self._memory.of(p),
                    busy=report.busy_ms / 1000,
                    cpu=report.cpu_ms / 1000,
                    rows=report.worked,
                    results=sum(report.produced),
                    spilled_bytes=manifest.spilled_bytes,
                    held_bytes=sum(piece.bytes for piece in manifest.held()),
                    moves=found.is_moving(p) or p in adapted.parties,
                )
            )
        return Snapshot(step, now, tuple(seen), max(now - before, 0.0))

    def _seen(self, operator: Known, manifest: Manifest) -> OperatorSeen:
        state = manifest.operators[operator.number]
        spilled = spilled_groups(state.generations)
        held = held_rows(state, self._groups, self._cuts) if state.held else {}
        return OperatorSeen(
            operator.number,
            state.statistics,
            operator.spillable,
            operator.family,
            spilled,
            held,
            operator.answers_later,
            unite(*self._returned).get(operator.number),
        )

    def _spill(self, action: SpillGroups, manifest: Manifest, step: int, since: Sequence[int | None]) -> Manifest:
        operator = self._operators[action.operator]
        groups = GroupSet.of(self._groups, action.groups)
        spines, states = list(manifest.spines), list(manifest.operators)
        own = [spines[port] for port in operator.ports]
        state = states[operator.number]
        for part, reached in answered(state.overdue, groups, since[operator.number]):
            own, state = spill(own, state, part, step, reached, self._cuts)
        states[operator.number] = state
        for port, spine in zip(operator.ports, own, strict=True):
            spines[port] = spine
        return Manifest(tuple(spines), tuple(states))

    def _check_spill(self, policy: Policy, action: SpillGroups, found: Distribution) -> None:
        """Refuse what a policy of a user's own may have got wrong."""
        known = (
            0 <= action.processor < found.processors
            and 0 <= action.operator < len(self._operators)
            and self._operators[action.operator].spillable
            and all(0 <= group < self._groups for group in action.groups)
        )
        if not known:
            raise ConfigError(f"the policy {policy!r} decided on {action}, which is not there or cannot be spilled")

    def _check_hold(self, policy: Policy, action: HoldGroups) -> None:
        known = self.relocator.members(action.family) and all(0 <= group < self._groups for group in action.groups)
        if not known:
            raise ConfigError(f"the policy {policy!r} decided on {action}, which is not there")

    def _tell_moved(self, relocation: Relocation) -> None:
        move = relocation.move
        names = ", ".join(self._operators[n].name for n in self.relocator.members(move.family))
        what = f"{names}: {len(move.groups)} groups ({format_bytes(move.bytes)})"
        where = f"from processor {move.sender} to processor {move.receiver}"
        details = {
            "groups": list(move.groups),
            "sender": move.sender,
            "receiver": move.receiver,
            "bytes": move.bytes,
            "operator": names,
            "steps": [[message.text, at] for message, at in relocation.sent],
        }
        if relocation.is_done:
            took = relocation.sent[-1][1] - relocation.sent[0][1]
            told = f"{what} moved {where} in {took * 1000:.0f} ms, since {move.reason}"
            self._events.add(EventKind.RELOCATE, told, seconds=took, **details)
        else:
            told = f"{what} begin to move {where}, in {relocation.turns} steps, since {move.reason}"
            self._events.add(EventKind.RELOCATING, told, **details)


def _decided(policy: Policy, snapshot: Snapshot) -> Iterable[Action]:
    actions = policy.decide(snapshot)
    if not isinstance(actions, Iterable):
        raise ConfigError(
            f"the policy {policy!r} decided on {actions!r}; its decide() must return actions, or [] for none"
        )
    return actions
