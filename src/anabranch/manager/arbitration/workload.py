"""What processors did, held and were given in the last batches: what estimates are made of.

Loads are in seconds. A processor's load is the CPU time that it takes for a batch (decision 017), times its *stretch*:
how many times longer it was busy than it had CPU time, compared with the processor that waited least for its machine.
So a processor with a slow machine has a high load, and one whose machine others want, too; that all processors share
few cores adds nothing. Of the last `WINDOW` batches the median counts, since now and then one takes very long.

The seconds of an operator on a processor are shared out to partition groups by their *work*: the rows that came for
them and the results that they gave. What no operator takes of the time, such as the start of a task, stays where it is
when groups move.

When a processor's load has been `TURN` times what it was, or the other way, in two batches on end, there was a turn of
load: then the batches before count no more.

Steps without rows are no batches. If they deliver what spilling has postponed they tell what a byte on disk costs.
Before, to clean up a row is taken to cost as much as any other work for one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from anabranch.manager.memory.memory_use import allowed_bytes
from anabranch.manager.snapshot import Floats, ProcessorView, Snapshot

# Batches that are looked at.
WINDOW = 4
# How many times more or less a load is after a turn, and in how many batches on end.
TURN, TURNED = 1.5, 2
# What a processor's load has to be above the mean for it to be late, as for the skew buffer.
LATE = 1.25
# What a measurement of clean-up counts against earlier ones.
MEASURED_WEIGHT = 0.25


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch: rows that came, how long it took, and per processor CPU time, busy time, state, and by operator the CPU
    time and the rows worked on and made."""

    arrived: int
    seconds: float
    cpu: Floats
    busy: Floats
    state: Floats
    operators: Floats
    work: Floats


@dataclass(frozen=True, slots=True)
class Workload:
    """The load of processors, by their numbers, from the last batches.

    `loads` are seconds per batch by processor, `last` those of the last batch alone, `operators` those of each operator
    there, and `paces` the seconds for a row of work, alike. `work` is by operator and partition group, per batch. State
    has grown by so many bytes per batch (`growth`), and processors were `late` in so many batches up to now. A batch
    brings so many `rows` and takes so many `seconds`. There were so many `batches` under this plan. To clean up a byte
    on disk takes so many `clean_up_seconds`.
    """

    batches: int
    rows: float
    seconds: float
    loads: Floats
    last: Floats
    operators: Floats
    paces: Floats
    work: Floats
    growth: Floats
    late: Floats
    clean_up_seconds: float = 0.0

    def busiest(self, processors: Iterable[int]) -> float:
        """The load of the busiest of some processors."""
        return max((float(self.loads[p]) for p in processors), default=0.0)

    def work_of(self, operator: int, groups: Sequence[int]) -> float:
        """The work for some groups of an operator, per batch."""
        return float(self.work[operator, list(groups)].sum())

    def seconds_for(self, processor: int, operator: int, work: float, instead_of: int) -> float:
        """How long a processor takes for some work of an operator; as another one if that is not known."""
        pace = float(self.paces[processor, operator])
        return work * (pace or float(self.paces[instead_of, operator]))

    @property
    def done(self) -> float:
        """The work of all operators for a batch."""
        return float(self.work.sum())

    @property
    def row_seconds(self) -> float:
        """The seconds for a row that an operator works on or makes, on average."""
        return float(self.operators.sum()) / self.done if self.done > 0 else 0.0


def bytes_over(view: ProcessorView, more: float = 0.0) -> float:
    """By how much the active state of a processor would be over its memory with so many bytes more."""
    if view.memory is None:
        return 0.0
    return max(view.active_bytes + more - allowed_bytes(view.memory, view.unspillable_bytes), 0.0)


def _no_batches() -> deque[Batch]:
    return deque(maxlen=WINDOW)


def _no_counts() -> deque[NDArray[np.int64]]:
    return deque(maxlen=WINDOW + 1)


