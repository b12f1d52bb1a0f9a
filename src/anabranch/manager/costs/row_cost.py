"""What an operator takes for a row and for a result, by measured CPU time, and which processors are slower.

    CPU time of a processor in a step = step + row * rows that came to it + result * results that it gave

The three numbers, none below 0, are those that miss what was measured by the least squares. Where steps are so much
alike that they cannot tell rows from results, the two are taken to cost the same, and `step` to be 0: three further
equations say so, with little weight.

A processor is slower than others if it took more than this says, in the median of the measured steps. Those that
differ by less than `ALIKE` count as equally fast: so small a difference is as likely noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import NamedTuple

import numpy as np

from anabranch.manager.snapshot import Floats

# What the equations for steps that are alike weigh, of what the measured ones do.
PRIOR = 0.02
# Processors are as fast as each other unless one takes more than this many times what the other does.
ALIKE = 1.5
# The share of the largest work in a step from which on a processor's work says how fast it is.
TELLING = 0.1


class Measured(NamedTuple):
    """A processor in a step: rows that came to an operator, results that it gave, and seconds of CPU time."""

    rows: float
    results: float
    cpu: float


@dataclass(frozen=True, slots=True)
class RowCost:
    """The seconds of CPU time that an operator takes for a row, for a result, and for a step whatever it brings."""

    row: float
    result: float
    step: float = 0.0

    def work(self, rows: float, results: float) -> float:
        """The seconds for so many rows and results, without those for the step."""
        return self.row * rows + self.result * results


# Before anything is measured a row costs as much as a result.
UNKNOWN = RowCost(1e-6, 1e-6)


def row_cost(measured: Sequence[Measured]) -> RowCost:
    """What rows and results cost, given what processors did in some steps; `UNKNOWN` if that says nothing."""
    known = [one for one in measured if one.rows + one.results > 0 and one.cpu > 0]
    if not known:
        return UNKNOWN
    work = np.array([(1.0, one.rows, one.results) for one in known])
    cpu = np.array([one.cpu for one in known])
    scale = np.array([1.0, *np.full(2, work[:, 1:].sum(axis=1).mean())])
    weight = PRIOR * len(known) ** 0.5
    prior = weight * np.array([[1.0, 0.0, 0.0], [0.0, 1.0, -1.0]])
    equations = np.vstack([work / scale, prior])
    step, row, result = _least_squares(equations, np.concatenate([cpu, np.zeros(len(prior))])) / scale
    return RowCost(float(row), float(result), float(step)) if row + result > 0 else UNKNOWN


def slowness(cost: RowCost, steps: Sequence[Sequence[Measured]], processors: int) -> list[float]:
    """By processor, how many times longer it takes for the same work; `steps` have an entry per processor."""
    ratios: list[list[float]] = [[] for _ in range(processors)]
    for step in steps:
        work = [cost.work(one.rows, one.results) for one in step]
        for p, one in enumerate(step):
            if one.cpu > 0 and work[p] > TELLING * max(work):
                ratios[p].append(one.cpu / (cost.step + work[p]))
    middle = [median(each) if each else 1.0 for each in ratios]
    return [ratio if not 1 / ALIKE < ratio < ALIKE else 1.0 for ratio in middle]


def _least_squares(equations: Floats, wanted: Floats) -> Floats:
    """The solution of the equations, none of it below 0, with the least squares. With three unknowns all choices of
    those that are 0 can be tried."""
    count = equations.shape[1]
    best, least = np.zeros(count), float("inf")
    for size in range(1, count + 1):
        for chosen in combinations(range(count), size):
            part = np.linalg.lstsq(equations[:, chosen], wanted, rcond=None)[0]
            if (part < 0).any():
                continue
            solution = np.zeros(count)
            solution[list(chosen)] = part
            missed = float(((equations @ solution - wanted) ** 2).sum())
            if missed < least:
                best, least = solution, missed
    return best
