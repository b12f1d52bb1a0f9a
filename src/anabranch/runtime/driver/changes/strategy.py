"""By which strategy a query migrates where that is left to us, and what each is predicted to take.

`plan/orders/migration_choice` predicts and chooses; here it gets what was measured: rows that orders have in state and
make per second, how many rows of work recent steps have done per second, and which share of the time they leave over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anabranch.errors import ConfigError
from anabranch.plan.orders.join_estimates import Estimates
from anabranch.plan.orders.join_orders import Wish
from anabranch.plan.orders.migration_choice import (
    STRATEGIES,
    Capacity,
    Prediction,
    Strategy,
    choose,
    migration_between,
    predicted,
)
from anabranch.runtime.driver.changes.measure_orders import RECENT_BATCHES, latenesses
from anabranch.runtime.driver.changes.migration import MigrationProposal, check_ends
from anabranch.runtime.driver.step.context import StepContext

# A pause that is shorter than this is none: a batch takes as long.
UNNOTICED = 1.0
# Small steps take as long as Spark needs around them and say nothing of what they could do; at least this, in rows.
LEAST_PER_SECOND = 100_000.0
# How much of their time batches leave over where that cannot be known.
USUAL_SPARE = 0.25


def predictions(
    context: StepContext, proposal: MigrationProposal, estimates: Estimates
) -> Mapping[Strategy, Prediction]:
    """What the strategies that are possible are predicted to take."""
    request = next(one for one in context.plan.requests if one.name == proposal.query)
    assert request.query.logical is not None, "it has joins"
    lateness = latenesses(context, request)
    migration = migration_between(request.query.logical, proposal.before, proposal.after, estimates, lateness)
    capacity = capacity_of(context)
    made = {strategy: predicted(strategy, migration, capacity, in_order=False) for strategy in STRATEGIES}
    if not _ends(proposal):
        made["parallel-track"] = None
    return {strategy: prediction for strategy, prediction in made.items() if prediction is not None}


def best_strategy(possible: Mapping[Strategy, Prediction], wish: Wish) -> Strategy:
    """The strategy to take."""
    felt = [
        replace(prediction, silence=0.0) if prediction.silence < UNNOTICED else prediction
        for prediction in possible.values()
    ]
    chosen = choose(felt, wish)
    assert chosen is not None, "state can always be moved at once"
    return chosen.strategy


def capacity_of(context: StepContext) -> Capacity:
    """How many rows a second of recent steps has worked on at best, and how much time they leave over."""
    recent = [result for result in list(context.run.results) if result.seconds > 0][-RECENT_BATCHES:]
    speeds = [sum(sum(report.worked) for report in result.reports) / result.seconds for result in recent]
    elapsed = recent[-1].time - recent[0].time if recent else 0.0
    busy = sum(result.seconds for result in recent[1:]) / elapsed if elapsed > 0 else 1 - USUAL_SPARE
    return Capacity(max([LEAST_PER_SECOND, *speeds]), spare=min(max(1 - busy, 0.0), 1.0))


def _ends(proposal: MigrationProposal) -> bool:
    """Whether a parallel track comes to an end."""
    try:
        check_ends(proposal)
    except ConfigError:
        return False
    return True
