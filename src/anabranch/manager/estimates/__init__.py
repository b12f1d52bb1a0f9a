"""What actions are predicted to gain and to cost: an estimator per kind of action, a small file each.

    estimator    what all of them are given, and how long things are taken to last
    pressure     bytes over a budget, in seconds
    spilling     SpillGroups
    relocating   RelocateGroups
    holding      HoldGroups
    migrating    MigrateQuery
    reallocating ReallocateOperator
    diffusing    DiffuseGroups, GatherGroups and PartOperator

An estimator is a function of actions that touch the same processors, a snapshot and the workload. It looks at the
processors that are touched, not at all: to relieve one of two that are equally busy is worth something.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.manager.actions import Action
from anabranch.manager.arbitration.proposal import Estimate
from anabranch.manager.estimates.diffusing import estimate_diffusion, estimate_gathering, estimate_parting
from anabranch.manager.estimates.estimator import Circumstances, Estimator, touched_by
from anabranch.manager.estimates.holding import estimate_holding
from anabranch.manager.estimates.migrating import estimate_migration
from anabranch.manager.estimates.reallocating import estimate_reallocation
from anabranch.manager.estimates.relocating import estimate_relocation
from anabranch.manager.estimates.spilling import estimate_spilling

__all__ = ["ESTIMATORS", "Circumstances", "estimate", "touched_by"]

# By the name of the action.
ESTIMATORS: dict[str, Estimator] = {
    "SpillGroups": estimate_spilling,
    "RelocateGroups": estimate_relocation,
    "HoldGroups": estimate_holding,
    "MigrateQuery": estimate_migration,
    "ReallocateOperator": estimate_reallocation,
    "DiffuseGroups": estimate_diffusion,
    "GatherGroups": estimate_gathering,
    "PartOperator": estimate_parting,
}


def estimate(actions: Sequence[Action], circumstances: Circumstances) -> Estimate:
    """What actions of one type that touch the same processors are predicted to gain and to cost."""
    return ESTIMATORS[type(actions[0]).__name__](actions, circumstances)
