"""A snapshot, on which policies decide: the plan, and the state of all processors after a step, as numbers.

The plan's shape says what the operators are and how rows flow between them (`plan_shape`); the rest are counts and
sizes. A policy needs nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from anabranch.manager.actions import Action
from anabranch.manager.allocation.properties import Values
from anabranch.manager.order_costs import OrderCosts
from anabranch.manager.plan_shape import PlanShape
from anabranch.plan.routing import Routing
from anabranch.state.groups import GroupSet
from anabranch.state.statistics import Statistics

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Debt:
    """The results that spilled groups of an operator on one processor owe.

    `owing` are the groups that owe some. By number of a group: the step after which the oldest of its state on disk was
    spilled (`first_spilled`), and its `bytes` on disk.
    """

    owing: GroupSet
    first_spilled: Integers
    bytes: Integers


@dataclass(frozen=True, slots=True)
class OperatorView:
    """An operator on one processor: statistics of its partition groups there, and whether they can be spilled.

    Of the groups in `spilled` some state is on disk only; None if there are none, and `debt` if they owe nothing.
    `held` are rows that wait, by group; answers of a grouping may be `lagging` by that. An operator that
    `answers_later` has little to do with a row until it is settled, in a later step than it came in, and counts its
    answers. Groups that have `returned` were brought back from disk in this step or the last. `diffused` are those of
    the operator that are diffused over several processors, wherever these are; None if there are none.

    In the last step it worked on so many `rows`, which gave so many `results`, and took so many seconds of CPU time.
    Its `properties` are what the user knows of it.
    """

    operator: int
    statistics: Statistics
    spillable: bool = True
    family: int = 0
    spilled: GroupSet | None = None
    held: Mapping[int, int] = field(default_factory=dict)
    answers_later: bool = False
    returned: GroupSet | None = None
    diffused: GroupSet | None = None
    debt: Debt | None = None
    lagging: bool = False
    rows: int = 0
    results: int = 0
    cpu: float = 0.0
    properties: Values = field(default_factory=dict)

    @property
    def waits(self) -> bool:
        """Whether rows of it wait, or answers since rows did."""
        return bool(self.held) or self.lagging

    @property
    def active_bytes(self) -> int:
        """The bytes of its active state."""
        return int(self.statistics.bytes.sum())


@dataclass(frozen=True, slots=True)
class ProcessorView:
    """A processor with its active bytes (Mu in paper 1), its budget (Ma), None for no limit, and its operators.

    Since the last snapshot it was `busy` for so many seconds, in which it had so many of CPU time (`cpu`) and its
    operators worked on so many `rows`. `held_bytes` are those of rows that wait in its buffer. It `moves` while groups
    are on their way to it or from it. Its `properties` are what the user knows of it.
    """

    processor: int
    active_bytes: int
    operators: tuple[OperatorView, ...]
    memory: int | None = None
    busy: float = 0.0
    cpu: float = 0.0
    rows: int = 0
    results: int = 0
    spilled_bytes: int = 0
    held_bytes: int = 0
    moves: bool = False
    properties: Values = field(default_factory=dict)

    @property
    def unspillable_bytes(self) -> int:
        """The active bytes that cannot be pushed to disk."""
        return sum(view.active_bytes for view in self.operators if not view.spillable)

    def partitions(self) -> Partitions:
        """All partition groups that it owns and that have any state, of all families."""
        return Partitions.of(self.operators)


@dataclass(frozen=True, slots=True)
class Partitions:
    """Partition groups of one processor as vectors: sums over the operators of each family.

    `bytes` are active (Ps in paper 1), `recent` are results (Po) of which old ones count less, and `arrived` are rows
    since the beginning (the difference between two snapshots is Np in paper 2). Of `spilled` groups some state is on
    disk. `held` rows wait. Partitions that are `diffused` over several processors stay as they are. Of the rows that
    have arrived some came to operators that answer `later`, and `answered` is how many results these have given.
    """

    family: Integers
    group: Integers
    bytes: Integers
    recent: Floats
    arrived: Integers
    spilled: NDArray[np.bool_]
    held: Integers
    diffused: NDArray[np.bool_]
    later: Integers
    answered: Integers

    @classmethod
    def of(cls, operators: Sequence[OperatorView]) -> Partitions:
        """The partitions of one processor, from its operators."""
        parts = []
        for family in sorted({view.family for view in operators}):
            members = [view for view in operators if view.family == family]
            spilled = [view.spilled.numbers() for view in members if view.spilled is not None]
            on_disk = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *spilled]))
            diffused = [view.diffused.numbers() for view in members if view.diffused is not None]
            waiting = np.unique(np.array([group for view in members for group in view.held], dtype=np.int64))
            groups = np.unique(np.concatenate([on_disk, waiting, *(view.statistics.groups for view in members)]))
            count = int(groups.max(initial=-1)) + 1
            statistics = [view.statistics.dense(count) for view in members]
            nothing = Statistics().dense(count)
            patient = [each if view.answers_later else nothing for view, each in zip(members, statistics, strict=True)]
            parts.append(
                (
                    np.full(len(groups), family, dtype=np.int64),
                    groups,
                    np.sum([each.bytes for each in statistics], axis=0)[groups],
                    np.sum([each.recent for each in statistics], axis=0)[groups],
                    np.sum([each.arrived for each in statistics], axis=0)[groups],
                    np.isin(groups, on_disk),
                    np.array([sum(view.held.get(g, 0) for view in members) for g in groups.tolist()], dtype=np.int64),
                    np.isin(groups, np.concatenate([np.empty(0, dtype=np.int64), *diffused])),
                    np.sum([each.arrived for each in patient], axis=0)[groups],
                    np.sum([each.produced for each in patient], axis=0)[groups],
                )
            )
        if not parts:
            none = np.empty(0, dtype=np.int64)
            no = np.empty(0, dtype=bool)
            return cls(none, none, none, np.empty(0), none, no, none, no, none, none)
        return cls(*(np.concatenate(vectors) for vectors in zip(*parts, strict=True)))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The plan and all processors after a step, at a time of the driver's clock, `seconds` after the last snapshot.

    The batch brought `arrived` rows, where `usual` is what batches bring on average; 0 if that is not known, or if it
    was a step without a batch. Somebody may be `awaiting` the results of all groups that were spilled up to a step.
    `orders` are the costs of orders of joins as they were measured last, None before the first time; a policy has them
    measured by having an attribute `compares_orders` that is true. `routings` say, per operator, where rows go. The
    `properties` are what the user knows of the plan. Operators in `reallocating`, by name, are to go to where policies
    have decided that they go, but have not gone yet; None if that is not known.

    Operators that are `parted` have been set apart for diffusion, from others that they ran fused with. To set one more
    apart costs a round, which takes so many seconds of every batch (`round_seconds`).
    """

    step: int
    time: float
    processors: tuple[ProcessorView, ...]
    seconds: float = 0.0
    plan: PlanShape = field(default_factory=PlanShape)
    arrived: int = 0
    usual: float = 0.0
    awaiting: int | None = None
    orders: OrderCosts | None = None
    routings: tuple[Routing, ...] = ()
    parted: frozenset[int] = frozenset()
    round_seconds: float = 0.0
    properties: Values = field(default_factory=dict)
    reallocating: frozenset[str] | None = None

    def processor(self, number: int) -> ProcessorView:
        """The processor of a number; the snapshot of a cluster has only those of the cluster."""
        return next(view for view in self.processors if view.processor == number)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the processors."""
        return tuple(view.processor for view in self.processors)

    def of_operators(self, operators: Collection[int]) -> Snapshot:
        """The same, where only some operators are there."""
        return replace(
            self,
            processors=tuple(
                replace(view, operators=tuple(one for one in view.operators if one.operator in operators))
                for view in self.processors
            ),
        )


class Policy(Protocol):
    """Anything that decides on actions. Each run has a copy of its own, so a policy may remember earlier snapshots.

    It may have `tell(done)`, too: that is called with those of its actions that were done, the others had to wait, and
    returns sentences for events (`policies/adaptive`).
    """

    def decide(self, snapshot: Snapshot) -> Iterator[Action]:
        """The actions that the snapshot calls for."""
