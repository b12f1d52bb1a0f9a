"""Reallocates the operators of a run: `Run.reallocate`, and what policies decide on.

The mechanism is `runtime/driver/changes/reallocation`. What policies decide on may be out of date when it is done: then
nobody is there who could be told of an error, so it is told as an event, and the run goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from anabranch.api.changes.migrator import Migrator
from anabranch.errors import ConfigError
from anabranch.manager.actions import ReallocateOperator
from anabranch.manager.allocation.wanted import SPREAD, Wanted
from anabranch.manager.tiers.sending import Sent
from anabranch.observe.events import EventKind, EventLog
from anabranch.plan.allocation import Allocation
from anabranch.runtime.compile.prepared import PreparedPlan
from anabranch.runtime.driver.changes.reallocation import reallocate
from anabranch.runtime.driver.open_run import OpenedRun

ON_REQUEST = "it was asked for"


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
        named = (operators,) if isinstance(operators, str) else tuple(operators)
        self._migrator.check_idle("no operator can be reallocated")
        self._go([Wanted(named, SPREAD if to is None else to, reason, subplan, apart)])

    def send(self, queries: str | Sequence[str], to: str) -> None:
        """Let queries go on in another cluster of processors, with all their operators and the state of these."""
        named = (queries,) if isinstance(queries, str) else tuple(queries)
        self._migrator.check_idle("no query can be sent")
        several = "queries" if len(named) > 1 else "query"
        self._go([Sent(named, to, f"the {several} {', '.join(map(repr, named))} went to the cluster {to!r}")])

    @property
    def has_work(self) -> bool:
        """Whether policies have decided on something that is not done yet."""
        return bool(self._host.opened.runner.context.run.reallocations)

    def go_on(self) -> None:
        """Do what policies have decided on, unless a query migrates: they will decide again."""
        decided = self._host.opened.runner.context.run.reallocations
        actions: list[ReallocateOperator] = []
        while decided:
            actions.append(decided.popleft())
        if not actions or self._migrator.current is not None:
            return
        try:
            self._go([Wanted((action.name,), action.processor, action.reason) for action in actions])
        except Exception as error:
            if self._host.opened.runner.can_change:
                names = ", ".join(action.name for action in actions)
                self._host.events.add(EventKind.WARNING, f"{names}: no reallocation, since {error}")

    def _go(self, wanted: Sequence[Wanted | Sent]) -> None:
        host = self._host
        try:
            host.opened = reallocate(host.opened, wanted, host.allocate)
        except ConfigError:
            if host.opened.runner.failure is not None:
                raise host.opened.runner.failure from None
            raise
