"""Migrations that policies decide on: orders of joins are measured for them, and what they decide on is begun.

Nobody is there who could be told of an error. What fails is told as an event, and not tried again; the run goes on.
"""

from __future__ import annotations

from anabranch.api.changes.migrator import Migrator, measure_if_due
from anabranch.errors import ConfigError
from anabranch.manager.actions import MigrateQuery
from anabranch.observe.events import EventKind
from anabranch.runtime.driver.step.context import StepContext


class PolicyMigrations:
    """Begins what policies have decided on, and measures what they go by."""

    def __init__(self, migrator: Migrator) -> None:
        """Of a run that may not be open yet."""
        self._migrator = migrator

    @property
    def has_work(self) -> bool:
        """Whether a migration is under way, or there is one to begin."""
        return self._migrator.current is not None or bool(self._context.run.migrations)

    def go_on(self) -> None:
        """Go on with the migration under way, and begin what policies have decided on, unless there is one already:
        they will decide on it again."""
        self._migrator.go_on()
        decided = self._context.run.migrations
        while decided:
            migration = decided.popleft()
            if self._migrator.current is None:
                self._begin(migration)

    def measure(self) -> None:
        """Measure orders of joins, if policies go by them and it is time for that.

        It may be called while somebody else changes the run, since it waits until no step is made.
        """
        if self._migrator.current is None and self._is_measured:
            try:
                measure_if_due(self._migrator.host)
            except Exception as error:
                self._give_up(f"orders of joins are measured no longer: {error}")

    @property
    def _context(self) -> StepContext:
        return self._migrator.host.opened.runner.context

    @property
    def _is_measured(self) -> bool:
        """Whether policies go by orders of joins, of which there are several."""
        context = self._context
        has_choice = any(one.query.logical and len(one.query.inputs) > 2 for one in context.plan.requests)
        return has_choice and context.decision_maker.compares_orders and not context.run.orders.failed

    def _begin(self, migration: MigrateQuery) -> None:
        query, joins = migration.query, migration.joins
        try:
            self._migrator.begin(joins, migration.strategy, query, reason=migration.reason, wish=migration.wish)
        except ConfigError as error:
            self._context.run.orders.refuse(query, joins)
            self._warn(f"{query} does not migrate to {joins}: {error}")
        except Exception as error:
            self._give_up(f"migrating {query} to {joins} has failed: {error}")

    def _give_up(self, told: str) -> None:
        self._context.run.orders.failed = True
        self._warn(told)

    def _warn(self, told: str) -> None:
        """Tell it, unless all that has happened is that the run ends."""
        if self._migrator.host.opened.runner.can_change:
            self._migrator.host.events.add(EventKind.WARNING, told)
