"""What a run knows of the orders of its joins, whatever plan is in force, and how often it is measured anew.

A measurement that took t seconds is not repeated before t / SHARE_OF_TIME seconds have passed, nor before there was
another step: so measuring takes less than that share of the time. Who asks earlier gets what was measured last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from anabranch.manager.order_costs import OrderCosts, QueryOrders
from anabranch.plan.join_estimates import MeasuredEstimates

# Measuring takes less than this share of the time.
SHARE_OF_TIME = 0.02


@dataclass(slots=True)
class OrderStatistics:
    """The `latest` costs of orders, None before the first, and the estimates behind them by query.

    Orders are `refused`, by query, if a migration to them was. A run that measures because its policies ask for it goes
    on with that until it has `failed`.
    """

    latest: OrderCosts | None = None
    estimates: Mapping[str, MeasuredEstimates] = field(default_factory=dict)
    refused: dict[str, frozenset[str]] = field(default_factory=dict)
    failed: bool = False

    @property
    def measured(self) -> int:
        """How many times there was a measurement."""
        return 0 if self.latest is None else self.latest.number

    def is_due(self, step: int, now: float) -> bool:
        """Whether there may be something new to measure after this step, and enough time has passed."""
        if step == 0 or self.latest is None:
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
        self.latest = OrderCosts(self.measured + 1, step, now, seconds, self._without_refused(queries))
        self.estimates = estimates

    def refuse(self, query: str, joins: str) -> None:
        """Note that a query cannot be migrated to an order."""
        self.refused[query] = self.refused.get(query, frozenset()) | {joins}
        if self.latest is not None:
            self.latest = replace(self.latest, queries=self._without_refused(self.latest.queries))

    def _without_refused(self, queries: Mapping[str, QueryOrders]) -> dict[str, QueryOrders]:
        return {name: replace(orders, refused=self.refused.get(name, frozenset())) for name, orders in queries.items()}
