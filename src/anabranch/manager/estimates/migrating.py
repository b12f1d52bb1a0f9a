"""Migration to another order of joins: fewer rows are probed, exchanged and made, and state has to be made once.

Orders are compared in rows per second (`order_costs`). A row costs what operators took for one in the last batches,
and processors share them alike. No more is gained than the share of the work that the new order saves.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.manager.actions import MigrateQuery
from anabranch.manager.arbitration.proposal import Estimate
from anabranch.manager.estimates.estimator import PLAN_SECONDS, Circumstances


def estimate_migration(actions: Sequence[MigrateQuery], circumstances: Circumstances) -> Estimate:
    """Migrations of queries; those to orders whose costs are not known gain nothing."""
    snapshot, workload = circumstances.snapshot, circumstances.workload
    processors = len(snapshot.processors)
    row_seconds = workload.row_seconds / processors
    load = workload.busiest(snapshot.numbers)
    saved = costs = 0.0
    for action in actions:
        orders = None if snapshot.orders is None else snapshot.orders.queries.get(action.query)
        best = next((plan for plan in orders.plans if plan.joins == action.joins), None) if orders else None
        if orders is None or best is None:
            continue
        running = orders.in_force
        rows = (running.work - best.work) * workload.seconds
        share = 1 - best.work / running.work if running.work > 0 else 0.0
        saved += min(rows * row_seconds, share * load)
        costs += best.migration_rows * row_seconds + PLAN_SECONDS
    return Estimate(load, load - saved, circumstances.lasting, costs=costs)
