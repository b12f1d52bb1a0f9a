"""Gather partition groups that are diffused: each is at one processor again, its home or another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.manager.actions.numbers import to_python_numbers
from anabranch.manager.actions.relocate_groups import RelocateGroups
from anabranch.manager.actions.sentence import Sentence
from anabranch.manager.diffusable import is_busy, parties
from anabranch.manager.diffusion import Diffuser
from anabranch.observe.events import EventKind
from anabranch.observe.numbers import format_bytes, numbered

if TYPE_CHECKING:
    from anabranch.manager.actions.change import Change, Context


@dataclass(frozen=True, slots=True)
class GatherGroups:
    """Gather groups of an operator that are diffused, and move them `to` a processor; None if they stay at home."""

    operator: int
    groups: tuple[int, ...]
    to: int | None
    reason: str

    def __post_init__(self) -> None:
        """Refuse what is no number."""
        to_python_numbers(self, "operator", *(() if self.to is None else ("to",)))

    def problem(self, change: Change, context: Context) -> str | None:
        """Why this makes no sense; None if it does."""
        plan, processors = context.plan, change.distribution.processors
        if not 0 <= self.operator < len(plan.operators) or not self.groups or not plan.has_groups(self.groups):
            return f"there are {len(plan.operators)} operators with {plan.groups} partition groups each"
        if self.to is not None and not 0 <= self.to < processors:
            return f"processors are numbers from 0 to {processors - 1}, not {self.to}"
        routing = change.distribution.routings[self.operator]
        owned = [group for group in self.groups if routing.routes(group) is None]
        if owned:
            name = plan.operators[self.operator].name
            return f"{name}: {numbered(owned)} cannot be gathered: nothing of it is diffused"
        return None

    def must_wait(self, change: Change, taken: set[int]) -> bool:
        """Whether a processor takes part in another action or relocation."""
        if not 0 <= self.operator < len(change.distribution.routings):
            return False
        involved = parties(change, self.operator, self.groups) | ({self.to} if self.to is not None else set())
        return is_busy(change, taken, involved)

    def apply(self, change: Change, context: Context) -> None:
        """Put the parts of the master's state together, and move the groups if they have to be elsewhere."""
        change.reshared |= parties(change, self.operator, self.groups)
        change.touched |= change.reshared
        diffuser = Diffuser(context.plan, self.operator, context.cuts)
        hosts = sorted(parties(change, self.operator, self.groups))
        change.distribution = diffuser.gather(change.distribution, self.groups)
        change.sentences.append(self._sentence(change, context, diffuser, hosts))
        if self.to is not None:
            self._move(self.to, change, context)

    def _move(self, receiver: int, change: Change, context: Context) -> None:
        """Move the groups, which have owners, to a processor."""
        placement = change.distribution.routings[self.operator].placement
        family = context.plan.operators[self.operator].family
        for sender in sorted({placement[group] for group in self.groups} - {receiver}):
            own = tuple(group for group in self.groups if placement[group] == sender)
            size = context.connections.size(change.distribution, family, own, sender)
            RelocateGroups(family, own, sender, receiver, size, self.reason).apply(change, context)

    def _sentence(self, change: Change, context: Context, diffuser: Diffuser, hosts: list[int]) -> Sentence:
        operator = context.plan.operators[self.operator]
        size = sum(diffuser.bytes_at(change.distribution, port, self.groups) for port in range(len(operator.ports)))
        text = (
            f"{operator.name}: {numbered(self.groups)} ({format_bytes(size)}) gathered from processors "
            f"{', '.join(map(str, hosts))}, since {self.reason}"
        )
        details = {"operator": operator.name, "groups": list(self.groups), "hosts": hosts, "bytes": size}
        return Sentence(EventKind.GATHER, text, details)
