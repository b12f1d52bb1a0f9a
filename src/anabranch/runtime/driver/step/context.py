"""The context of steps: one frozen value with the parts that all steps of a run under one plan share.

Whatever changes from step to step is inside these parts: the step in force (`checkpoint/in_force`), the counters, the
decision maker, events and results. A change of plan is a new context over the same checkpoint.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from anabranch.checkpoint.folder.directory import Checkpoint
from anabranch.checkpoint.in_force import InForce
from anabranch.checkpoint.step import InitialPlacement
from anabranch.manager.actions import MigrateQuery, PartOperator, ReallocateOperator
from anabranch.manager.costs.round_cost import RoundCost
from anabranch.manager.decision_maker import DecisionMaker
from anabranch.manager.memory.budgets import MemoryBudgets
from anabranch.manager.memory.debt import backlog
from anabranch.manager.memory.memory_use import MemoryUse, Shortage, memory_uses
from anabranch.manager.order_statistics import OrderStatistics
from anabranch.manager.plan_shape import PlanShape, shape_of
from anabranch.manager.shadows.feeding import Feeding
from anabranch.manager.snapshot import Policy
from anabranch.observe.events import EventLog
from anabranch.plan.watermark import Backlog
from anabranch.runtime.compile.layout import Layout
from anabranch.runtime.compile.prepared import PreparedPlan
from anabranch.runtime.driver.step.counters import Counters
from anabranch.runtime.driver.step.result import StepResult, StepSettings
from anabranch.runtime.driver.step.times import Times
from anabranch.runtime.exchange.crossing import Crossing
from anabranch.runtime.exchange.processors import Processors
from anabranch.runtime.sinks.answers import Answers, Target
from anabranch.state.manifest import Manifest
from anabranch.state.runs.run import FileCuts


@dataclass(frozen=True, slots=True)
class RunParts:
    """The parts of a run that stay while plans change: settings, budgets, its checkpoint, its events and results.

    `clock` is the time that policies go by, in seconds since 1970; how long work takes is measured without it. `orders`
    are the measured costs of orders of joins. `migrations` and `reallocations` are those that policies have decided on
    and that have not begun yet. Policies that go on from plan to plan are in `spanning`, by their position.
    `round_cost` is what a round of the plan costs.
    """

    settings: StepSettings
    memory: MemoryBudgets
    checkpoint: Checkpoint
    events: EventLog
    results: deque[StepResult]
    clock: Callable[[], float] = time.time
    orders: OrderStatistics = field(default_factory=OrderStatistics)
    migrations: deque[MigrateQuery] = field(default_factory=deque)
    reallocations: deque[ReallocateOperator | PartOperator] = field(default_factory=deque)
    spanning: dict[int, Policy] = field(default_factory=dict)
    round_cost: RoundCost = field(default_factory=RoundCost)


@dataclass(frozen=True, slots=True)
class StepContext:
    """A run under one plan. `shape` is the plan as policies see it, `shortage` warns of too little memory.

    While a query migrates, `feeding` keeps account of the rows of its shadow that wait.
    """

    run: RunParts
    plan: PreparedPlan
    shape: PlanShape
    answers: Answers
    processors: Processors
    times: Times
    in_force: InForce
    decision_maker: DecisionMaker
    counters: Counters
    shortage: Shortage
    feeding: Feeding | None = None

    @property
    def layout(self) -> Layout:
        """The layout of the plan's rows in exchanges."""
        return self.plan.layout

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        """The state of each processor."""
        return self.in_force.distribution.manifests

    @property
    def settled(self) -> tuple[int | None, ...]:
        """The time up to which each grouping has been answered."""
        last = self.in_force.last
        return last.settled if last else (None,) * self.layout.groupings

    def backlog(self) -> Backlog:
        """The rows and results that are behind the watermarks: spilled, held back or owed."""
        return backlog(self.shape, self.manifests)

    def memory_uses(self) -> tuple[MemoryUse, ...]:
        """The use of each processor's memory."""
        return memory_uses(self.shape, self.run.memory, self.manifests, self.settled)


def step_context(run: RunParts, plan: PreparedPlan, answers: Answers) -> StepContext:
    """Put together the context of a run under a plan; no step is in force yet."""
    layout = plan.layout
    shape = shape_of(plan.network, layout.processor, layout.families, layout.kindred, plan.graph.queries)
    empty = Manifest.empty(layout.processor.ports, layout.processor.operators)
    initial = InitialPlacement(run.settings.processors, plan.initial)
    return StepContext(
        run=run,
        plan=plan,
        shape=shape,
        answers=answers,
        processors=_processors(plan, answers),
        times=Times(plan.network, layout),
        in_force=InForce(run.checkpoint, initial, empty, layout.allocation),
        decision_maker=_decision_maker(run, shape),
        counters=Counters(len(layout.inputs), layout.processor.operators),
        shortage=Shortage(),
    )


def reallocated_context(before: StepContext, plan: PreparedPlan, targets: Sequence[Target]) -> StepContext:
    """The context of the same plan with its operators elsewhere: the counters and the step in force stay."""
    layout = plan.layout
    shape = shape_of(plan.network, layout.processor, layout.families, layout.kindred, plan.graph.queries)
    answers = Answers(layout, targets)
    return replace(
        before,
        plan=plan,
        shape=shape,
        answers=answers,
        processors=_processors(plan, answers),
        times=Times(plan.network, layout),
        decision_maker=_decision_maker(before.run, shape, before.decision_maker.cuts),
    )


def _processors(plan: PreparedPlan, answers: Answers) -> Processors:
    return Processors(plan.layout, answers.plan, Crossing(plan.layout, plan.packing, plan.shares))


def _decision_maker(run: RunParts, shape: PlanShape, cuts: FileCuts | None = None) -> DecisionMaker:
    return DecisionMaker(
        shape,
        run.checkpoint.state,
        run.memory,
        run.settings.policies,
        run.clock,
        run.spanning,
        cuts,
        run.settings.properties,
        run.settings.clusters,
    )
