"""The results that spilling has postponed: which groups owe some, about how many, and the backlog that comes of it.

Only clean-up finds out what spilled generations have in common. But an unbounded join of m inputs that has V results
among x rows has about V * (y / x)^m among y rows of the same group, so what the generations of a group gave by
themselves says about what all of them give together.

With windows the same number is an upper bound, about: rows that are too far apart in time are not told from others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anabranch.manager.plan_shape import OperatorShape, PlanShape
from anabranch.plan.watermark import Backlog
from anabranch.state.generation import spilled_groups
from anabranch.state.groups import GroupSet
from anabranch.state.manifest import Manifest, OperatorState

Vector = NDArray[np.float64]


def owing_groups(
    operator: OperatorShape, state: OperatorState, settled: Sequence[int | None], groups: int
) -> GroupSet | None:
    """The groups of an operator on a processor that owe results; None if there are none.

    Spilled groups of a grouping owe the answers to rows that are older than `settled`, which is per grouping.
    """
    if operator.grouping is None:
        return state.owing() or None
    until, owing = settled[operator.grouping], GroupSet(groups, 0)
    for generation in state.generations:
        if until is not None and (generation.since is None or generation.since < until):
            owing |= generation.groups
    return owing or None


def owes(
    plan: PlanShape, manifests: Sequence[Manifest], settled: Sequence[int | None], spilled_by: int | None = None
) -> bool:
    """Whether any result is owed; if a step is given, by groups that were spilled up to it."""
    for operator in plan.operators:
        for manifest in manifests:
            state = manifest.operators[operator.number]
            early = spilled_groups([g for g in state.generations if spilled_by is None or g.step <= spilled_by])
            owing = owing_groups(operator, state, settled, plan.groups) if early is not None else None
            if owing is not None and early is not None and owing & early:
                return True
    return False


def backlog(plan: PlanShape, manifests: Sequence[Manifest]) -> Backlog:
    """What watermarks have to wait for, since it was spilled or is held back; None is a time that is not known."""
    owed: dict[int, int | None] = {}
    held: dict[int, int | None] = {}
    for operator in plan.operators:
        states = [manifest.operators[operator.number] for manifest in manifests]
        since: list[int | None] = []
        for state in states:
            owing = state.owing()
            if owing is not None:
                frozen = operator.grouping is not None
                since += [g.since for g in state.generations if frozen or g.groups & owing]
        if since:
            owed[operator.number] = _earliest(since)
        if operator.grouping is not None:
            waiting = [time for state in states for _, time in state.lagging]
        else:
            waiting = [piece.file.min_ts for state in states for slices in state.held for piece in slices]
        if waiting:
            held[operator.number] = _earliest(waiting)
    return Backlog(owed, held)


def _earliest(times: Sequence[int | None]) -> int | None:
    """The earliest of some times; None if one of them is not known."""
    present = [time for time in times if time is not None]
    return min(present) if len(present) == len(times) else None


def owed_results(state: OperatorState, count: int, inputs: int) -> int:
    """About how many results a join of so many inputs owes; there are `count` partition groups."""
    active = state.statistics.dense(count)
    sizes, produced = [active.bytes.astype(np.float64)], [active.produced.astype(np.float64)]
    for generation in state.generations:
        sizes.append(generation.dense(generation.sizes).astype(np.float64))
        produced.append(generation.dense(generation.produced).astype(np.float64))
    return estimate_owed(sizes, produced, inputs)


def estimate_owed(sizes: Sequence[Vector], produced: Sequence[Vector], inputs: int) -> int:
    """The results that span generations; `sizes` and `produced` are per generation, by group."""
    alone = np.add.reduce([size**inputs for size in sizes])
    produced_so_far = np.add.reduce(list(produced))
    together = np.add.reduce(list(sizes)) ** inputs
    owed = produced_so_far * np.divide(together, alone, out=np.ones_like(alone), where=alone > 0) - produced_so_far
    return round(float(np.maximum(owed, 0).sum()))


def waiting_rows(state: OperatorState, count: int, owing: GroupSet) -> int:
    """An upper bound of the rows of some groups of a grouping that wait for their answers: all its rows of these
    groups.

    Bytes are known by group, rows are not. So all rows are taken to be as large as those on disk are on average.
    """
    sizes = state.statistics.dense(count).bytes + sum(g.dense(g.sizes) for g in state.generations)
    rows = sum(generation.rows for generation in state.generations)
    size = sum(generation.bytes for generation in state.generations)
    return round(float(sizes[owing.mask()].sum()) * rows / max(size, 1))


def results_delivered(state: OperatorState) -> int:
    """The results that an operator's state has given so far, on disk or not."""
    return int(state.statistics.produced.sum()) + sum(sum(generation.produced) for generation in state.generations)
