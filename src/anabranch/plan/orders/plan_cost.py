"""The orders in which a query's joins could run, with what each costs now: what `run.plans()` lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from anabranch.plan.arrangement import Shape
from anabranch.plan.orders.join_estimates import Estimates
from anabranch.plan.orders.join_orders import RANKINGS, Wish, best_orders
from anabranch.plan.orders.migration_choice import migration_between
from anabranch.plan.orders.order_cost import JoinOrderCost, order_cost
from anabranch.plan.query import LogicalQuery


@dataclass(frozen=True, slots=True)
class PlanCost:
    """An order of joins and what it costs.

    `joins` is what `migrate` takes. `intermediate_rate` are the joined rows per second that go from one operator to the
    next, `state_rows` those of them that lie in state, `exchanges` the shuffles of a batch that follow each other, and
    `work` is in rows per second that are probed with, exchanged or made. To go on with it from the order `in_force`,
    `migration_rows` have to be read and made.
    """

    joins: str
    intermediate_rate: float
    state_rows: float
    exchanges: int
    work: float
    migration_rows: float = 0.0
    in_force: bool = False

    def to_json(self) -> dict[str, Any]:
        """As it is put on record."""
        return asdict(self)

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> PlanCost:
        """The inverse of `to_json`."""
        return cls(**body)


# What is compared first, second and third, as `join_orders` ranks.
_RANKINGS: dict[Wish, Callable[[PlanCost], tuple[float, ...]]] = {
    "work": lambda plan: (plan.work, plan.state_rows, plan.exchanges),
    "latency": lambda plan: (plan.exchanges, plan.work, plan.state_rows),
    "memory": lambda plan: (plan.state_rows, plan.work, plan.exchanges),
}


def compared_plans(
    query: LogicalQuery, running: Shape, estimates: Estimates, lateness: Sequence[int | None], most: int
) -> tuple[PlanCost, ...]:
    """The `most` best orders by each wish, and the one that is `running`, least work first.

    The lateness of its streams is in microseconds.
    """
    now = order_cost(query, running, estimates)
    costs = {_unordered(now): now}
    for wish in RANKINGS:
        for cost in best_orders(query, estimates, wish, most):
            costs.setdefault(_unordered(cost), cost)

    def compared(cost: JoinOrderCost) -> PlanCost:
        # Plain floats: samples count with NumPy, whose numbers print as np.float64(...).
        rate, rows, work = map(float, (cost.intermediate_rate, cost.intermediate_rows, cost.work))
        plan = PlanCost(cost.text, rate, rows, cost.exchanges, work)
        if cost is now:
            return replace(plan, in_force=True)
        migration = migration_between(query, running, cost.shape, estimates, lateness)
        return replace(plan, migration_rows=float(migration.replayed))

    return ranked(map(compared, costs.values()), "work")


def ranked(plans: Iterable[PlanCost], wish: Wish) -> tuple[PlanCost, ...]:
    """Plans with the best first; among equals the one in force."""
    return tuple(sorted(plans, key=lambda plan: (*_RANKINGS[wish](plan), not plan.in_force, plan.joins)))


def _unordered(cost: JoinOrderCost) -> tuple[object, ...]:
    """What tells orders apart: the tree without the order of parts, and the work, as that order may decide on a key."""
    return _tree(cost.shape), round(cost.work, 6), cost.exchanges


def _tree(shape: Shape) -> object:
    return shape if isinstance(shape, int) else frozenset(map(_tree, shape))
