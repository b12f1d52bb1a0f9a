"""The actions that can be applied to a running query between two batches, one per file.

    spill_groups         push partition groups to disk
    relocate_groups      move partition groups to another processor
    hold_groups          let rows of partition groups wait
    diffuse_groups       spread the rows of one input of hot partition groups over several processors
    gather_groups        bring such groups back to one processor
    clean_up_groups      deliver results that spilling has postponed
    migrate_query        go on with the joins of a query in another order
    reallocate_operator  go on with all of an operator on one processor
    part_operator        set an operator apart from those that it is fused with, to diffuse groups of it
    change               what actions edit, and what they may look at
    sentence             what an event about an action says
    numbers              fields that are whole numbers

An action is a value with the reason why it was decided on. It knows whether it makes sense (`problem`), whether it has
to be left because of what was decided before it (`must_wait`), and what it does (`apply`), with a sentence for an
event. A new action is a new file, a line in `ACTIONS` and a part of the union `Action`.
"""

from __future__ import annotations

from anabranch.manager.actions.clean_up_groups import CleanUpGroups
from anabranch.manager.actions.diffuse_groups import DiffuseGroups
from anabranch.manager.actions.gather_groups import GatherGroups
from anabranch.manager.actions.hold_groups import HoldGroups
from anabranch.manager.actions.migrate_query import MigrateQuery
from anabranch.manager.actions.part_operator import PartOperator
from anabranch.manager.actions.reallocate_operator import ReallocateOperator
from anabranch.manager.actions.relocate_groups import RelocateGroups
from anabranch.manager.actions.spill_groups import SpillGroups

__all__ = [
    "ACTIONS",
    "Action",
    "CleanUpGroups",
    "DiffuseGroups",
    "GatherGroups",
    "HoldGroups",
    "MigrateQuery",
    "PartOperator",
    "ReallocateOperator",
    "RelocateGroups",
    "SpillGroups",
]

Action = (
    SpillGroups
    | RelocateGroups
    | HoldGroups
    | CleanUpGroups
    | DiffuseGroups
    | GatherGroups
    | MigrateQuery
    | ReallocateOperator
    | PartOperator
)

ACTIONS = (
    SpillGroups,
    RelocateGroups,
    HoldGroups,
    CleanUpGroups,
    DiffuseGroups,
    GatherGroups,
    MigrateQuery,
    ReallocateOperator,
    PartOperator,
)
