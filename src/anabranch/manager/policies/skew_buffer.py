"""The transient skew buffer (paper 2, section 4): a processor that is late for a while does not make the others wait.

A step ends when its last processor is done, which is the head-of-line blocking of the paper. So what a slow processor
would be late with waits in its buffer, and comes with a later step. Nothing is moved: long-term imbalance is for Flux.

After each step, and per processor: what it was busy with is the rows that came or, where rows are answered in later
steps, those that were answered. Part of a step (`FIXED`) takes its time however few rows there are, so x rows cost
`FIXED` + (1 - `FIXED`) x / mean, by the mean of all processors. How long it will be busy is that cost times two
factors: the CPU time for a cost of 1, by all steps, of which later ones count more, since a processor's rows seldom
become others from one step to the next; and its *stretch*, how many times the CPU time it was busy in the last step,
where external load is seen at once, however many rows there were. What it will get is what waits plus what has arrived
per step, and if that takes too long groups are held for a step.

Without a `target` it is 1.1 times the mean busy time of all; since no two steps are quite alike, groups begin to wait
only if it would take 1.25 times the mean. The mean contains the slow one, whose busy time comes down to the target:
with P processors whose others take t, the target settles at 1.1 (P - 1) t / (P - 1.1), that is 1.14 t for four. A
single processor waits for nobody and is left alone. What a processor might have got, but did not since the next group
was too large for it, is saved for later steps: otherwise groups would wait the longer, the longer they have waited.

The mean is that of the last step or the last `STEADY` ones, whichever is longer. If the target became smaller whenever
there is little to do, more rows would wait, also on processors that have recovered and could catch up; if it did not
become larger at once, rows would wait on processors that are as late as all others.

The buffer is keyed by partition group, as in the paper, and bounded: all processors share its `size`, so one that is
slow may have all of it, and no more groups are held than fit, as far as can be known before rows arrive. When it is
full the processor gets the rest and the others wait, as without a buffer. So a processor that stays slow is late again
after a while.

Who waits goes on waiting, and the others go on: rows that wait are written and read again, and a group that has waited
has more to do afterwards, so taking turns would cost more, and come in waves. But after `PATIENCE` steps the group that
has waited longest is served besides, one in each step. So with g groups nobody waits longer than `PATIENCE` + g steps.
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
from anabranch.manager.snapshot import Floats, Integers, Partitions, ProcessorView, Snapshot
from anabranch.observe.numbers import format_seconds, parse_bytes

# Over how many steps rows are counted, and over how many the time of a step.
STEPS = 2
STEADY = 16
# How many times the mean a processor may take, and how many it takes to be late.
TARGET, LATE = 1.1, 1.25
# The part of an average step that does not depend on rows, and what CPU time counts after a step, of what it did.
FIXED = 0.2
DECAY = 0.75
# The ratio from which on rows have become others, by CPU time for the same cost, and the least cost that can tell.
CHANGED = 2.0
TELLING = 0.5
# Steps after which groups that wait are served one by one, whoever else is not.
PATIENCE = 16

# A family and a group of it.
Partition = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of rows up to a step, by partition: all that came, with those that wait; those worked on at once;
    those that came to be answered later, and how many of these were answered."""

    come: dict[Partition, int] = field(default_factory=dict)
    at_once: dict[Partition, int] = field(default_factory=dict)
    later: dict[Partition, int] = field(default_factory=dict)
    answered: dict[Partition, int] = field(default_factory=dict)


@dataclass(slots=True)
class Pace:
    """How fast a processor is: CPU time and cost, both with later steps counting more, and its stretch."""

    cpu: float = 0.0
    cost: float = 0.0
    stretch: float = 1.0

    def add(self, cpu: float, cost: float) -> None:
        """Add a step. If CPU time per cost has changed by far, and the step is not one of the smallest, only this step
        counts."""
        now, before = cpu * self.cost, self.cpu * cost
        if cost > TELLING and max(now, before) > CHANGED * min(now, before):
            self.cpu = self.cost = 0.0
        self.cpu = DECAY * self.cpu + cpu
        self.cost = DECAY * self.cost + cost

    @property
    def seconds(self) -> float:
        """How many seconds the processor is busy for a cost of 1."""
        return self.stretch * self.cpu / self.cost


@dataclass(frozen=True, slots=True)
class Mean:
    """A step as the mean processor had it."""

    busy: float
    rows: float


