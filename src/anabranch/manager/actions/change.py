"""What actions edit between two batches, and what they may look at while they do.

A `Change` begins with the distribution after a step and collects all edits of it. It takes effect when the step is
committed that it belongs to. Until then no event is sent: the sentences about it wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from anabranch.manager.actions.migrate_query import MigrateQuery
from anabranch.manager.actions.part_operator import PartOperator
from anabranch.manager.actions.reallocate_operator import ReallocateOperator
from anabranch.manager.actions.sentence import Sentence
from anabranch.manager.connection_manager import ConnectionManager
from anabranch.manager.distribution import Distribution
from anabranch.manager.plan_shape import PlanShape
from anabranch.manager.relocation import Relocation
from anabranch.state.groups import GroupSet
from anabranch.state.runs.slice import Cuts
from anabranch.state.spill import CleanUp


@dataclass(frozen=True, slots=True)
class Context:
    """What actions may look at: the plan, the step after which they are applied, and how state is cut and moved.

    `since` is per operator: no result of rows that are still to come is older. Policies were asked at the time
    `asked_at`, by the driver's clock.
    """

    plan: PlanShape
    step: int
    since: Sequence[int | None]
    asked_at: float
    connections: ConnectionManager
    cuts: Cuts


@dataclass(slots=True)
class Change:
    """A distribution, as actions change it.

    The state of `touched` processors is not as their reports say any more. In the next step rows of the groups in
    `hold` wait, and those in `clean_up` are cleaned up, both by operator. Processors in `pushed` have spilled.
    Groups of processors in `reshared` were diffused or gathered. The `migrations` and `reallocations` are begun after
    the step.
    """

    distribution: Distribution
    touched: set[int] = field(default_factory=set)
    hold: dict[int, GroupSet] = field(default_factory=dict)
    clean_up: dict[int, CleanUp] = field(default_factory=dict)
    pushed: set[int] = field(default_factory=set)
    reshared: set[int] = field(default_factory=set)
    relocations: list[Relocation] = field(default_factory=list)
    sentences: list[Sentence] = field(default_factory=list)
    migrations: list[MigrateQuery] = field(default_factory=list)
    reallocations: list[ReallocateOperator | PartOperator] = field(default_factory=list)

    @property
    def parties(self) -> set[int]:
        """The processors that take part in a relocation of this change, or whose groups were diffused or gathered."""
        return self.reshared | {p for entry in self.relocations for p in (entry.move.sender, entry.move.receiver)}
