"""Diffuse partition groups: spread the rows of one input over several processors, and send those of the others to all.

That is for groups whose work is too much for any processor (paper 4); `manager/diffusion` says why it is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

from anabranch.manager.actions.numbers import to_python_numbers
from anabranch.manager.actions.sentence import Sentence
from anabranch.manager.diffusable import is_busy, obstacles, parties, port_name, undiffusable
from anabranch.manager.diffusion import Diffuser, Occasion, routes_of
from anabranch.observe.events import EventKind
from anabranch.observe.numbers import format_bytes, numbered

if TYPE_CHECKING:
    from anabranch.manager.actions.change import Change, Context


@dataclass(frozen=True, slots=True)
class DiffuseGroups:
    """Diffuse groups of an operator over `hosts`; `master` is the port, counted from 0, whose rows are spread, by the
    hosts' weights.

    Groups that are diffused already get the new routes. So many `copies` are expected: rows that are received more than
    once in a batch, all groups together; None if nobody knows.
    """

    operator: int
    groups: tuple[int, ...]
    master: int
    hosts: tuple[int, ...]
    weights: tuple[float, ...]
    reason: str
    copies: float | None = None

    def __post_init__(self) -> None:
        """Refuse what is no number."""
        to_python_numbers(self, "operator", "master", lists=("groups", "hosts"))
        object.__setattr__(self, "weights", tuple(map(float, self.weights)))

    def problem(self, change: Change, context: Context) -> str | None:
        """Why this makes no sense; None if it does."""
        plan = context.plan
        if not 0 <= self.operator < len(plan.operators):
            return f"there are {len(plan.operators)} operators with {plan.groups} partition groups each"
        operator = plan.operators[self.operator]
        if reason := undiffusable(operator, plan):
            return f"groups of the {operator.name} cannot be diffused: {reason}"
        return self.flaw(change, context)

    def flaw(self, change: Change, context: Context) -> str | None:
        """Why the groups, the master or the hosts make no sense, whether the operator runs by itself or not."""
        plan, processors = context.plan, change.distribution.processors
        operator = plan.operators[self.operator]
        what = f"groups of the {operator.name} cannot be diffused"
        if not self.groups or not plan.has_groups(self.groups):
            return f"there are {len(plan.operators)} operators with {plan.groups} partition groups each"
        if not 0 <= self.master < len(operator.ports):
            return f"{what}: it has {len(operator.ports)} inputs, counted from 0, so none is number {self.master}"
        if len(self.hosts) < 2 or len({*self.hosts}) < len(self.hosts):
            return f"{what}: name two or more processors, each once, not {list(self.hosts)}"
        if not all(0 <= host < processors for host in self.hosts):
            return f"{what}: processors are numbers from 0 to {processors - 1}, not {list(self.hosts)}"
        if len(self.weights) != len(self.hosts) or not all(weight > 0 and isfinite(weight) for weight in self.weights):
            return f"{what}: give a positive weight for each of {len(self.hosts)} processors, not {list(self.weights)}"
        return None

    def obstacle(self, change: Change) -> str | None:
        """Why it cannot be done while things are as they are; None if it can."""
        return next(obstacles(change, self.operator, self.groups), None)

    def must_wait(self, change: Change, taken: set[int]) -> bool:
        """Whether a processor takes part in another action or relocation, or state of the groups is not active."""
        if not 0 <= self.operator < len(change.distribution.routings):
            return False
        involved = parties(change, self.operator, self.groups) | {*self.hosts}
        return self.obstacle(change) is not None or is_busy(change, taken, involved)

    def apply(self, change: Change, context: Context) -> None:
        """Cut the master's state into one part per host."""
        operator = context.plan.operators[self.operator]
        routes = routes_of(len(operator.ports), self.master, self.hosts, self.weights)
        diffuser = Diffuser(context.plan, self.operator, context.cuts)
        change.reshared |= parties(change, self.operator, self.groups) | {*self.hosts}
        copies = None if self.copies is None else self.copies / len({*self.groups})
        occasion = Occasion(context.step, context.asked_at, self.reason, copies)
        change.distribution = diffuser.diffuse(change.distribution, self.groups, routes, occasion)
        change.touched |= change.reshared
        change.sentences.append(self._sentence(change, context, diffuser))

    def _sentence(self, change: Change, context: Context, diffuser: Diffuser) -> Sentence:
        plan, operator = context.plan, context.plan.operators[self.operator]
        sizes = [diffuser.bytes_at(change.distribution, port, self.groups) for port in range(len(operator.ports))]
        spread, copied = sizes[self.master], sum(sizes) - sizes[self.master]
        names = [port_name(plan, self.operator, port) for port in range(len(operator.ports))]
        master = names.pop(self.master)
        text = (
            f"{operator.name}: {numbered(self.groups)} diffused over processors {', '.join(map(str, self.hosts))}: "
            f"each row of {master} ({format_bytes(spread)} of state) goes to one of them, those of {', '.join(names)} "
            f"({format_bytes(copied)}) to all, since {self.reason}"
        )
        details = {
            "operator": operator.name,
            "groups": list(self.groups),
            "master": master,
            "hosts": list(self.hosts),
            "weights": list(self.weights),
            "spread bytes": spread,
            "replicated bytes": copied,
            "expected copies": self.copies,
        }
        return Sentence(EventKind.DIFFUSE, text, details)
