"""The step of one operator on one processor.

In this order: rows of some groups are held back, expired state is purged, sparse runs are written anew, new rows meet
the active state, new rows are inserted, spilled groups are cleaned up, and the statistics of groups are brought up to
date.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.kernel.operator import SpillableOperator
from anabranch.processor.context import Attempt
from anabranch.processor.deltas import Deltas
from anabranch.processor.destinations import send_results
from anabranch.processor.operators.answering import Answering
from anabranch.processor.operators.clean_up import clean_up, due_for_clean_up
from anabranch.processor.operators.holding import hold_back
from anabranch.processor.operators.upkeep import consolidate, insert, purge
from anabranch.processor.operators.working import OperatorAtWork
from anabranch.processor.segments import all_among, of_groups
from anabranch.processor.tasks import OperatorPlan
from anabranch.state.generation import spilled_groups
from anabranch.state.groups import GroupSet, group_counts
from anabranch.state.manifest import OperatorState
from anabranch.state.runs.run import HASH, TS, Segment
from anabranch.state.runs.spine import Spine
from anabranch.state.spill import FullState, bytes_by_group, drop_expired, spared
from anabranch.state.statistics import DECAY, Statistics

NO_ROWS = Segment.of(pa.record_batch({HASH: pa.array([], pa.uint64()), TS: pa.array([], pa.int64())}))


def run_operator(
    attempt: Attempt, deltas: Deltas, operator: OperatorPlan, spines: list[Spine], before: OperatorState
) -> Generator[pa.RecordBatch, None, FullState]:
    """Run an operator on the rows of its ports and on its state; returns its spines and its state after the step.

    Yields the results that go through the next exchange.
    """
    work, state = _begin(attempt, deltas, operator, before)
    after, state = purge(work, spines, state)
    after = consolidate(work, after)
    arrived = _arrived_by_group(work)
    copies = _without_copies(work, arrived)
    _count_work(work, arrived, copies)
    touched = arrived.sum(axis=1) > 0
    yield from send_results(work, _results(work, after, state))
    fresh = work.produced.copy()
    after = insert(work, after)
    due, cleaned = due_for_clean_up(work, state), attempt.no_groups
    if due is not None:
        after, state = yield from clean_up(work, (after, state), due)
        touched |= due.back.mask()
        cleaned = due.groups
    state = replace(state, lagging=work.answering.lagging_after(cleaned))
    sizes = None if after == spines else _bytes_by_group(work, after)
    state = replace(state, statistics=_update(work, state.statistics, sizes, fresh, arrived, touched))
    if not attempt.is_grouping(operator):
        state = drop_expired(state, [attempt.task.purge[port] for port in operator.ports], attempt.cuts)
    return after, state


def _begin(
    attempt: Attempt, deltas: Deltas, operator: OperatorPlan, before: OperatorState
) -> tuple[OperatorAtWork, OperatorState]:
    """Decide which rows wait and what is answered in the step.

    Rows that are older than what was answered come too late: the input was taken for ended once. Those of streams are
    sorted out when they arrive.
    """
    settled = attempt.settled(operator)
    if settled.since is not None:
        for port in operator.ports:
            attempt.report.late_joined += deltas.drop_before(port, settled.since)
    state = hold_back(attempt, deltas, operator, before)
    count = attempt.plan.groups
    if attempt.is_grouping(operator):
        answering = Answering.of(before, state, settled, count, attempt.cuts)
    else:
        answering = Answering.together(settled, count)
    kept = spared(state, [attempt.plan.windows[port] for port in operator.ports])
    return OperatorAtWork(attempt, operator, deltas, answering, kept, np.zeros(count, dtype=np.int64)), state


def _results(work: OperatorAtWork, spines: list[Spine], state: OperatorState) -> Iterator[pa.RecordBatch]:
    """The results of new rows with each other and with the active state; none if nobody takes them."""
    kernel, files, groups = work.operator.operator, work.attempt.files, work.attempt.plan.groups
    task = work.attempt.task
    if not work.operator.destinations or (not kernel.waits and not work.deltas.has_new(work.ports)):
        return
    pairs = zip(work.ports, spines, strict=True)
    old = [[files.open(port, p) for p in (*spine.slices(), *task.borrowed_at(port))] for port, spine in pairs]
    deltas = [
        work.deltas.new(port) or (segments[0].slice(0, 0) if segments else NO_ROWS)
        for port, segments in zip(work.ports, old, strict=True)
    ]
    if not isinstance(kernel, SpillableOperator):
        for share, settled in (pair for pair in work.answering.settled_groups if pair[0]):
            # Such an operator may read any row of a segment, so the segments have no rows of other groups.
            own = [[segment.only_selected() for segment in segments] for segments in all_among(old, share)]
            yield from kernel.process(own, [of_groups(delta, share) for delta in deltas], settled)
        return
    frozen = spilled_groups(state.generations) if kernel.freezes else None
    active = old if frozen is None else all_among(old, GroupSet.all(groups) - frozen)
    yield from work.count(kernel.counted(active, deltas, work.answering.settled_by_group, groups))


def _arrived_by_group(work: OperatorAtWork) -> NDArray[np.int64]:
    """The number of rows that come to the operator in this step, by group and port."""
    groups = work.attempt.plan.groups
    counts = np.zeros((groups, len(work.ports)), dtype=np.int64)
    for nth, port in enumerate(work.ports):
        for rows in work.deltas.at(port):
            counts[:, nth] += group_counts(rows.hashes, groups)
    return counts


def _without_copies(work: OperatorAtWork, arrived: NDArray[np.int64]) -> int:
    """Leave copies out of the rows that come, by group and port; returns how many they are."""
    copies = 0
    for nth, port in enumerate(work.ports):
        groups = work.attempt.task.copied_at(port)
        if groups is not None:
            copies += int(arrived[groups.mask(), nth].sum())
            arrived[groups.mask(), nth] = 0
    return copies


def _count_work(work: OperatorAtWork, arrived: NDArray[np.int64], copies: int) -> None:
    """Count the rows that the operator works on, and what of them and of the state is there for diffusion only."""
    report, number = work.attempt.report, work.operator.number
    report.worked[number] += int(arrived.sum()) + copies
    report.copied[number] += copies
    borrowed = [piece for port in work.ports for piece in work.attempt.task.borrowed_at(port)]
    report.borrowed_rows[number] += sum(piece.rows for piece in borrowed)
    report.borrowed_bytes[number] += sum(piece.bytes for piece in borrowed)


def _bytes_by_group(work: OperatorAtWork, spines: list[Spine]) -> NDArray[np.int64]:
    slices = (piece for spine in spines for piece in spine.slices())
    return bytes_by_group(slices, work.attempt.plan.groups, work.attempt.cuts)


def _update(
    work: OperatorAtWork,
    statistics: Statistics,
    sizes: NDArray[np.int64] | None,
    fresh: NDArray[np.int64],
    arrived: NDArray[np.int64],
    touched: NDArray[np.bool_],
) -> Statistics:
    """The statistics of groups after the step.

    `sizes` are the bytes of each group, None if they are the same; `fresh` are the results of new rows, `arrived` the
    rows that came, by port, and `touched` are the groups that got any or were brought back.
    """
    before = statistics.dense(work.attempt.plan.groups, len(work.ports))
    return Statistics(
        before.groups,
        before.bytes if sizes is None else sizes,
        before.produced + work.produced,
        # Groups that are brought back from disk bring their old results along; groups that stay there count none.
        before.recent * DECAY + np.minimum(work.produced, fresh),
        np.where(touched, work.attempt.task.now, before.inserted),
        before.arrivals + arrived,
    ).present()
