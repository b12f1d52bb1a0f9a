"""Migrating queries to a cheaper order of their joins when rates or selectivities have changed (paper 3).

Every measurement of what orders cost (`order_costs`) is an evaluation. A migration is asked for when in two evaluations
one after the other the best order costs less than the order in force divided by `gain`. What is compared, and which
order is the best, depends on the wish: rows of work per second ("work"); the same, among orders that need no more
exchanges than the one in force ("latency"); joined rows in state ("memory").

It never goes to and fro. After a migration of a query, whoever asked for it, nothing is asked for it before

- `evaluations` measurements were made, so that arrivals and state are those of the new order, and
- as much time has passed as the change takes to pay for itself: the rows that it reads and makes, divided by the rows
  of work per second that it is to save.

And an order that was left has to be better by the square of `gain` to be gone back to: whatever two orders gain over
each other in turn by chance, or by a change that does not last, has to be that much more than what is enough to go
somewhere new.

What a query has been through comes with the costs (`order_statistics`), since a policy begins anew with each plan.

Limits: costs are estimates. What they do not see (conditions that are no equalities, skew within a class) can make an
order look cheaper than it is; it is then left only for one that looks cheaper still.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from anabranch.errors import ConfigError, did_you_mean
from anabranch.manager.actions import MigrateQuery
from anabranch.manager.order_costs import QueryOrders
from anabranch.manager.policies.arguments import is_number
from anabranch.manager.snapshot import Snapshot
from anabranch.plan.orders.join_orders import Wish
from anabranch.plan.orders.migration_choice import STRATEGIES
from anabranch.plan.orders.plan_cost import PlanCost

AUTO = "auto"
# In so many evaluations one after the other an order has to be better.
IN_A_ROW = 2

# By wish: what is compared, and what it is called.
_COSTS: dict[str, tuple[Callable[[PlanCost], float], str]] = {
    "work": (lambda plan: plan.work, "rows of work per second"),
    "latency": (lambda plan: plan.work, "rows of work per second"),
    "memory": (lambda plan: plan.state_rows, "joined rows in state"),
}


@dataclass(slots=True)
class AutoMigrate:
    """Go on with another order of joins when that is much cheaper.

    Args:
        gain: how many times cheaper the best order has to be, above 1.
        strategy: how to migrate: as for `Run.migrate`.
        wish: what counts: "latency", "memory" or "work".
        evaluations: how many measurements there are from one migration of a query to the next, at least.
    """

    gain: float = 1.5
    strategy: str = AUTO
    wish: Wish = "latency"
    evaluations: int = 3
    _evaluated: int = field(default=0, init=False, repr=False, compare=False)
    _in_a_row: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse what makes no sense at once."""
        if not is_number(self.gain) or not 1 < self.gain < float("inf"):
            raise ConfigError(f"gain says how many times cheaper an order has to be, above 1, not {self.gain!r}")
        for what, value, choices in (
            ("strategy", self.strategy, (AUTO, *STRATEGIES)),
            ("wish", self.wish, tuple(_COSTS)),
        ):
            if value not in choices:
                raise ConfigError(f"there is no {what} {value!r}; {did_you_mean(str(value), choices)}")
        if not isinstance(self.evaluations, int) or isinstance(self.evaluations, bool) or self.evaluations < 1:
            raise ConfigError(f"evaluations must be a positive whole number, not {self.evaluations!r}")

    @property
    def compares_orders(self) -> bool:
        """What orders cost has to be measured for this."""
        return True

    def decide(self, snapshot: Snapshot) -> Iterator[MigrateQuery]:
        """Yield migrations."""
        orders = snapshot.orders
        if orders is None or orders.number == self._evaluated:
            return
        self._evaluated = orders.number
        for name, of_query in orders.queries.items():
            wanted = self._evaluate(name, of_query, snapshot.time)
            if wanted is not None:
                yield wanted

    def _evaluate(self, name: str, orders: QueryOrders, now: float) -> MigrateQuery | None:
        running, best = orders.in_force, self._best(orders)
        cost, unit = _COSTS[self.wish]
        needed = self.gain**2 if best.joins in orders.left else self.gain
        is_better = best is not running and cost(running) > needed * cost(best)
        in_a_row = self._in_a_row[name] = self._in_a_row.get(name, 0) + 1 if is_better else 0
        rests = orders.evaluations is not None and (orders.evaluations < self.evaluations or now < orders.paid_at)
        if in_a_row < IN_A_ROW or rests:
            return None
        self._in_a_row[name] = 0
        reason = f"{cost(best):,.0f} instead of {cost(running):,.0f} {unit} are to be expected"
        return MigrateQuery(name, best.joins, reason, self.strategy, self.wish)

    def _best(self, orders: QueryOrders) -> PlanCost:
        """The best order, the one in force included."""
        running = orders.in_force
        possible = [plan for plan in orders.plans if plan.joins not in orders.refused]
        if self.wish == "latency":
            possible = [plan for plan in possible if plan.exchanges <= running.exchanges]
        cost, _ = _COSTS[self.wish]
        return min([running, *possible], key=lambda plan: (cost(plan), plan.work))