def _no_counts() -> deque[Counts]:
    return deque(maxlen=STEPS + 1)


def _no_means() -> deque[Mean]:
    return deque(maxlen=STEADY)


@dataclass(slots=True)
class SkewBuffer:
    """Let some groups of a slow processor wait for a step or more, so that the others need not wait for it.

    Args:
        size: how many bytes may wait, on all processors together.
        target: how long a processor may take for a step, such as "2 seconds"; None for about the mean of all.
    """

    size: int | str = "64m"
    target: str | timedelta | None = None
    _counts: deque[Counts] = field(default_factory=_no_counts, init=False, repr=False, compare=False)
    _means: deque[Mean] = field(default_factory=_no_means, init=False, repr=False, compare=False)
    _paces: dict[int, Pace] = field(default_factory=dict, init=False, repr=False, compare=False)
    _saved: dict[int, float] = field(default_factory=dict, init=False, repr=False, compare=False)
    _waited: dict[Partition, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse what makes no sense at once."""
        parse_bytes(self.size)
        if self.target is not None and seconds_of("target", self.target, "2 seconds") == 0:
            raise ConfigError("target must be longer than nothing; leave it out for about the mean of all")

    def decide(self, snapshot: Snapshot) -> Iterator[HoldGroups]:
        """The groups of late processors that wait in the next step."""
        partitions = {view.processor: view.partitions() for view in snapshot.processors}
        self._remember(snapshot, partitions)
        if len(snapshot.processors) < 2 or not self._means:
            return iter(())
        filled = {view.processor: view.held_bytes for view in snapshot.processors}
        held: list[HoldGroups] = []
        for view in snapshot.processors:
            if not view.moves and view.processor in self._paces:
                others = sum(size for processor, size in filled.items() if processor != view.processor)
                chosen, filled[view.processor] = self._hold(view, partitions[view.processor], others)
                held += chosen
        return iter(held)

    def _remember(self, snapshot: Snapshot, partitions: Mapping[int, Partitions]) -> None:
        """Take in a step. One in which nothing was done tells nothing of how fast processors are."""
        worked = self._worked(partitions)
        now = Counts()
        for own in partitions.values():
            keys = _keys(own)
            for counted, values in (
                (now.come, own.arrived + own.held),
                (now.at_once, own.arrived - own.later),
                (now.later, own.later),
                (now.answered, own.answered),
            ):
                counted.update(zip(keys, values.tolist(), strict=True))
            for key, held in zip(keys, own.held.tolist(), strict=True):
                self._waited[key] = self._waited.get(key, 0) + 1 if held else 0
        self._counts.append(now)
        if not any(worked.values()):
            return
        mean_busy = np.mean([view.busy for view in snapshot.processors])
        self._means.append(Mean(float(mean_busy), float(np.mean([*worked.values()]))))
        for view in snapshot.processors:
            if view.cpu > 0 and view.busy > 0:
                pace = self._paces.setdefault(view.processor, Pace())
                pace.add(view.cpu, self._cost(worked[view.processor]))
                pace.stretch = view.busy / view.cpu

    def _worked(self, partitions: Mapping[int, Partitions]) -> dict[int, float]:
        """By processor, the rows that it was busy with in the last step; nothing before there are two."""
        if not self._counts:
            return dict.fromkeys(partitions, 0.0)
        before = self._counts[-1]
        answers = sum(int(own.answered.sum()) for own in partitions.values())
        # As many rows as it takes for an answer, in the long run; those of the last step have got none yet.
        each = sum(before.later.values()) / answers if answers else 0.0
        return {
            processor: float(_grown(own, own.arrived - own.later, before.at_once).sum())
            + each * float(_grown(own, own.answered, before.answered).sum())
            for processor, own in partitions.items()
        }

    def _mean_rows(self) -> float:
        return float(np.mean([mean.rows for mean in self._means]))

    def _cost(self, rows: float) -> float:
        """The cost of some rows, where an average step costs 1."""
        return FIXED + (1 - FIXED) * rows / self._mean_rows()

    def _allowance(self, processor: int, seconds: float) -> float:
        """For how many rows a processor is busy for so long."""
        return (seconds / self._paces[processor].seconds - FIXED) / (1 - FIXED) * self._mean_rows()

    def _targets(self) -> tuple[float, float]:
        """How long a processor may take, and from when on it is late."""
        if self.target is not None:
            return (seconds_of("target", self.target),) * 2
        mean = max(float(np.mean([mean.busy for mean in self._means])), self._means[-1].busy)
        return TARGET * mean, LATE * mean

    def _hold(self, view: ProcessorView, partitions: Partitions, others: int) -> tuple[list[HoldGroups], int]:
        """Which groups of a processor wait, and how many bytes that makes; those of others have so many."""
        steps = len(self._counts) - 1
        expected = (
            partitions.held + _grown(partitions, partitions.arrived + partitions.held, self._counts[0].come) / steps
        )
        target, late = self._targets()
        at_once = float(expected[partitions.diffused].sum())  # these do not wait: other processors have a part in them
        present = np.flatnonzero((expected > 0) & ~partitions.diffused)
        waited = np.array([self._waited.get(key, 0) for key in _keys(partitions)], dtype=np.int64)
        order, go_on = _in_turn(waited[present])
        order = present[order]
        rows = expected[order]
        allowance = self._allowance(view.processor, target) - at_once
        served = _served(rows, allowance + self._saved.get(view.processor, 0.0))
        if at_once + rows[go_on].sum() <= self._allowance(view.processor, late):
            served = max(served, go_on.stop)
        row_bytes = _row_bytes(view, partitions)
        served = max(served, _crowded(rows, (parse_bytes(self.size) - others) / row_bytes), 1)
        self._save(view.processor, allowance - float(rows[:served].sum()), rows[served:])
        chosen = order[served:]
        needs = format_seconds(self._cost(float(expected.sum())) * self._paces[view.processor].seconds)
        reason = f"processor {view.processor} would take {needs} for the next step, more than {format_seconds(target)}"
        return _held(view.processor, partitions, chosen, reason), int(expected[chosen].sum() * row_bytes)

    def _save(self, processor: int, left: float, waiting: Floats) -> None:
        """Remember what a processor was allowed and did not get, since what waits came in too large pieces."""
        saved = self._saved.get(processor, 0.0) + left
        self._saved[processor] = float(np.clip(saved, 0.0, waiting.max(initial=0.0)))


def _grown(partitions: Partitions, now: Integers, before: Mapping[Partition, int]) -> Integers:
    """By how much a count of partitions has grown. One that went down was reset."""
    then = np.array([before.get(key, 0) for key in _keys(partitions)], dtype=np.int64)
    return np.where(now >= then, now - then, now)


def _in_turn(waited: NDArray[np.int64]) -> tuple[NDArray[np.int64], slice]:
    """The order in which groups that have waited for so many steps are served, and where in it those are that have not
    waited."""
    waiting = np.argsort(-waited, kind="stable")[: np.count_nonzero(waited)]
    first = waiting[: int(waited.max(initial=0) >= PATIENCE)]
    order = np.concatenate([first, np.flatnonzero(waited == 0), waiting[len(first) :]])
    return order, slice(len(first), len(order) - len(waiting) + len(first))


def _served(rows: Floats, allowance: float) -> int:
    """How many partitions get their rows, in turn, if about so many are allowed."""
    return int(np.searchsorted(np.cumsum(rows) - rows / 2, allowance, side="right"))


def _crowded(rows: Floats, space: float) -> int:
    """How many partitions have to get their rows, in turn, since there is no space for more than so many."""
    total = np.cumsum(rows)
    return int(np.searchsorted(total, total[-1] - space, side="left")) + 1 if len(rows) and total[-1] > space else 0


def _row_bytes(view: ProcessorView, partitions: Partitions) -> float:
    """The size of a row: of those that wait, or else of those in the state."""
    waiting = int(partitions.held.sum())
    if waiting and view.held_bytes:
        return view.held_bytes / waiting
    return max((view.active_bytes + view.spilled_bytes) / max(int(partitions.arrived.sum()), 1), 1.0)


def _held(processor: int, partitions: Partitions, chosen: NDArray[np.int64], reason: str) -> list[HoldGroups]:
    actions = []
    for family in np.unique(partitions.family[chosen]).tolist():
        own = chosen[partitions.family[chosen] == family]
        actions.append(HoldGroups(processor, family, tuple(sorted(partitions.group[own].tolist())), reason))
    return actions


def _keys(partitions: Partitions) -> list[Partition]:
    return list(zip(partitions.family.tolist(), partitions.group.tolist(), strict=True))
