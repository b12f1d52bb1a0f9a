"""The connection manager (paper 5, section 4.3): brings state and rows to where a placement wants them.

It moves partition groups, and lists state by other placements. On Spark a connection is a routing: the next batch sends
rows by it. All of it is edits of manifests and routings, by Flux's interface (`state.partition`): nothing is read or
copied. A change takes effect when the step is committed that it belongs to, so no row is ever between two places.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from anabranch.manager.actions.relocate_groups import RelocateGroups
from anabranch.manager.diffusion import Diffuser, gather_all
from anabranch.manager.distribution import Distribution
from anabranch.manager.plan_shape import PlanShape
from anabranch.manager.query_plan_manager import check_valid
from anabranch.manager.relocation import Message, Relocation
from anabranch.plan.placement import Placement
from anabranch.plan.routing import owned_by
from anabranch.state.groups import GroupSet, union_by_operator
from anabranch.state.manifest import Manifest
from anabranch.state.partition import extract, install
from anabranch.state.runs.run import RunFile
from anabranch.state.runs.slice import Cuts
from anabranch.state.share import list_by_owner


@dataclass(frozen=True, slots=True)
class Reallocated:
    """The bytes of state that have moved, by operator, and how many relocations ended and groups were gathered for
    that."""

    bytes: Mapping[int, int]
    ended: int
    gathered: int


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

    def reallocate(
        self, distribution: Distribution, placements: Sequence[Placement], before: PlanShape
    ) -> tuple[Distribution, Reallocated]:
        """List operators by other placements, in a plan whose families may be other ones than `before`.

        Rows that are held back and what is spilled move along. Relocations under way end where operators move or change
        their families: their groups stay at the sender until then. What cannot stay diffused is gathered first. All
        else is as it was.
        """
        places = distribution.placements
        moved = [n for n, placement in enumerate(placements) if placement != places[n]]
        staying = tuple(
            relocation
            for relocation in distribution.moving
            if (members := before.members(relocation.move.family)) == self.plan.members(relocation.move.family)
            and not {*members} & {*moved}
        )
        ended = len(distribution.moving) - len(staying)
        distribution = replace(distribution, moving=staying)
        gathered = 0
        for n, routing in enumerate(distribution.routings):
            if routing.diffused and (n in moved or self.plan.fused_with(n)):
                gathered += len(routing.diffused)
                groups = [group for group, _ in routing.diffused]
                distribution = Diffuser(self.plan, n, self._cuts).gather(distribution, groups)
        sizes = dict.fromkeys(moved, 0)
        for n in moved:
            for sender, receiver in sorted({*zip(places[n], placements[n], strict=True)}):
                if sender != receiver:
                    pairs = enumerate(zip(places[n], placements[n], strict=True))
                    groups = [group for group, pair in pairs if pair == (sender, receiver)]
                    distribution, part = self._send(distribution, [n], groups, sender, receiver)
                    sizes[n] += part.bytes + part.spilled_bytes
        return check_valid(self.plan, distribution), Reallocated(sizes, ended, gathered)

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
        relocation = relocation.say(Message.RECEIVE, clock())
        distribution, _ = self._send(distribution, members, move.groups, move.sender, move.receiver)
        relocation = relocation.say(Message.RECEIVED, clock())
        return check_valid(self.plan, distribution), relocation.say(Message.REACTIVATE, clock())

    def _send(
        self, distribution: Distribution, operators: Collection[int], groups: Sequence[int], sender: int, receiver: int
    ) -> tuple[Distribution, Manifest]:
        """Let a processor have the state of groups of some operators, and the rows that come for them; with the
        state."""
        chosen = GroupSet.of(distribution.groups, groups)
        kept, part = extract(distribution.manifests[sender], operators, chosen, self._owners, self._cuts)
        distribution = distribution.with_manifest(sender, kept)
        distribution = distribution.with_manifest(receiver, install(distribution.manifests[receiver], part))
        numbers = frozenset(groups)
        routings = tuple(
            routing.moved(numbers, receiver) if n in operators else routing
            for n, routing in enumerate(distribution.routings)
        )
        return replace(distribution, routings=routings), part
