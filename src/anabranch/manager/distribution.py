"""Who has what between two batches, and how that is changed: moving partition groups and changing the processors.

All of it is edits of manifests and routings, by Flux's interface (`state.partition`): nothing is read or copied. What
is changed counts when a step is committed that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from anabranch.errors import ConfigError
from anabranch.manager.actions import RelocateGroups
from anabranch.manager.relocation import Message, Relocation
from anabranch.plan.placement import Placement
from anabranch.plan.routing import Routing, check_routings, owned_by
from anabranch.state.groups import GroupSet, unite
from anabranch.state.manifest import Manifest
from anabranch.state.partition import extract, install
from anabranch.state.run import RunFile
from anabranch.state.share import list_by_owner
from anabranch.state.spine import Cuts


@dataclass(frozen=True, slots=True)
class Distribution:
    """The manifest of each processor, the routing of each operator, and the relocations under way."""

    manifests: tuple[Manifest, ...]
    routings: tuple[Routing, ...]
    moving: tuple[Relocation, ...] = ()

    @property
    def placements(self) -> tuple[Placement, ...]:
        """The home of every partition group of each operator."""
        return tuple(routing.placement for routing in self.routings)

    @property
    def groups(self) -> int:
        """How many partition groups there are."""
        return len(self.routings[0].placement)

    @property
    def processors(self) -> int:
        """How many processors there are."""
        return len(self.manifests)

    def with_manifest(self, processor: int, manifest: Manifest) -> Distribution:
        """The same, but for one processor's state."""
        listed = list(self.manifests)
        listed[processor] = manifest
        return replace(self, manifests=tuple(listed))

    def is_moving(self, processor: int) -> bool:
        """Whether groups are on their way to a processor or from it."""
        return any(processor in (entry.move.sender, entry.move.receiver) for entry in self.moving)


