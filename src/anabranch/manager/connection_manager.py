"""The connection manager (paper 5, section 4.3): brings state and rows to where a placement wants them.

It moves partition groups, and lists state by other placements. On Spark a connection is a routing: the next batch sends
rows by it. All of it is edits of manifests and routings, by Flux's interface (`state.partition`): nothing is read or
copied. A change takes effect when the step is committed that it belongs to, so no row is ever between two places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from anabranch.manager.actions.relocate_groups import RelocateGroups
from anabranch.manager.diffusion import gather_all
from anabranch.manager.distribution import Distribution
from anabranch.manager.plan_shape import PlanShape
from anabranch.manager.query_plan_manager import check_valid
from anabranch.manager.relocation import Message, Relocation
from anabranch.plan.placement import Placement
from anabranch.plan.routing import owned_by
from anabranch.state.groups import GroupSet, union_by_operator
from anabranch.state.partition import extract, install
from anabranch.state.runs.run import RunFile
from anabranch.state.runs.slice import Cuts
from anabranch.state.share import list_by_owner


class ConnectionManager:
    """Moves partition groups of a plan's operators."""

    def __init__(self, plan: PlanShape, cuts: Cuts, clock: Callable[[], float]) -> None:
        """`cuts` tell where groups begin in runs, `clock` when messages of the protocol are sent."""
        self.plan = plan
        self._owners = plan.owners
        self._cuts = cuts
        self._clock = clock

    def size(self, distribution: Distribution, family: int, groups: Sequence[int], sender: int) -> int:
        """How many bytes of state some groups have on a processor, active and spilled."""
        chosen = GroupSet.of(distribution.groups, groups)
        part = extract(distribution.manifests[sender], self.plan.members(family), chosen, self._owners, self._cuts)[1]
        return part.bytes + part.spilled_bytes

    def begin(
        self, distribution: Distribution, move: RelocateGroups, asked_at: float
    ) -> tuple[Distribution, Relocation]:
        """Move groups, or begin to if it takes more than one step; `asked_at` is when a policy or a user asked for
        it."""
        relocation = Relocation.begin(move, asked_at, self._clock()).deactivate(self._clock())
        if relocation.left:
            return replace(distribution, moving=(*distribution.moving, relocation)), relocation
        return self._finish(distribution, relocation)

    def go_on(self, distribution: Distribution) -> tuple[Distribution, list[Relocation]]:
        """After a step: finish the relocations that need not wait any longer."""
        done = []
        moving, distribution = distribution.moving, replace(distribution, moving=())
        for relocation in moving:
            waited = relocation.wait()
            if waited.left:
                distribution = replace(distribution, moving=(*distribution.moving, waited))
            else:
                distribution, finished = self._finish(distribution, waited)
                done.append(finished)
        return distribution, done

    def rescale(self, distribution: Distribution, processors: int, placements: tuple[Placement, ...]) -> Distribution:
        """List all state by other placements. Relocations under way end: their groups go where the placements say.
        What is diffused is gathered first."""
        distribution = self.gathered(distribution)
        routings = owned_by(placements)
        listed = list_by_owner(distribution.manifests, routings, self._owners, processors, self._cuts)
        return check_valid(self.plan, Distribution(listed, routings))

    def gathered(self, distribution: Distribution) -> Distribution:
        """The distribution in which every group is at its home."""
        return gather_all(distribution, self.plan, self._cuts)

    def held_back(self, distribution: Distribution) -> dict[int, GroupSet]:
        """The groups, by operator, whose rows have to wait since they are on their way."""
        held: dict[int, GroupSet] = {}
        for move in (relocation.move for relocation in distribution.moving if relocation.holds_back):
            groups = GroupSet.of(distribution.groups, move.groups)
            held = union_by_operator(held, dict.fromkeys(self.plan.members(move.family), groups))
        return held

    def to_warm(self, distribution: Distribution) -> Mapping[int, tuple[RunFile, ...]]:
        """By processor, the files to read ahead in the next step: one turn's share of the groups that come to it."""
        warm: dict[int, tuple[RunFile, ...]] = {}
        for relocation in distribution.moving:
            move = relocation.move
            groups = GroupSet.of(distribution.groups, move.groups)
            part = extract(
                distribution.manifests[move.sender], self.plan.members(move.family), groups, self._owners, self._cuts
            )[1]
            files = sorted({piece.file for piece in part.active()}, key=lambda file: file.name)
            sizes = [file.bytes for file in files]
            turns, starts = relocation.turns, accumulate(sizes, initial=0)
            turn = turns - relocation.left
            due = [file for file, start in zip(files, starts, strict=False) if start * turns // sum(sizes) == turn]
            warm[move.receiver] = (*warm.get(move.receiver, ()), *due)
        return warm

    def _finish(self, distribution: Distribution, relocation: Relocation) -> tuple[Distribution, Relocation]:
        """Messages 5 to 8: send, receive, install, go on."""
        move, clock = relocation.move, self._clock
        relocation = relocation.say(Message.SEND, clock())
        members = self.plan.members(move.family)
        groups = GroupSet.of(distribution.groups, move.groups)
        kept, part = extract(distribution.manifests[move.sender], members, groups, self._owners, self._cuts)
        relocation = relocation.say(Message.RECEIVE, clock())
        distribution = distribution.with_manifest(move.sender, kept)
        distribution = distribution.with_manifest(move.receiver, install(distribution.manifests[move.receiver], part))
        relocation = relocation.say(Message.RECEIVED, clock())
        numbers = frozenset(move.groups)
        routings = tuple(
            routing.moved(numbers, move.receiver) if n in members else routing
            for n, routing in enumerate(distribution.routings)
        )
        return check_valid(self.plan, replace(distribution, routings=routings)), relocation.say(
            Message.REACTIVATE, clock()
        )