@dataclass(slots=True)
class WorkloadTracker:
    """Follows snapshots. What is known of a plan, or of a number of processors, is forgotten with it."""

    _key: object = None
    _batches: deque[Batch] = field(default_factory=_no_batches)
    _counts: deque[NDArray[np.int64]] = field(default_factory=_no_counts)
    _late: Floats = field(default_factory=lambda: np.empty(0))
    _number: int = 0
    _numbers: tuple[int, ...] = ()
    _on_disk: int = 0
    _row_bytes: float = 0.0
    _clean_up_seconds: float | None = None

    def follow(self, snapshot: Snapshot) -> Workload | None:
        """The workload up to a snapshot; None before there was a batch."""
        key = plan_key(snapshot)
        if key != self._key:
            self._key, self._number, self._numbers = key, 0, snapshot.numbers
            self._batches.clear()
            self._counts.clear()
            self._late = np.zeros(len(snapshot.processors))
        self._price_clean_up(snapshot)
        if snapshot.arrived > 0:
            self._number += 1
            self._batches.append(_batch(snapshot))
            counts = _counts(snapshot)
            if self._counts and self._counts[-1].shape != counts.shape:
                self._counts.clear()
            self._counts.append(counts)
            if len(self._batches) > 1:
                # As long as nothing is purged state grows by what arrives.
                grown = float((self._batches[-1].state - self._batches[-2].state).sum())
                self._row_bytes = max(self._row_bytes, grown / snapshot.arrived)
            self._note_late(self._batches[-1], snapshot)
            self._forget_before_turn()
        return self._workload() if self._batches else None

    def _note_late(self, batch: Batch, snapshot: Snapshot) -> None:
        loads = batch.cpu * _stretches([batch])
        waiting = np.array([view.held_bytes > 0 for view in snapshot.processors])
        late = (loads > LATE * loads.mean()) | waiting
        self._late = np.where(late, self._late + 1, 0)

    def _forget_before_turn(self) -> None:
        loads = np.array([batch.cpu * _stretches([batch]) for batch in self._batches])
        before, after = loads[:-TURNED], loads[-TURNED:]
        if len(before) and np.any(
            (after.min(axis=0) > TURN * before.max(axis=0)) | (before.min(axis=0) > TURN * after.max(axis=0))
        ):
            for _ in before:
                self._batches.popleft()
            while len(self._counts) > TURNED + 1:
                self._counts.popleft()

    def _price_clean_up(self, snapshot: Snapshot) -> None:
        """Learn what clean-up costs from a step that did nothing else."""
        on_disk = sum(view.spilled_bytes for view in snapshot.processors)
        read, self._on_disk = self._on_disk - on_disk, on_disk
        if snapshot.arrived == 0 and read > 0:
            price = sum(view.cpu for view in snapshot.processors) / read
            before = price if self._clean_up_seconds is None else self._clean_up_seconds
            self._clean_up_seconds = before + MEASURED_WEIGHT * (price - before)

    def _workload(self) -> Workload:
        batches = list(self._batches)
        stretches = _stretches(batches)
        cpu = np.median([batch.cpu for batch in batches], axis=0)
        operators = np.median([batch.operators for batch in batches], axis=0) * stretches[:, np.newaxis]
        done = np.mean([batch.work for batch in batches], axis=0)
        paces = np.divide(operators, done, out=np.zeros_like(operators), where=done > 0)
        first, last = self._counts[0], self._counts[-1]
        grown = np.where(last >= first, last - first, last) / max(len(self._counts) - 1, 1)
        states = [batch.state for batch in batches]
        number = self._numbers
        workload = Workload(
            batches=self._number,
            rows=float(np.median([batch.arrived for batch in batches])),
            seconds=float(np.median([batch.seconds for batch in batches])),
            loads=_by_number(cpu * stretches, number),
            last=_by_number(batches[-1].cpu * _stretches(batches[-1:]), number),
            operators=_by_number(operators, number),
            paces=_by_number(paces, number),
            work=grown.astype(np.float64),
            growth=_by_number(np.maximum(states[-1] - states[0], 0.0) / max(len(states) - 1, 1), number),
            late=_by_number(self._late, number),
        )
        return replace(workload, clean_up_seconds=self._price(workload))

    def _price(self, workload: Workload) -> float:
        """What it takes to clean up a byte."""
        if self._clean_up_seconds is not None or not self._row_bytes:
            return self._clean_up_seconds or 0.0
        return workload.row_seconds / self._row_bytes


def plan_key(snapshot: Snapshot) -> object:
    """What tells plans apart, and the processors that are there."""
    names: Mapping[int, str] = {operator.number: operator.name for operator in snapshot.plan.operators}
    return (tuple(sorted(names.items())), snapshot.plan.families, snapshot.numbers)


def _by_number(values: Floats, numbers: Sequence[int]) -> Floats:
    """Values that are listed in the order of processors, by their numbers; processors that are not there have 0."""
    by_number: Floats = np.zeros((max(numbers) + 1, *values.shape[1:]))
    by_number[list(numbers)] = values
    return by_number


def _stretches(batches: Sequence[Batch]) -> Floats:
    """How many times longer than its CPU time each processor was busy, of the one with the least."""
    each = [np.divide(one.busy, one.cpu, out=np.ones_like(one.cpu), where=one.cpu > 0) for one in batches]
    stretches: Floats = np.maximum(np.median(each, axis=0), 1.0)
    stretches /= stretches.min()
    return stretches


def _batch(snapshot: Snapshot) -> Batch:
    views, count = snapshot.processors, _operators(snapshot)
    operators, work = np.zeros((len(views), count)), np.zeros((len(views), count))
    for p, view in enumerate(views):
        for one in view.operators:
            operators[p, one.operator] = one.cpu
            work[p, one.operator] = one.rows + one.results
    return Batch(
        snapshot.arrived,
        snapshot.seconds,
        np.array([view.cpu for view in views]),
        np.array([view.busy for view in views]),
        np.array([view.active_bytes + view.spilled_bytes for view in views], dtype=np.float64),
        operators,
        work,
    )


def _counts(snapshot: Snapshot) -> NDArray[np.int64]:
    """Rows that have arrived and results so far, by operator and group: a count that grows where the group is."""
    counts = np.zeros((_operators(snapshot), _groups(snapshot)), dtype=np.int64)
    for view in snapshot.processors:
        for one in view.operators:
            known = one.statistics
            np.add.at(counts[one.operator], known.groups, known.arrived + known.produced)
    return counts


def _operators(snapshot: Snapshot) -> int:
    there = (one.operator + 1 for view in snapshot.processors for one in view.operators)
    return max([len(snapshot.plan.operators), *there])


def _groups(snapshot: Snapshot) -> int:
    there = (int(one.statistics.groups.max(initial=-1)) + 1 for view in snapshot.processors for one in view.operators)
    return max([snapshot.plan.groups, *there])
