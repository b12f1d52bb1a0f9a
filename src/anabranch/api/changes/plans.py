"""The orders in which the joins of a run's queries could run, as `Run.plans` lists them and `explain` shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.api.changes.migrator import Migrator, measure_if_due
from anabranch.errors import ConfigError
from anabranch.observe.orders import order_cells
from anabranch.plan.join_order import shape_of
from anabranch.plan.orders.plan_cost import PlanCost, compared_plans
from anabranch.runtime.driver.changes.measure_orders import LISTED, latenesses
from anabranch.runtime.driver.step.context import StepContext

# The number of orders that are shown below a plan.
SHOWN = 5


def plans_of(migrator: Migrator, query: str | None = None, *, measure: bool = True) -> list[PlanCost]:
    """The orders of a query's joins, least work first. Costs are measured anew unless that was done not long ago.

    After a migration the new order counts as the one in force, even if nothing was measured since.
    """
    host, name = migrator.host, migrator.name_of(query)
    context = host.opened.runner.context
    request = next(one for one in context.plan.requests if one.name == name)
    if request.query.logical is None:
        raise ConfigError(f"the query {name!r} has no joins that could be put in another order")
    if measure:
        measure_if_due(host)
    estimates = context.run.orders.estimates.get(name)
    if estimates is None:
        raise ConfigError(f"nothing has been measured of {name!r} yet; ask while the run goes on, after a batch")
    plans = compared_plans(
        request.query.logical, shape_of(request.query), estimates, latenesses(context, request), LISTED
    )
    return [*plans[:LISTED], *(plan for plan in plans[LISTED:] if plan.in_force)]


def explained_plans(migrator: Migrator, *, measure: bool) -> Iterator[str]:
    """Lines with the best orders of each query that has several; none for queries without measured costs."""
    runner = migrator.host.opened.runner
    if measure:
        measure_if_due(migrator.host)
    for name in _with_choice(runner.context):
        plans = plans_of(migrator, name, measure=False)
        if len(plans) > 1:
            shown = [*plans[:SHOWN], *(plan for plan in plans[SHOWN:] if plan.in_force)]
            yield from ("", f"orders of the joins of {name}, least work first:", *_lines(shown))


def _with_choice(context: StepContext) -> list[str]:
    """The queries that have several orders, and measured costs."""
    known = context.run.orders.estimates
    return [
        one.name
        for one in context.plan.requests
        if one.name in known and one.query.logical is not None and len(one.query.inputs) > 2
    ]


def _lines(plans: Sequence[PlanCost]) -> Iterator[str]:
    """A table as text: the first column to the left, numbers to the right."""
    rows = list(order_cells(plan.to_json() for plan in plans))
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    for row in rows:
        numbers = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        yield "  ".join(["", row[0].ljust(widths[0]), *numbers]).rstrip()
