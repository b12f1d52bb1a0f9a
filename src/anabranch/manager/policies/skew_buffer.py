"""The transient skew buffer (paper 2, section 4): a processor that is late for a while does not make the others wait.

A step ends when its last processor is done, which is the head-of-line blocking of the paper. So what a slow processor
would be late with waits in its buffer, and comes with a later step. Nothing is moved: long-term imbalance is for Flux.

After each step, and per processor: its rate is rows by how long it was busy in the last step. Rows that come in a step
may be answered in the next, so if a group got fewer than before, those of an average step of the last `STEPS` count; of
a group that waited none do. What it will get is what waits plus what has arrived per step. If that takes longer than
the target, groups are held for a step, until the others make up about rate * target rows.

Without a `target` it is 1.1 times the mean busy time of all; since no two steps are quite alike, somebody of whom
nothing waits yet is late only from 1.25 times the mean on. The mean contains the slow one, whose busy time comes down
to the target: with P processors whose others take t, the target settles at 1.1 (P - 1) t / (P - 1.1), that is 1.14 t
for four. A single processor waits for nobody and is left alone.

The mean is that of the last step or the last `STEADY` ones, whichever is longer. If the target became smaller whenever
there is little to do, more rows would wait, also on processors that have recovered and could catch up; if it did not
become larger at once, rows would wait on processors that are as late as all others.

The buffer is keyed by partition group, as in the paper, and bounded: each processor has its part of `size`, and no more
groups are held than fit into it, as far as can be known before rows arrive. When it is full the processor gets the rest
and the others wait, as without a buffer. So a processor that stays slow is late again after a while.

Who waits goes on waiting, and the others go on: rows that wait are written and read again, and a group that has waited
has more to do afterwards, so taking turns would cost more, and come in waves. But if the last of n groups that wait
would wait longer than `PATIENCE` steps otherwise, or than there are groups, the one that has waited longest is served
first. So with g groups nobody waits longer than max(g, `PATIENCE`) steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from anabranch.errors import ConfigError
from anabranch.manager.actions import HoldGroups
from anabranch.manager.policies.arguments import seconds_of
from anabranch.manager.snapshot import Floats, Integers, Partitions, ProcessorSeen, Snapshot
from anabranch.observe.numbers import format_seconds, parse_bytes

# Over how many steps rows are counted, and over how many the time of a step.
STEPS = 2
STEADY = 16
# How many times the mean a processor may take, and how many it takes to be late.
TARGET, LATE = 1.1, 1.25
# Steps after which groups that wait are served one by one, whoever else is not.
PATIENCE = 16

# A family and a group of it.
Partition = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Step:
    """What is remembered of a step: how long processors were busy, and by partition how many rows were ever worked on,
    and how many came, those that wait included."""

    busy: Mapping[int, float]
    worked: Mapping[Partition, int]
    come: Mapping[Partition, int]


def _no_steps() -> deque[Step]:
    return deque(maxlen=STEADY + 1)


@dataclass(slots=True)
class SkewBuffer:
    """Let some groups of a slow processor wait for a step or more, so that the others need not wait for it.

    Args:
        size: how many bytes may wait, on all processors together.
        target: how long a processor may take for a step, such as "2 seconds"; None for about the mean of all.
    """

    size: int | str = "64m"
    target: str | timedelta | None = None
    _steps: deque[Step] = field(default_factory=_no_steps, init=False, repr=False, compare=False)
    _waited: dict[Partition, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse what makes no sense at once."""
        parse_bytes(self.size)
        if self.target is not None and seconds_of("target", self.target, "2 seconds") == 0:
            raise ConfigError("target must be longer than nothing; leave it out for about the mean of all")

    def decide(self, snapshot: Snapshot) -> Iterator[HoldGroups]:
        """The groups of late processors that wait in the next step."""
        partitions = {seen.processor: seen.partitions() for seen in snapshot.processors}
        self._remember(snapshot, partitions)
        target = self._target()
        if len(snapshot.processors) < 2 or len(self._steps) < 2 or target <= 0:
            return iter(())
        held: list[HoldGroups] = []
        for seen in snapshot.processors:
            if not seen.moves:
                space = parse_bytes(self.size) // len(snapshot.processors)
                held += self._hold(seen, partitions[seen.processor], target, space)
        return iter(held)

    def _remember(self, snapshot: Snapshot, partitions: Mapping[int, Partitions]) -> None:
        """Take in a step. One without rows tells nothing of rates."""
        worked: dict[Partition, int] = {}
        come: dict[Partition, int] = {}
        for known in partitions.values():
            keys = _keys(known)
            worked.update(zip(keys, known.arrived.tolist(), strict=True))
            come.update(zip(keys, (known.arrived + known.held).tolist(), strict=True))
            for key, held in zip(keys, known.held.tolist(), strict=True):
                self._waited[key] = self._waited.get(key, 0) + 1 if held else 0
        if not self._steps or any(seen.rows for seen in snapshot.processors):
            self._steps.append(Step({seen.processor: seen.busy for seen in snapshot.processors}, worked, come))

    def _target(self) -> float:
        if self.target is not None:
            return seconds_of("target", self.target)
        means = [np.mean(list(step.busy.values())) for step in list(self._steps)[1:]]
        return TARGET * float(max(np.mean(means), means[-1])) if means else 0.0

    def _recent(self) -> int:
        """Over how many steps rows are counted: there must be one before that says what had come until then."""
        return min(len(self._steps) - 1, STEPS)

    def _hold(self, seen: ProcessorSeen, known: Partitions, target: float, space: int) -> list[HoldGroups]:
        rows, busy = self._worked(known), self._steps[-1].busy.get(seen.processor, 0.0)
        steps = self._recent()
        expected = known.held + _grown(known, known.arrived + known.held, self._steps[-1 - steps].come) / steps
        late = target if self.target is not None or known.held.any() else target * LATE / TARGET
        if rows == 0 or busy <= 0 or expected.sum() * busy <= late * rows:
            return []
        waited = np.array([self._waited.get(key, 0) for key in _keys(known)], dtype=np.int64)
        order = _in_turn(waited)
        order = order[expected[order] > 0]
        served = _served(expected[order], target * rows / busy, space / self._row_bytes(seen, known))
        needs = format_seconds(float(expected.sum()) * busy / rows)
        reason = f"processor {seen.processor} would take {needs} for the next step, more than {format_seconds(target)}"
        return _held(seen.processor, known, order[served:], reason)

    def _worked(self, known: Partitions) -> float:
        """The rows that a processor was busy with in the last step."""
        steps = self._recent()
        last = _grown(known, known.arrived, self._steps[-2].worked)
        mean = _grown(known, known.arrived, self._steps[-1 - steps].worked) / steps
        return float(np.where(last > 0, np.maximum(last, mean), 0).sum())

    def _row_bytes(self, seen: ProcessorSeen, known: Partitions) -> float:
        """The size of a row: of those that wait, or else of those in the state."""
        waiting = int(known.held.sum())
        if waiting and seen.held_bytes:
            return seen.held_bytes / waiting
        return max((seen.active_bytes + seen.spilled_bytes) / max(int(known.arrived.sum()), 1), 1.0)


