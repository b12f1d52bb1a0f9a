"""Reallocates the operators of a run: `Run.reallocate`, and what policies decide on.

The mechanism is `runtime/driver/changes/reallocation`. What policies decide on may be out of date when it is done: then
nobody is there who could be told of an error, so it is told as an event, and the run goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from anabranch.api.changes.migrator import Migrator
from anabranch.errors import ConfigError
from anabranch.manager.actions import PartOperator, ReallocateOperator
from anabranch.manager.actions.change import Change
from anabranch.manager.allocation.wanted import SPREAD, ForDiffusion, Wanted, can_rejoin
from anabranch.manager.distribution import Distribution
from anabranch.manager.manual import apply_diffusion, join_named
from anabranch.manager.tiers.sending import Sent
from anabranch.observe.events import EventKind, EventLog
from anabranch.plan.allocation import Allocation
from anabranch.runtime.compile.prepared import PreparedPlan
from anabranch.runtime.driver.changes.manual import diffused
from anabranch.runtime.driver.changes.reallocation import Edit, reallocate
from anabranch.runtime.driver.open_run import OpenedRun
from anabranch.runtime.driver.step.context import StepContext

ON_REQUEST = "it was asked for"
NOT_DIFFUSED = "no group of it is diffused any more"


class AllocatingHost(Protocol):
    """A run whose operators can go elsewhere, between two of its batches."""

    opened: OpenedRun
    events: EventLog

    def allocate(self, plan: PreparedPlan, allocation: Allocation) -> PreparedPlan:
        """Compile the rounds of its plan for operators that are elsewhere."""


class Reallocator:
    """Reallocates operators of a run. The host sees to it that nothing else changes the run meanwhile."""

    def __init__(self, host: AllocatingHost, migrator: Migrator) -> None:
        """Of a run that may not be open yet."""
        self._host = host
        self._migrator = migrator
        self._refused_after = -1  # the step after which operators could not join their kin again

    def reallocate(
        self,
        operators: str | Sequence[str],
        to: int | str | None,
        *,
        subplan: bool = False,
        apart: bool = False,
        reason: str = ON_REQUEST,
    ) -> None:
        """Let operators go on at a processor, or at all of them."""
        named = _named("an operator", operators)
        self._migrator.check_idle("no operator can be reallocated")
        self._go([Wanted(named, SPREAD if to is None else to, reason, subplan, apart)])

    def send(self, queries: str | Sequence[str], to: str) -> None:
        """Let queries go on in another cluster of processors, with all their operators and the state of these."""
        named = _named("a query", queries)
        self._migrator.check_idle("no query can be sent")
        several = "queries" if len(named) > 1 else "query"
        self._go([Sent(named, to, f"the {several} {', '.join(map(repr, named))} went to the cluster {to!r}")])

    def diffuse(self, groups: Sequence[int], master: str, hosts: Sequence[int], operator: str | None) -> None:
        """Diffuse groups of a join. If it runs fused with others it parts from them, in the same step."""
        runner = self._host.opened.runner
        shape = join_named(runner.context.shape, operator)
        if shape.number not in runner.context.shape.joins or not runner.context.shape.fused_with(shape.number):
            runner.manual.diffuse(groups, master, hosts, operator)
            return
        self._migrator.check_idle(f"the {shape.name} cannot be set apart from what it is fused with to be diffused")

        def edit(context: StepContext, distribution: Distribution) -> Change:
            _check_nothing_moves(context, shape.family, shape.name)
            return diffused(context, distribution, groups, master, hosts, shape.name)

        self._go([Wanted((shape.name,), ForDiffusion.PART, f"{ON_REQUEST} to diffuse groups of it")], edit)

    def undiffuse(self, groups: Sequence[int], receiver: int | None, operator: str | None) -> None:
        """Gather groups. Operators that were set apart to be diffused join the others again if nothing of them is
        diffused any more; then groups that are to be elsewhere go there with all of these."""
        runner = self._host.opened.runner
        routings = runner.context.in_force.distribution.routings
        names = [shape.name for shape in runner.context.shape.operators]
        gathered = {
            name: [group for group in groups if routing.routes(group) is not None]
            for name, routing in zip(names, routings, strict=True)
        }
        runner.manual.undiffuse(groups, receiver, operator)
        for name in self._rejoin():
            if receiver is not None and gathered[name]:
                self._host.opened.runner.manual.relocate(gathered[name], receiver, name, None)

    @property
    def has_work(self) -> bool:
        """Whether policies have decided on something that is not done yet, or operators can join their kin again."""
        return bool(self._host.opened.runner.context.run.reallocations or self._rejoining)

    def go_on(self) -> None:
        """Do what policies have decided on, unless a query migrates: they will decide again.

        A decision is on the list until it is done or given up, so policies see what has become of it.
        """
        decided = self._host.opened.runner.context.run.reallocations
        actions = list(decided)
        try:
            if self._migrator.current is None:
                self._carry_out(actions)
        finally:
            for _ in actions:
                decided.popleft()
        if self._rejoining and not self._try(self._rejoin, self._rejoining):
            self._refused_after = self._last_step

    def _carry_out(self, actions: Sequence[ReallocateOperator | PartOperator]) -> None:
        """Move operators, all in one step, and set others apart, each in a step of its own."""
        moves = [action for action in actions if isinstance(action, ReallocateOperator)]
        if moves:
            self._try(lambda: self._reallocate_all(moves), [action.name for action in moves])
        for action in actions:
            if isinstance(action, PartOperator):
                self._try(partial(self._part, action), [action.name])

    def _try(self, change: Callable[[], object], names: Sequence[str]) -> bool:
        """Make a change that policies want; whether that was possible. If not, an event tells why."""
        try:
            change()
        except Exception as error:
            if self._host.opened.runner.can_change:
                self._host.events.add(EventKind.WARNING, f"{', '.join(names)}: no reallocation, since {error}")
            return False
        return True

    def _reallocate_all(self, actions: Sequence[ReallocateOperator]) -> None:
        self._go([Wanted((action.name,), action.processor, action.reason) for action in actions])

    def _part(self, action: PartOperator) -> None:
        """Set an operator apart and diffuse groups of it, unless that has been done in the meantime."""
        plan = self._host.opened.runner.context.shape
        numbers = [shape.number for shape in plan.operators if shape.name == action.name]
        if not {*numbers} & {*plan.partable}:
            return

        def edit(context: StepContext, distribution: Distribution) -> Change:
            _check_nothing_moves(context, plan.operators[numbers[0]].family, action.name)
            change = Change(distribution, hold=dict(context.in_force.last.hold if context.in_force.last else {}))
            of_step = context.decision_maker.context(context.run.checkpoint.next_number)
            for diffusion in action.diffusions:
                apply_diffusion(replace(diffusion, operator=numbers[0]), change, of_step)
            return change

        self._go([Wanted((action.name,), ForDiffusion.PART, action.reason)], edit)

    @property
    def _rejoining(self) -> list[str]:
        """The operators that were set apart to be diffused and can join their kin again."""
        context = self._host.opened.runner.context
        in_force = context.in_force
        if not in_force.parted or self._migrator.current is not None or self._refused_after == self._last_step:
            return []
        return can_rejoin(context.shape, in_force.distribution, in_force.allocation)

    @property
    def _last_step(self) -> int:
        return self._host.opened.runner.status.last_number

    def _rejoin(self) -> list[str]:
        """Let operators join their kin again; their names."""
        names = self._rejoining
        if names:
            self._go([Wanted(tuple(names), ForDiffusion.REJOIN, NOT_DIFFUSED)])
        return names

    def _go(self, wanted: Sequence[Wanted | Sent], edit: Edit | None = None) -> None:
        host = self._host
        try:
            host.opened = reallocate(host.opened, wanted, host.allocate, edit)
        except ConfigError:
            if host.opened.runner.failure is not None:
                raise host.opened.runner.failure from None
            raise


def _named(what: str, given: object) -> tuple[str, ...]:
    """The names that a user gives, one or several; refused if they are no names."""
    names = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)
    for name in names:
        if not isinstance(name, str):
            raise ConfigError(f"give the name of {what}, or a list of names, not {given!r}")
    return tuple(map(str, names))


def _check_nothing_moves(context: StepContext, family: int, name: str) -> None:
    """Refuse to set an operator apart while groups of its family are on their way."""
    if any(relocation.move.family == family for relocation in context.in_force.distribution.moving):
        raise ConfigError(
            f"groups of the {name} are on their way to another processor, and of what it is fused with; set it apart "
            "when they have arrived"
        )
