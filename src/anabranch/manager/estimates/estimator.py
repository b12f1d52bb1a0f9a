"""What estimators are given, which processors an action touches, and how long things are taken to last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.manager.actions import (
    Action,
    DiffuseGroups,
    GatherGroups,
    HoldGroups,
    ReallocateOperator,
    RelocateGroups,
    SpillGroups,
)
from anabranch.manager.arbitration.proposal import Estimate
from anabranch.manager.arbitration.workload import Workload
from anabranch.manager.snapshot import ProcessorView, Snapshot

# What has lasted for n batches is taken to last for as many more, within these bounds.
SHORTEST, LONGEST = 20, 100
# Seconds per byte of state that another processor has to map and read for the first time.
READ_SECONDS_PER_BYTE = 2e-9
# Seconds that it takes to put another plan in force.
PLAN_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The snapshot that actions were decided on, and the workload up to it."""

    snapshot: Snapshot
    workload: Workload

    @property
    def lasting(self) -> float:
        """For how many batches what is gained per batch is expected to be gained."""
        return float(min(max(self.workload.batches, SHORTEST), LONGEST))

    def view(self, processor: int) -> ProcessorView:
        """A processor."""
        return self.snapshot.processor(processor)


# The actions are of the one type that the estimator is for.
Estimator = Callable[[Sequence[Any], Circumstances], Estimate]


def touched_by(action: Action, snapshot: Snapshot) -> frozenset[int]:
    """The processors whose load or state an action changes; those of a plan that changes are all."""
    match action:
        case SpillGroups() | HoldGroups():
            return frozenset({action.processor})
        case RelocateGroups():
            return frozenset({action.sender, action.receiver})
        case ReallocateOperator():
            return _hosts(snapshot, action.operator) | {action.processor}
        case DiffuseGroups():
            return _hosts(snapshot, action.operator, action.groups) | {*action.hosts}
        case GatherGroups():
            receivers = set() if action.to is None else {action.to}
            return _hosts(snapshot, action.operator, action.groups) | receivers
    return frozenset(snapshot.numbers)


def _hosts(snapshot: Snapshot, operator: int, groups: Sequence[int] | None = None) -> frozenset[int]:
    """The processors that have a part in some groups of an operator, or in all."""
    routing = snapshot.routings[operator]
    chosen = range(len(routing.placement)) if groups is None else groups
    return frozenset(host for group in chosen for host in routing.hosts(group))
