"""What a run knows of the orders of its joins, whatever plan is in force, and how often it is measured anew.

A measurement that took t seconds is not repeated before t / SHARE_OF_TIME seconds have passed, nor before there was
another step: so measuring takes less than that share of the time. Who asks earlier gets what was measured last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from anabranch.manager.order_costs import OrderCosts, QueryOrders
from anabranch.plan.orders.join_estimates import MeasuredEstimates

# Measuring takes less than this share of the time.
SHARE_OF_TIME = 0.02


@dataclass(frozen=True, slots=True)
class Course:
    """The way of a query through orders of its joins: those that it has `left` and those that were `refused`; after how
    many measurements it `migrated` last, and when that will have paid for itself."""

    left: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    migrated: int | None = None
    paid_at: float = 0.0


@dataclass(slots=True)
class OrderStatistics:
    """The `latest` costs of orders, None before the first, the estimates behind them, and the `courses`, by query.

    A run that measures because its policies ask for it goes on with that until it has `failed`. A query that is
    `unknown` has been forgotten, so orders are measured again without a pause.
    """

    latest: OrderCosts | None = None
    estimates: Mapping[str, MeasuredEstimates] = field(default_factory=dict)
    courses: dict[str, Course] = field(default_factory=dict)
    failed: bool = False
    unknown: bool = False

    @property
    def measured(self) -> int:
        """How many times there was a measurement."""
        return 0 if self.latest is None else self.latest.number

    def is_due(self, step: int, now: float) -> bool:
        """Whether there may be something new to measure after this step, and enough time has passed."""
        if step == 0 or self.latest is None or self.unknown:
            return step > 0
        pause = self.latest.seconds / SHARE_OF_TIME
        return step > self.latest.step and now - self.latest.time >= pause

    def note(
        self,
        step: int,
        now: float,
        seconds: float,
        queries: Mapping[str, QueryOrders],
        estimates: Mapping[str, MeasuredEstimates],
    ) -> None:
        """Remember a measurement that took so long."""
        self.latest = OrderCosts(self.measured + 1, step, now, seconds, queries)
        self.estimates = estimates
        self.unknown = False
        self._follow_courses()

    def forget(self, query: str) -> None:
        """Forget a query that is answered no longer, or that is another one now under the same name."""
        self.courses.pop(query, None)
        self.estimates = {name: known for name, known in self.estimates.items() if name != query}
        self.unknown = True
        if self.latest is not None:
            others = {name: orders for name, orders in self.latest.queries.items() if name != query}
            self.latest = replace(self.latest, queries=others)

    def note_migration(self, query: str, before: str, after: str, now: float) -> None:
        """Note that a query has gone from one order to another, whoever has asked for that."""
        course = self._course(query)
        paid_at = now + self._seconds_to_pay(query, before, after)
        left = (course.left | {before}) - {after}
        self.courses[query] = Course(left, course.refused, self.measured, paid_at)
        self._follow_courses()

    def refuse(self, query: str, joins: str) -> None:
        """Note that a query cannot be migrated to an order."""
        course = self._course(query)
        self.courses[query] = replace(course, refused=course.refused | {joins})
        self._follow_courses()

    def _course(self, query: str) -> Course:
        return self.courses.get(query, Course())

    def _seconds_to_pay(self, query: str, before: str, after: str) -> float:
        """How long it takes until the work that is saved is as much as that of the migration; 0 if none is saved."""
        orders = None if self.latest is None else self.latest.queries.get(query)
        plans = {plan.joins: plan for plan in orders.plans} if orders is not None else {}
        if before not in plans or after not in plans:
            return 0.0
        saved = plans[before].work - plans[after].work
        return plans[after].migration_rows / saved if saved > 0 else 0.0

    def _follow_courses(self) -> None:
        """Show in the latest costs what has become of queries."""
        if self.latest is not None:
            queries = {name: self._followed(name, orders) for name, orders in self.latest.queries.items()}
            self.latest = replace(self.latest, queries=queries)

    def _followed(self, name: str, orders: QueryOrders) -> QueryOrders:
        course = self._course(name)
        evaluations = None if course.migrated is None else self.measured - course.migrated
        return replace(
            orders, refused=course.refused, left=course.left, evaluations=evaluations, paid_at=course.paid_at
        )
