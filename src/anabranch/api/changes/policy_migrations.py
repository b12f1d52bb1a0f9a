"""Migrations that policies decide on: measure orders of joins for the policies, and begin the migrations they choose.

No caller waits for such a migration. So an error becomes an event, the migration is not tried again, and the run goes
on.
"""

from __future__ import annotations

from anabranch.api.changes.migrator import Migrator, measure_if_due
from anabranch.errors import ConfigError, QueryError
from anabranch.manager.actions import MigrateQuery
from anabranch.observe.events import EventKind
from anabranch.runtime.driver.step.context import StepContext


class PolicyMigrations:
    """Begins the migrations that policies have decided on, and measures the orders of joins for them."""

    def __init__(self, migrator: Migrator) -> None:
        """Take the migrator of a run; it need not be open yet."""
        self._migrator = migrator

    @property
    def has_work(self) -> bool:
        """Whether a migration is under way, or policies have decided on one."""
        return self._migrator.current is not None or bool(self._context.run.migrations)

    def go_on(self) -> None:
        """Advance the migration under way. If there is none, begin the one that policies have decided on; others are
        dropped, since policies will decide on them again."""
        self._migrator.go_on()
        decided = self._context.run.migrations
        while decided:
            migration = decided.popleft()
            if self._migrator.current is None:
                self._begin(migration)

    def measure(self) -> None:
        """Measure orders of joins, if policies go by them and it is time for that.

        It may be called while another thread changes the run, since it waits until no step is made. If that one has
        closed the run's gate, as to start Spark's query anew, nothing is measured this time.
        """
        if self.measures:
            runner = self._migrator.host.opened.runner
            try:
                measure_if_due(self._migrator.host)
            except Exception as error:
                if runner.can_change:
                    self._give_up(f"orders of joins are measured no longer: {error}")

    @property
    def _context(self) -> StepContext:
        return self._migrator.host.opened.runner.context

    @property
    def measures(self) -> bool:
        """Whether policies compare orders of joins, and a query that does not migrate has several."""
        context = self._context
        queries = [request.query for request in context.plan.requests]
        has_choice = any(query.logical and len(query.inputs) > 2 for query in queries)
        compares = context.decision_maker.compares_orders and not context.run.orders.failed
        return self._migrator.current is None and compares and has_choice

    def _begin(self, migration: MigrateQuery) -> None:
        query, joins = migration.query, migration.joins
        try:
            self._migrator.begin(joins, migration.strategy, query, reason=migration.reason, wish=migration.wish)
        except (ConfigError, QueryError) as error:
            self._context.run.orders.refuse(query, joins)
            self._warn(f"{query} does not migrate to {joins}: {error}")
        except Exception as error:
            self._give_up(f"migrating {query} to {joins} has failed: {error}")

    def _give_up(self, message: str) -> None:
        self._context.run.orders.failed = True
        self._warn(message)

    def _warn(self, message: str) -> None:
        """Add a warning to the events, unless the error only says that the run ends."""
        if self._migrator.host.opened.runner.can_change:
            self._migrator.host.events.add(EventKind.WARNING, message)
