"""The strategy of a migration, if the user names none, and the predicted cost of each strategy.

`plan/orders/migration_choice` predicts and chooses. This module feeds it with measurements:

- the rows that each order stores, and makes per second;
- the seconds that kernels take per row on this machine (`kernel/constants`, once per process, when first needed);
- how much longer than that recent steps took for their rows, and how long for everything else;
- the share of the time that batches leave over.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from statistics import median

from anabranch.errors import ConfigError
from anabranch.kernel.constants import measured_constants
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
from anabranch.plan.orders.migration_cost import Constants, Work
from anabranch.runtime.driver.changes.measure_orders import RECENT_BATCHES, latenesses
from anabranch.runtime.driver.changes.migration import MigrationProposal, check_ends
from anabranch.runtime.driver.step.context import StepContext
from anabranch.runtime.driver.step.result import StepResult

# A pause counts as none if it is not longer than this many seconds, or than this many batches usually take.
UNNOTICED = 1.0
UNNOTICED_BATCHES = 1.5
# Steps with fewer rows of work do not show the time per row: most of their time goes to what any step needs.
TELLING_ROWS = 20_000
# The share of the time that batches leave over, where it cannot be measured.
USUAL_SPARE = 0.25


@cache
def kernel_constants() -> Constants:
    """The seconds that kernels take per row on this machine."""
    return measured_constants(time.perf_counter)


def predictions(
    context: StepContext, proposal: MigrationProposal, estimates: Estimates, cores: int
) -> Mapping[Strategy, Prediction]:
    """The predicted cost of every possible strategy, where Spark has some number of cores."""
    request = next(one for one in context.plan.requests if one.name == proposal.query)
    assert request.query.logical is not None, "it has joins"
    lateness = latenesses(context, request)
    migration = migration_between(request.query.logical, proposal.before, proposal.after, estimates, lateness)
    lanes = min(context.in_force.distribution.processors, cores)
    capacity = capacity_of(list(context.run.results), kernel_constants(), lanes)
    made = {strategy: predicted(strategy, migration, capacity, in_order=False) for strategy in STRATEGIES}
    if not _ends(proposal):
        made["parallel-track"] = None
    return {strategy: prediction for strategy, prediction in made.items() if prediction is not None}


def best_strategy(possible: Mapping[Strategy, Prediction], wish: Wish, results: Sequence[StepResult]) -> Strategy:
    """Choose a strategy by a wish; a pause that is short against `results`, the recent steps, counts as none."""
    usual = median(result.seconds for result in results[-RECENT_BATCHES:]) if results else 0.0
    unnoticed = max(UNNOTICED, UNNOTICED_BATCHES * usual)
    felt = [
        replace(prediction, silence=0.0) if prediction.silence <= unnoticed else prediction
        for prediction in possible.values()
    ]
    chosen = choose(felt, wish)
    assert chosen is not None, "state can always be moved at once"
    return chosen.strategy


def capacity_of(results: Sequence[StepResult], constants: Constants, lanes: int) -> Capacity:
    """Estimate from recent steps how long work takes. The fixed time of a step is the least time that any of them took
    beside the work on its rows."""
    recent = [result for result in results if result.seconds > 0][-RECENT_BATCHES:]
    works = [_work_of(result) for result in recent]
    telling = [n for n, work in enumerate(works) if work.inserted >= TELLING_ROWS]
    by_kernels = sum(works[n].seconds(constants) for n in telling)
    measured = sum(sum(report.operator_cpu_ms) / 1000 for n in telling for report in recent[n].reports)
    elapsed = recent[-1].time - recent[0].time if recent else 0.0
    busy = sum(result.seconds for result in recent[1:]) / elapsed if elapsed > 0 else 1 - USUAL_SPARE
    capacity = Capacity(
        constants,
        spare=min(max(1 - busy, 0.0), 1.0),
        strain=max(measured / by_kernels, 1.0) if telling else 1.0,
        lanes=lanes,
    )
    besides = [result.seconds - capacity.seconds(work) for result, work in zip(recent, works, strict=True)]
    return replace(capacity, step=max(min(besides, default=0.0), 0.0))


def _work_of(result: StepResult) -> Work:
    """The work of a step: rows that came to operators were looked up and stored; results were made."""
    worked = sum(sum(report.worked) for report in result.reports)
    return Work(worked + sum(sum(report.produced) for report in result.reports), worked)


def _ends(proposal: MigrationProposal) -> bool:
    """Whether a parallel track comes to an end."""
    try:
        check_ends(proposal)
    except ConfigError:
        return False
    return True
