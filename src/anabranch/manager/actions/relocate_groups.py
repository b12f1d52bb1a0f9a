"""Move partition groups from one processor to another (paper 1, section 5.1; paper 2, section 5.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.manager.actions.numbers import to_python_numbers
from anabranch.manager.actions.sentence import Sentence
from anabranch.observe.events import EventKind
from anabranch.observe.numbers import format_bytes, format_quantity

if TYPE_CHECKING:
    from anabranch.manager.actions.change import Change, Context
    from anabranch.manager.distribution import Distribution
    from anabranch.manager.plan_shape import PlanShape
    from anabranch.manager.relocation import Relocation


@dataclass(frozen=True, slots=True)
class RelocateGroups:
    """Move partition groups of a family of operators from one processor to another.

    Operators that run fused are a family, called by the number of its first: their groups move together. With a `pace`
    the receiver reads so many bytes per step before the groups are its own, and what arrives for them is held back.
    """

    family: int
    groups: tuple[int, ...]
    sender: int
    receiver: int
    bytes: int
    reason: str
    pace: int | None = None

    def __post_init__(self) -> None:
        """Refuse what is no number."""
        to_python_numbers(self, "family", "sender", "receiver", "bytes", *(() if self.pace is None else ("pace",)))

    def problem(self, change: Change, context: Context) -> str | None:
        """Why this makes no sense; None if it does."""
        distribution, plan = change.distribution, context.plan
        what = f"{len(self.groups)} groups cannot move from processor {self.sender} to processor {self.receiver}"
        if self.family not in plan.families or not plan.has_groups(self.groups):
            families = sorted(set(plan.families))
            return f"{what}: there are {plan.groups} groups and the families {families}"
        ends = (self.sender, self.receiver)
        if not all(0 <= p < distribution.processors for p in ends) or self.sender == self.receiver:
            return f"{what}: it must be from one of {distribution.processors} processors to another one"
        routing = distribution.routings[self.family]
        diffused = [group for group in self.groups if routing.routes(group) is not None]
        if diffused:
            hosts = ", ".join(map(str, routing.hosts(diffused[0])))
            return f"{what}: group {diffused[0]} is diffused over processors {hosts}; gather it first"
        elsewhere = [group for group in self.groups if routing.owner(group) != self.sender]
        if elsewhere:
            return f"{what}: group {elsewhere[0]} is on processor {routing.placement[elsewhere[0]]}"
        for move in (entry.move for entry in distribution.moving if entry.move.family == self.family):
            both = {*move.groups} & {*self.groups}
            if both:
                return (
                    f"{what}: group {min(both)} is on its way to processor {move.receiver}; wait for the event "
                    "`relocate` that tells of its arrival"
                )
        return None

    def must_wait(self, change: Change, taken: set[int]) -> bool:
        """Whether sender or receiver takes part in an action of an earlier policy, or in a relocation under way."""
        ends = {self.sender, self.receiver}
        return bool(ends & (taken | change.pushed)) or any(map(change.distribution.is_moving, ends))

    def apply(self, change: Change, context: Context) -> None:
        """Move the groups, or begin to if it takes more than one step."""
        after, relocation = context.connections.begin(change.distribution, self, context.asked_at)
        note_relocations(change, after, [relocation], context.plan)


def note_relocations(change: Change, after: Distribution, relocations: Sequence[Relocation], plan: PlanShape) -> None:
    """Note relocations that have begun or are done, and the distribution after them."""
    change.distribution = after
    change.relocations += relocations
    change.touched |= change.parties
    change.sentences += [_sentence(relocation, plan) for relocation in relocations]


def _sentence(relocation: Relocation, plan: PlanShape) -> Sentence:
    move = relocation.move
    names = ", ".join(plan.operators[n].name for n in plan.members(move.family))
    what = f"{names}: {format_quantity(len(move.groups), 'group')} ({format_bytes(move.bytes)})"
    where = f"from processor {move.sender} to processor {move.receiver}"
    details = {
        "groups": list(move.groups),
        "sender": move.sender,
        "receiver": move.receiver,
        "bytes": move.bytes,
        "operator": names,
        "steps": [[message.text, at] for message, at in relocation.sent],
    }
    if not relocation.is_done:
        text = f"{what} begin to move {where}, in {relocation.turns} steps, since {move.reason}"
        return Sentence(EventKind.RELOCATING, text, details)
    took = relocation.sent[-1][1] - relocation.sent[0][1]
    text = f"{what} moved {where} in {took * 1000:.0f} ms, since {move.reason}"
    return Sentence(EventKind.RELOCATE, text, {"seconds": took, **details})
