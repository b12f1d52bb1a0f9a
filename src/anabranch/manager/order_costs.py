"""What the orders of joins cost at a moment, as policies see it, and as a checkpoint keeps it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from anabranch.plan.orders.plan_cost import PlanCost
from anabranch.state.store import Json


@dataclass(frozen=True, slots=True)
class QueryOrders:
    """The orders in which a query's joins could run, least work first, the one in force included.

    `rates` are arriving rows per second, `stored` rows in state, both by alias. Orders in `refused` cannot be migrated
    to while the query runs, and those that it has `left` were in force before. There were so many `evaluations` since
    it migrated last, None if it has not; that will have paid for itself at the time `paid_at`.
    """

    plans: tuple[PlanCost, ...]
    rates: Mapping[str, float] = field(default_factory=dict)
    stored: Mapping[str, int] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()
    evaluations: int | None = None
    paid_at: float = 0.0

    @property
    def in_force(self) -> PlanCost:
        """The order in force."""
        return next(plan for plan in self.plans if plan.in_force)


@dataclass(frozen=True, slots=True)
class OrderCosts:
    """The orders of all queries with joins, by name, after a step.

    They have a `number`, from 1 on, are of a `time` by the driver's clock, and it took `seconds` to sample state for
    them.
    """

    number: int
    step: int
    time: float
    seconds: float
    queries: Mapping[str, QueryOrders]

    def of_queries(self, queries: Collection[str]) -> OrderCosts:
        """The same, of some queries alone."""
        return replace(self, queries={name: orders for name, orders in self.queries.items() if name in queries})

    def to_json(self) -> Json:
        """As a checkpoint keeps it."""
        return {
            "step": self.step,
            "time": self.time,
            "seconds": self.seconds,
            "queries": {
                name: {
                    "plans": [plan.to_json() for plan in orders.plans],
                    "rates": dict(orders.rates),
                    "stored": dict(orders.stored),
                }
                for name, orders in self.queries.items()
            },
        }

    @classmethod
    def from_json(cls, body: Json) -> OrderCosts:
        """What `to_json` has made a document of; it counts as the first."""
        queries = {
            name: QueryOrders(tuple(map(PlanCost.from_json, entry["plans"])), entry["rates"], entry["stored"])
            for name, entry in body["queries"].items()
        }
        return cls(1, body["step"], body["time"], body["seconds"], queries)