class Relocator:
    """What moves partition groups; `families` are per operator, `owners` the operators that ports belong to."""

    def __init__(self, families: Sequence[int], owners: Sequence[int], cuts: Cuts, clock: Callable[[], float]) -> None:
        """Of a plan."""
        self.families = families
        self._owners = owners
        self._cuts = cuts
        self._clock = clock

    def members(self, family: int) -> list[int]:
        """The operators of a family."""
        return [n for n, found in enumerate(self.families) if found == family]

    def fits(self, found: Distribution) -> bool:
        """Whether operators of a family are placed alike."""
        homes = found.placements
        return all(homes[n] == homes[family] for n, family in enumerate(self.families))

    def check(self, found: Distribution) -> Distribution:
        """`found` itself, if every group of every operator is routed as it must be."""
        check_routings(found.routings, self._owners, found.groups, found.processors)
        return found

    def size(self, found: Distribution, family: int, groups: Sequence[int], sender: int) -> int:
        """How many bytes of state some groups have on a processor, active and spilled."""
        chosen = GroupSet.of(found.groups, groups)
        part = extract(found.manifests[sender], self.members(family), chosen, self._owners, self._cuts)[1]
        return part.bytes + part.spilled_bytes

    def begin(self, found: Distribution, move: RelocateGroups, asked: float) -> tuple[Distribution, Relocation]:
        """Move groups, or begin to if it takes more than one step; a policy or a user has `asked` for it."""
        self._check(found, move)
        relocation = Relocation.begin(move, asked, self._clock()).deactivate(self._clock())
        if relocation.left:
            return replace(found, moving=(*found.moving, relocation)), relocation
        return self._finish(found, relocation)

    def go_on(self, found: Distribution) -> tuple[Distribution, list[Relocation]]:
        """After a step: those relocations come to their end that need not wait any longer."""
        done = []
        moving, found = found.moving, replace(found, moving=())
        for relocation in moving:
            waited = relocation.wait()
            if waited.left:
                found = replace(found, moving=(*found.moving, waited))
            else:
                found, finished = self._finish(found, waited)
                done.append(finished)
        return found, done

    def rescale(self, found: Distribution, processors: int, placements: tuple[Placement, ...]) -> Distribution:
        """All state listed by other placements. What was on its way arrives nowhere else than there."""
        assert not any(routing.diffused for routing in found.routings), "what is diffused has to be gathered first"
        routings = owned_by(placements)
        listed = list_by_owner(found.manifests, routings, self._owners, processors, self._cuts)
        return self.check(Distribution(listed, routings))

    def held_back(self, found: Distribution) -> dict[int, GroupSet]:
        """The groups, by operator, whose rows have to wait since they are on their way."""
        held: dict[int, GroupSet] = {}
        for move in (relocation.move for relocation in found.moving if relocation.holds_back):
            groups = GroupSet.of(found.groups, move.groups)
            held = unite(held, dict.fromkeys(self.members(move.family), groups))
        return held

    def to_warm(self, found: Distribution) -> Mapping[int, tuple[RunFile, ...]]:
        """By processor, the files that it should read ahead in the next step: so many bytes of what comes to it."""
        warm: dict[int, tuple[RunFile, ...]] = {}
        for relocation in found.moving:
            move = relocation.move
            groups = GroupSet.of(found.groups, move.groups)
            part = extract(found.manifests[move.sender], self.members(move.family), groups, self._owners, self._cuts)[1]
            files = sorted({piece.file for piece in part.active()}, key=lambda file: file.name)
            sizes = [file.bytes for file in files]
            turns, starts = relocation.turns, accumulate(sizes, initial=0)
            turn = turns - relocation.left
            due = [file for file, start in zip(files, starts, strict=False) if start * turns // sum(sizes) == turn]
            warm[move.receiver] = (*warm.get(move.receiver, ()), *due)
        return warm

    def _finish(self, found: Distribution, relocation: Relocation) -> tuple[Distribution, Relocation]:
        """Messages 5 to 8: send, receive, install, go on."""
        move, clock = relocation.move, self._clock
        relocation = relocation.say(Message.SEND, clock())
        members = self.members(move.family)
        groups = GroupSet.of(found.groups, move.groups)
        kept, part = extract(found.manifests[move.sender], members, groups, self._owners, self._cuts)
        relocation = relocation.say(Message.RECEIVE, clock())
        found = found.with_manifest(move.sender, kept)
        found = found.with_manifest(move.receiver, install(found.manifests[move.receiver], part))
        relocation = relocation.say(Message.RECEIVED, clock())
        numbers = frozenset(move.groups)
        routings = tuple(
            routing.moved(numbers, move.receiver) if n in members else routing
            for n, routing in enumerate(found.routings)
        )
        return self.check(replace(found, routings=routings)), relocation.say(Message.REACTIVATE, clock())

    def _check(self, found: Distribution, move: RelocateGroups) -> None:
        """Refuse what a policy of a user's own, or a user, may have got wrong."""
        what = f"{len(move.groups)} groups cannot move from processor {move.sender} to processor {move.receiver}"
        count = found.groups
        if move.family not in self.families or not all(0 <= group < count for group in move.groups):
            families = sorted(set(self.families))
            raise ConfigError(f"{what}: there are {count} groups and the families {families}, not {move}")
        if not all(0 <= p < found.processors for p in (move.sender, move.receiver)) or move.sender == move.receiver:
            raise ConfigError(f"{what}: it must be from one of {found.processors} processors to another one")
        routing = found.routings[move.family]
        others = [group for group in move.groups if routing.owner(group) != move.sender]
        if others:
            hosts = ", ".join(map(str, routing.hosts(others[0])))
            raise ConfigError(f"{what}: group {others[0]} is on processor {hosts}")
        for entry in (relocation.move for relocation in found.moving if relocation.move.family == move.family):
            both = {*entry.groups} & {*move.groups}
            if both:
                raise ConfigError(
                    f"{what}: group {min(both)} is on its way to processor {entry.receiver}; wait for the event "
                    "`relocate` that tells of its arrival"
                )
