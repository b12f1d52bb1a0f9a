"""The runtime monitor (paper 5, section 4.3): from the reports of processors to a snapshot for policies."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from anabranch.manager.allocation.properties import NO_PROPERTIES, Properties
from anabranch.manager.distribution import Distribution
from anabranch.manager.memory.budgets import MemoryBudgets
from anabranch.manager.memory.debt import owing_groups
from anabranch.manager.order_costs import OrderCosts
from anabranch.manager.plan_shape import OperatorShape, PlanShape
from anabranch.manager.snapshot import Debt, OperatorView, ProcessorView, Snapshot
from anabranch.plan.routing import Routing
from anabranch.state.generation import Generation, spilled_groups
from anabranch.state.groups import GroupSet, union_by_operator
from anabranch.state.manifest import Manifest
from anabranch.state.partition import held_rows
from anabranch.state.report import Report
from anabranch.state.runs.slice import Cuts
from anabranch.state.spill import CleanUp, spilled_bytes


@dataclass(frozen=True, slots=True)
class Moment:
    """A step that has ended, as the driver knows it; the rest is in the reports.

    `since` is per operator: no result of rows that are still to come is older. `settled` is per grouping. `cleaned_up`
    is what the step has cleaned up, by operator. The rest is as in `Snapshot`.
    """

    step: int
    since: tuple[int | None, ...]
    settled: tuple[int | None, ...]
    cleaned_up: Mapping[int, CleanUp] = field(default_factory=dict)
    arrived: int = 0
    usual: float = 0.0
    awaiting: int | None = None
    orders: OrderCosts | None = None
    parted: frozenset[int] = frozenset()
    round_seconds: float = 0.0
    reallocating: frozenset[str] | None = None


class RuntimeMonitor:
    """Makes snapshots of a run; remembers when it made the last one, and what has just come back from disk."""

    def __init__(
        self,
        plan: PlanShape,
        memory: MemoryBudgets,
        cuts: Cuts,
        clock: Callable[[], float] = time.time,
        properties: Properties = NO_PROPERTIES,
    ) -> None:
        """No snapshot has been made yet."""
        self._plan = plan
        self._memory = memory
        self._cuts = cuts
        self._clock = clock
        self._properties = properties
        self._looked = clock()
        self._returned: tuple[dict[int, GroupSet], dict[int, GroupSet]] = ({}, {})  # before the last step, and in it

    def note_returned(self, cleaned_up: Mapping[int, CleanUp]) -> None:
        """Note what a step has brought back from disk."""
        self._returned = (self._returned[1], {n: done.back for n, done in cleaned_up.items() if done.back})

    def snapshot(
        self,
        moment: Moment,
        distribution: Distribution,
        reports: Sequence[Report],
        relocating: Collection[int] = (),
    ) -> Snapshot:
        """The snapshot after a step; processors that are `relocating` take part in a relocation."""
        now = self._clock()
        before, self._looked = self._looked, now
        processors = []
        diffused = [_diffused(routing) for routing in distribution.routings]
        for p, (manifest, report) in enumerate(zip(distribution.manifests, reports, strict=True)):
            processors.append(
                ProcessorView(
                    p,
                    manifest.bytes,
                    tuple(
                        self._operator(operator, manifest, report, moment, diffused[operator.number])
                        for operator in self._plan.operators
                    ),
                    memory=self._memory.of(p),
                    busy=report.busy_ms / 1000,
                    cpu=report.cpu_ms / 1000,
                    rows=sum(report.worked),
                    results=sum(report.produced),
                    spilled_bytes=manifest.spilled_bytes,
                    held_bytes=sum(piece.bytes for piece in manifest.held()),
                    moves=distribution.is_moving(p) or p in relocating,
                    properties=self._properties.processors.get(p, {}),
                )
            )
        return Snapshot(
            moment.step,
            now,
            tuple(processors),
            max(now - before, 0.0),
            plan=self._plan,
            arrived=moment.arrived,
            usual=moment.usual,
            awaiting=moment.awaiting,
            properties=self._properties.plan,
            orders=moment.orders,
            routings=distribution.routings,
            parted=moment.parted,
            round_seconds=moment.round_seconds,
            reallocating=moment.reallocating,
        )

    def _operator(
        self,
        operator: OperatorShape,
        manifest: Manifest,
        report: Report,
        moment: Moment,
        diffused: GroupSet | None,
    ) -> OperatorView:
        number, groups = operator.number, self._plan.groups
        state = manifest.operators[number]
        owing = owing_groups(operator, state, moment.settled, groups) if state.generations else None
        return OperatorView(
            number,
            state.statistics,
            operator.spillable,
            operator.family,
            spilled_groups(state.generations),
            held_rows(state, groups, self._cuts) if state.held else {},
            operator.answers_later,
            union_by_operator(*self._returned).get(number),
            diffused,
            debt=None if owing is None else _debt(owing, state.generations, groups),
            lagging=bool(state.lagging),
            rows=report.worked[number],
            results=report.produced[number],
            cpu=report.operator_cpu_ms[number] / 1000,
            properties=self._properties.operators.get(operator.name, {}),
        )


def _diffused(routing: Routing) -> GroupSet | None:
    if not routing.diffused:
        return None
    return GroupSet.of(len(routing.placement), (group for group, _ in routing.diffused))


def _debt(owing: GroupSet, generations: Sequence[Generation], groups: int) -> Debt:
    first = np.full(groups, -1, dtype=np.int64)
    for generation in reversed(generations):
        first[generation.groups.numbers()] = generation.step
    return Debt(owing, first, spilled_bytes(generations, groups))