def _grown(known: Partitions, now: Integers, before: Mapping[Partition, int]) -> Integers:
    """By how much a count of partitions has grown. One that went down was reset."""
    then = np.array([before.get(key, 0) for key in _keys(known)], dtype=np.int64)
    return np.where(now >= then, now - then, now)


def _in_turn(waited: NDArray[np.int64]) -> NDArray[np.int64]:
    """The order in which groups that have waited for so many steps are served."""
    waiting = np.argsort(-waited, kind="stable")[: np.count_nonzero(waited)]
    overdue = len(waiting) > 0 and waited[waiting[0]] + len(waiting) >= PATIENCE
    first = waiting[: int(overdue)]
    return np.concatenate([first, np.flatnonzero(waited == 0), waiting[len(first) :]])


def _served(expected: Floats, allowance: float, space: float) -> int:
    """How many partitions get their rows, in turn: about what is allowed, and those that there is no space for."""
    worked = np.cumsum(expected)
    allowed = int(np.searchsorted(worked - expected / 2, allowance, side="right"))
    crowded = int(np.searchsorted(worked, worked[-1] - space, side="left")) + 1 if worked[-1] > space else 0
    return max(allowed, crowded, 1)


def _held(processor: int, known: Partitions, chosen: NDArray[np.int64], reason: str) -> list[HoldGroups]:
    actions = []
    for family in np.unique(known.family[chosen]).tolist():
        own = chosen[known.family[chosen] == family]
        actions.append(HoldGroups(processor, family, tuple(sorted(known.group[own].tolist())), reason))
    return actions


def _keys(known: Partitions) -> list[Partition]:
    return list(zip(known.family.tolist(), known.group.tolist(), strict=True))
