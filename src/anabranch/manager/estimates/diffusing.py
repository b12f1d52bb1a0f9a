"""Diffusion: the work for the rows of one input and for results is shared by the hosts, and that for rows of the other
inputs is done by each of them. Gathering is the way back.

An operator that has to be set apart for that costs every batch a round more; when the last of its groups are gathered,
the round is saved again.

How much of the work for a group is for rows of which input is told by what has arrived so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from anabranch.manager.actions import DiffuseGroups, GatherGroups, PartOperator
from anabranch.manager.arbitration.proposal import Estimate
from anabranch.manager.estimates.estimator import PLAN_SECONDS, READ_SECONDS_PER_BYTE, Circumstances, touched_by
from anabranch.plan.routing import Spread

# A part of the work for a group, by processor.
Shares = Mapping[int, float]


def estimate_diffusion(actions: Sequence[DiffuseGroups], circumstances: Circumstances) -> Estimate:
    """Groups that are to be diffused, or diffused otherwise than now."""
    moves = []
    for action in actions:
        total = sum(action.weights)
        weights = {host: weight / total for host, weight in zip(action.hosts, action.weights, strict=True)}
        moves += [(action, group, action.master, weights) for group in action.groups]
    return _estimate(actions, moves, circumstances)


def estimate_gathering(actions: Sequence[GatherGroups], circumstances: Circumstances) -> Estimate:
    """Groups that are to be at one processor again."""
    moves = []
    for action in actions:
        placement = circumstances.snapshot.routings[action.operator].placement
        for group in action.groups:
            moves.append((action, group, 0, {placement[group] if action.to is None else action.to: 1.0}))
    estimate, snapshot = _estimate(actions, moves, circumstances), circumstances.snapshot
    gathered: dict[int, set[int]] = {}
    for action in actions:
        gathered.setdefault(action.operator, set()).update(action.groups)
    rejoining = [
        n
        for n in snapshot.parted & gathered.keys()
        if {group for group, _ in snapshot.routings[n].diffused} <= gathered[n]
    ]
    saved, costs = snapshot.round_seconds * len(rejoining), PLAN_SECONDS * len(rejoining)
    return replace(estimate, after=estimate.after - saved, costs=estimate.costs + costs)


def estimate_parting(actions: Sequence[PartOperator], circumstances: Circumstances) -> Estimate:
    """Operators that are to be set apart, and diffused then."""
    plan, seconds = circumstances.snapshot.plan, circumstances.snapshot.round_seconds
    estimate = estimate_diffusion([one for action in actions for one in action.diffusions], circumstances)
    rounds = sum(plan.rounds(apart=action.operator) - plan.rounds() for action in actions)
    return replace(estimate, after=estimate.after + seconds * rounds, costs=estimate.costs + PLAN_SECONDS)


_Move = tuple[DiffuseGroups | GatherGroups, int, int, Mapping[int, float]]


def _estimate(
    actions: Sequence[DiffuseGroups | GatherGroups], moves: Iterable[_Move], circumstances: Circumstances
) -> Estimate:
    workload = circumstances.workload
    touched = {p for action in actions for p in touched_by(action, circumstances.snapshot)}
    after, read = {p: float(workload.loads[p]) for p in touched}, 0.0
    for action, group, master, weights in moves:
        work = workload.work_of(action.operator, [group])
        before = _shares_now(action.operator, group, circumstances)
        home = max(before, key=before.__getitem__)
        then = _shares(action.operator, group, master, weights, circumstances)
        for p, share in before.items():
            after[p] -= workload.seconds_for(p, action.operator, share * work, home)
        for p, share in then.items():
            after[p] += workload.seconds_for(p, action.operator, share * work, home)
        read += _bytes(action.operator, group, circumstances) * len(then.keys() - before.keys())
    busiest = workload.busiest(touched)
    return Estimate(busiest, max(after.values()), circumstances.lasting, costs=READ_SECONDS_PER_BYTE * read)


def _shares_now(operator: int, group: int, circumstances: Circumstances) -> Shares:
    routing = circumstances.snapshot.routings[operator]
    routes = routing.routes(group)
    if routes is None:
        return {routing.placement[group]: 1.0}
    master = next(port for port, route in enumerate(routes) if isinstance(route, Spread))
    spread = routes[master]
    assert isinstance(spread, Spread), "one port is spread"
    total = sum(spread.weights)
    weights = {host: weight / total for host, weight in zip(spread.hosts, spread.weights, strict=True)}
    return _shares(operator, group, master, weights, circumstances)


def _shares(
    operator: int, group: int, master: int, weights: Mapping[int, float], circumstances: Circumstances
) -> Shares:
    """The part of the work for a group that each host does, whose part of the master's rows is its weight."""
    if len(weights) == 1:
        return weights
    rows, results = _counted(operator, group, circumstances)
    everything = float(rows.sum()) + results
    spread = (float(rows[master]) + results) / everything if everything > 0 and master < len(rows) else 1.0
    return {host: spread * weight + (1 - spread) for host, weight in weights.items()}


def _counted(operator: int, group: int, circumstances: Circumstances) -> tuple[np.ndarray, float]:
    """The rows that have arrived for a group, by port, and its results."""
    rows, results = np.zeros(1), 0.0
    for view in circumstances.snapshot.processors:
        for one in view.operators:
            if one.operator == operator:
                for nth in np.flatnonzero(one.statistics.groups == group).tolist():
                    own = one.statistics.arrivals[nth]
                    rows = own + np.pad(rows, (0, max(len(own) - len(rows), 0)))[: len(own)]
                    results += float(one.statistics.produced[nth])
    return rows, results


def _bytes(operator: int, group: int, circumstances: Circumstances) -> float:
    there = (one for view in circumstances.snapshot.processors for one in view.operators if one.operator == operator)
    return float(sum(one.statistics.bytes[one.statistics.groups == group].sum() for one in there))
