"""The work of partition groups, by what arrived for them and what they gave in the last steps.

Counts of a group are added up over the processors that have a part in it, so they do not depend on where it was. A
count that went down was begun anew. What rows and results cost is measured (`costs/row_cost`), over more steps than
counts are: it changes less.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from anabranch.manager.costs.row_cost import Measured, RowCost, row_cost, slowness
from anabranch.manager.plan_shape import OperatorShape
from anabranch.manager.snapshot import Floats, Snapshot

# Steps by which costs are measured.
COST_STEPS = 16


@dataclass(frozen=True, slots=True)
class Counts:
    """Per group of an operator: rows by port, and results."""

    rows: Floats
    results: Floats


@dataclass(frozen=True, slots=True)
class OperatorWork:
    """An operator's work in a step, on average: rows per group and port, results per group, and what they cost."""

    rows: Floats
    results: Floats
    cost: RowCost

    @property
    def by_group(self) -> Floats:
        """The seconds of work of every group while it is at one processor."""
        seconds: Floats = self.cost.row * self.rows.sum(axis=1) + self.cost.result * self.results
        return seconds

    def of_group(self, group: int, master: int) -> tuple[float, float]:
        """The seconds of a group's work that hosts would share if a port were its master, and those that each has."""
        rows = self.rows[group]
        shared = self.cost.work(float(rows[master]), float(self.results[group]))
        return shared, self.cost.work(float(rows.sum() - rows[master]), 0.0)


@dataclass(frozen=True, slots=True)
class Work:
    """The work of all operators in a step, on average, and how many times longer a processor, by its number, takes than
    others."""

    operators: tuple[OperatorWork, ...]
    slowness: Mapping[int, float]

    @property
    def step(self) -> float:
        """The seconds that a processor takes for a step whatever it brings."""
        return sum(work.cost.step for work in self.operators)


@dataclass(slots=True)
class GroupWork:
    """Measures the work of groups over the last `period` steps with rows; operators are known by their names."""

    period: int
    _last: dict[str, Counts] = field(default_factory=dict)
    _grown: dict[str, deque[Counts]] = field(default_factory=dict)
    _measured: dict[str, deque[list[Measured]]] = field(default_factory=dict)

    def add(self, snapshot: Snapshot) -> Work | None:
        """Add a step; None while there are too few."""
        works, slow = [], np.ones(len(snapshot.processors))
        for operator in snapshot.plan.operators:
            steps = self._steps(operator, snapshot)
            measured = self._costs(operator, snapshot)
            cost = row_cost([one for step in measured for one in step])
            slow = np.maximum(slow, slowness(cost, measured, len(snapshot.processors)))
            if len(steps) == self.period:
                rows = np.mean([each.rows for each in steps], axis=0)
                works.append(OperatorWork(rows, np.mean([each.results for each in steps], axis=0), cost))
        if len(works) < len(snapshot.plan.operators) or not works:
            return None
        return Work(tuple(works), dict(zip(snapshot.numbers, slow.tolist(), strict=True)))

    def _steps(self, operator: OperatorShape, snapshot: Snapshot) -> Sequence[Counts]:
        now = _counts(operator, snapshot)
        before = self._last.get(operator.name)
        self._last[operator.name] = now
        steps = self._grown.setdefault(operator.name, deque(maxlen=self.period))
        if before is None or before.rows.shape != now.rows.shape:
            steps.clear()
        elif snapshot.arrived:
            steps.append(Counts(_grown(before.rows, now.rows), _grown(before.results, now.results)))
        return steps

    def _costs(self, operator: OperatorShape, snapshot: Snapshot) -> Sequence[list[Measured]]:
        steps = self._measured.setdefault(operator.name, deque(maxlen=COST_STEPS))
        if steps and len(steps[-1]) != len(snapshot.processors):
            steps.clear()
        if snapshot.arrived:
            views = [view.operators[operator.number] for view in snapshot.processors]
            steps.append([Measured(view.rows, view.results, view.cpu) for view in views])
        return steps


def _counts(operator: OperatorShape, snapshot: Snapshot) -> Counts:
    groups, ports = snapshot.plan.groups, len(operator.ports)
    rows, results = np.zeros((groups, ports)), np.zeros(groups)
    for view in snapshot.processors:
        statistics = view.operators[operator.number].statistics
        if len(statistics.groups):
            dense = statistics.dense(groups, ports)
            rows += dense.arrivals[:, :ports]
            results += dense.produced
    return Counts(rows, results)


def _grown(before: Floats, now: Floats) -> Floats:
    return np.where(now >= before, now - before, now)
