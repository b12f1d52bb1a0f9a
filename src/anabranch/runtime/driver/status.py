"""The state of a run after its last step: rows that wait and results that are owed.

The driver reads it to decide whether another step is needed; users see parts of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from anabranch.manager.allocation.table import DistributionTable, distribution_table
from anabranch.manager.costs import CostModel, CpuTime
from anabranch.manager.costs.cost_table import check_cost
from anabranch.manager.memory.debt import owes
from anabranch.manager.runtime_monitor import Moment, RuntimeMonitor
from anabranch.manager.waiting import is_spilled, rows_wait
from anabranch.plan.explain import Measured
from anabranch.plan.placement import Placement
from anabranch.runtime.driver.step.context import StepContext
from anabranch.state.report import Report


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a run after its last step. It reads the step context each time, so it stays true."""

    context: StepContext

    @property
    def last_number(self) -> int:
        """The number of the last committed step; 0 before the first."""
        last = self.context.in_force.last
        return last.number if last else 0

    @property
    def processors(self) -> int:
        """The number of processors."""
        return self.context.in_force.distribution.processors

    @property
    def placements(self) -> tuple[Placement, ...]:
        """The placement of each operator."""
        return self.context.in_force.distribution.placements

    @property
    def rows_wait(self) -> bool:
        """Whether rows are held back."""
        return rows_wait(self.context.manifests)

    @property
    def holds_back(self) -> bool:
        """Whether rows are held back, or groups are on their way to another processor."""
        return bool(self.context.in_force.distribution.moving) or self.rows_wait

    @property
    def owing_groups(self) -> int:
        """The number of partition groups that owe results, over all processors and operators."""
        return sum(use.owing_groups for use in self.context.memory_uses())

    def owes(self, spilled_by: int | None = None) -> bool:
        """Whether spilled groups owe results; with `spilled_by`, only groups spilled up to that step count."""
        context = self.context
        return context.in_force.last is not None and owes(context.shape, context.manifests, context.settled, spilled_by)

    @property
    def answers_at_the_end(self) -> bool:
        """Whether rows may wait for an answer until the end of the input, or until clean-up."""
        context, last = self.context, self.context.in_force.last
        waits = self.holds_back or (last is not None and bool(last.hold))
        may_spill = bool(context.run.settings.policies) or is_spilled(context.manifests)
        return context.layout.groupings > 0 or may_spill or waits

    @property
    def has_unanswered(self) -> bool:
        """Whether rows of a grouping wait for the end of the input."""
        return self.context.times.waiting(self.context.in_force.last)

    @property
    def may_step_without_batch(self) -> bool:
        """Whether a step without a batch can be made: there was a step, and Spark has planned no batch after it."""
        last = self.context.in_force.last
        return last is not None and not self.context.run.checkpoint.has_planned(last.batch_id)

    def distribution(self, cost: CostModel | None = None) -> DistributionTable:
        """Where operators are, with the rates of the last step; costs are those of a cost model, by default that of the
        run's policies, if one of them has one."""
        if cost is not None:
            check_cost(cost)
        context = self.context
        distribution, results = context.in_force.distribution, list(context.run.results)
        model = (
            cost
            if cost is not None
            else next((p.cost for p in context.run.settings.policies if hasattr(p, "cost")), CpuTime())
        )
        run = context.run
        cuts = context.decision_maker.cuts
        monitor = RuntimeMonitor(context.shape, run.memory, cuts, run.clock, run.settings.properties)
        names = tuple(operator.name for operator in context.shape.operators)
        last = results[-1] if results else None
        fits = last is not None and last.operators == names and len(last.reports) == distribution.processors
        reports = (
            last.reports
            if last is not None and fits
            else [Report.empty(p, len(context.layout.inputs), len(names), 0) for p in range(distribution.processors)]
        )
        snapshot = monitor.snapshot(Moment(self.last_number, (), context.settled), distribution, reports)
        arrived = sum(sum(report.received) for report in reports)
        snapshot = replace(snapshot, seconds=last.seconds if last is not None and fits else 0.0, arrived=arrived)
        return distribution_table(snapshot, distribution, context.layout.rounds, model, run.settings.clusters)

    def measured(self) -> Measured | None:
        """Rows, results and time of this run so far, operator by operator; None before its first step."""
        return self.context.counters.measured(self.context.manifests)
