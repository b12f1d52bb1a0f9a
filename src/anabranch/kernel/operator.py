"""The contract of a stateful operator: a few functions over sorted rows, and nothing that touches storage.

An operator has ports. At each port lie the rows that arrived there in earlier batches (`old`, sorted segments of runs)
and those that arrive now (`deltas`, one sorted segment each); all have a hash of the key they were exchanged by, and
mostly an event time. Rows of one hash are on one processor, so an operator may look at one hash at a time.

The processor calls `process` (or `counted`), hands on what it yields, and then adds the deltas to the state; it merges
runs, drops the rows whose time has passed, writes, spills, moves and recovers state without asking. Only what may be
dropped beyond that is the operator's to say (`keep`).

Every attempt at a batch must yield the same multiset of rows: nothing here may depend on the order in which rows
arrived, on a clock or on chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.state.groups import GroupSet
from anabranch.state.runs.run import Segment

# The state column with the time up to which a joined row is in its window, where rows are grouped.
EXPIRY = "expiry"


@dataclass(frozen=True, slots=True)
class Settled:
    """The event times that are settled in a step: rows with since <= ts < until are all there, and none is to come.

    `since` is the `until` of the step before, None if there was none. Nothing is settled while `until` is None. Some
    partition groups may have times of their own (`others`); what operators of users are given has none.
    """

    since: int | None = None
    until: int | None = None
    others: tuple[tuple[GroupSet, Settled], ...] = ()


class StatefulOperator(Protocol):
    """The methods that a processor calls of an operator. All of them are vectorised: no loop per row."""

    @property
    def waits(self) -> bool:
        """Whether rows of earlier batches may give results in a batch that brings none."""

    def process(
        self, old: Sequence[Sequence[Segment]], deltas: Sequence[Segment], settled: Settled
    ) -> Iterator[pa.RecordBatch]:
        """The results of a batch, in chunks of bounded size."""

    def keep(self, port: int, rows: Segment, settled: Settled) -> Segment:
        """Those rows of a run that may still be needed, given what is in the run alone. Sorted runs stay sorted."""


def answers_later(operator: object) -> bool:
    """Whether an operator works on rows mainly in a later step than they come in, when they are settled, as groupings
    do."""
    return isinstance(operator, SpillableOperator) and operator.waits


# Results, and how many of them each partition group has.
Counted = tuple[pa.RecordBatch, NDArray[np.int64]]


@runtime_checkable
class SpillableOperator(Protocol):
    """One of our own operators: its partition groups can be spilled, and it can produce the postponed results later."""

    @property
    def waits(self) -> bool:
        """As of a `StatefulOperator`."""

    @property
    def can_spill(self) -> bool:
        """Whether its groups can be spilled without changing the answer."""

    @property
    def freezes(self) -> bool:
        """Whether a group that has spilled state gives no results at all until it is cleaned up."""

    def counted(
        self, old: Sequence[Sequence[Segment]], deltas: Sequence[Segment], settled: Settled, groups: int
    ) -> Iterator[Counted]:
        """The results of a batch, in chunks of bounded size, with those of each group counted."""

    def owed(
        self, generations: Sequence[Sequence[Sequence[Segment]]], settled: Settled, groups: int
    ) -> Iterator[Counted]:
        """The results that spilling has postponed. `generations` are, oldest first, the segments at each port."""

    def keep(self, port: int, rows: Segment, settled: Settled) -> Segment:
        """As of a `StatefulOperator`."""
