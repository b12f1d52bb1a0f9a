"""Cleaning up spilled partition groups: delivering the results that they owe, and writing their rows as one run.

Only rows of the groups that are cleaned up are read, some groups at a time, and no file stays mapped.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pyarrow as pa

from anabranch.kernel.operator import Counted, Settled, SpillableOperator
from anabranch.kernel.probe import blocks
from anabranch.processor.destinations import send_results
from anabranch.processor.operators.working import OperatorAtWork
from anabranch.state.generation import by_since, spilled_groups
from anabranch.state.groups import GroupSet
from anabranch.state.manifest import OperatorState
from anabranch.state.runs.merge import merge_segments
from anabranch.state.runs.run import Segment
from anabranch.state.runs.slice import Slice
from anabranch.state.spill import (
    CleanedGroups,
    CleanUp,
    FullState,
    all_generations,
    bytes_by_group,
    leave_spilled,
    reunite,
    spilled_bytes,
)

# State that is read at once by clean-up.
CLEAN_UP_BYTES = 64 << 20


def due_for_clean_up(work: OperatorAtWork, state: OperatorState) -> CleanUp | None:
    """The spilled groups of this processor that the step is to clean up; None if there is nothing to do."""
    wanted = work.attempt.task.clean_up.get(work.operator.number)
    spilled = spilled_groups(state.generations)
    if wanted is None or spilled is None:
        return None
    return CleanUp(spilled & wanted.groups, spilled & wanted.back)


def clean_up(work: OperatorAtWork, full_state: FullState, due: CleanUp) -> Generator[pa.RecordBatch, None, FullState]:
    """Clean up groups; returns the operator's spines and state afterwards, with `due.back` active again."""
    for chosen, stays in ((due.groups - due.back, True), (due.back, False)):
        for groups, settled in work.answering.of_groups(chosen):
            for some in _in_turn(work, full_state[1], groups):
                full_state = yield from _clean_up_some(work, full_state, some, settled, stays=stays)
    return full_state


def _in_turn(work: OperatorAtWork, state: OperatorState, groups: GroupSet) -> Iterator[GroupSet]:
    """The groups, as many at a time as should be read at once."""
    count = work.attempt.plan.groups
    sizes = spilled_bytes(state.generations, count) + state.statistics.dense(count).bytes
    numbers = groups.numbers()
    for first, last in blocks(sizes[numbers], CLEAN_UP_BYTES):
        yield GroupSet.of(count, numbers[first:last])


def _clean_up_some(
    work: OperatorAtWork, full_state: FullState, groups: GroupSet, settled: Settled, *, stays: bool
) -> Generator[pa.RecordBatch, None, FullState]:
    """Deliver the results that some groups owe, and write their rows as one run per port."""
    kernel, attempt = work.operator.operator, work.attempt
    assert isinstance(kernel, SpillableOperator), "only what can be cleaned up is spilled"
    rows: list[list[Segment]] = [[] for _ in work.ports]
    for since, some in by_since(full_state[1].generations, groups) if kernel.freezes else [(None, groups)]:
        generations = _read(work, full_state, some)
        for ports in generations:
            for nth, segments in enumerate(ports):
                rows[nth] += segments
        owed = kernel.owed(generations, Settled(since, settled.until), attempt.plan.groups)
        yield from send_results(work, _count_owed(work, owed))
    cleaned = _write_cleaned(work, full_state[1], groups, rows, settled)
    produced = work.produced
    if not stays:
        produced[groups.numbers()] = cleaned.produced
        produced -= full_state[1].statistics.dense(attempt.plan.groups).produced * groups.mask()
        return reunite(*full_state, cleaned, attempt.cuts)
    produced[groups.numbers()] = 0
    end = settled.until if kernel.freezes else attempt.task.since[work.operator.number]
    return leave_spilled(*full_state, cleaned, attempt.cuts, attempt.task.step, end)


def _read(work: OperatorAtWork, full_state: FullState, groups: GroupSet) -> list[list[list[Segment]]]:
    """The rows of some groups, per generation and port."""
    files = work.attempt.files
    return [
        [[files.read(port, piece) for piece in slices] for port, slices in zip(work.ports, ports, strict=True)]
        for ports in all_generations(*full_state, groups, work.attempt.cuts)
    ]


def _count_owed(work: OperatorAtWork, owed: Iterator[Counted]) -> Iterator[pa.RecordBatch]:
    for results in work.count(owed):
        work.attempt.report.owed[work.operator.number] += len(results)
        yield results


def _write_cleaned(
    work: OperatorAtWork, state: OperatorState, groups: GroupSet, rows: list[list[Segment]], settled: Settled
) -> CleanedGroups:
    """Write the rows of some groups that are still needed, and add up the results that the groups have produced."""
    attempt, kernel = work.attempt, work.operator.operator
    count, numbers = attempt.plan.groups, groups.numbers()
    slices: list[Slice | None] = []
    for nth, port in enumerate(work.ports):
        merged = merge_segments(rows[nth], attempt.task.purge[port]) if rows[nth] else None
        merged = None if merged is None else kernel.keep(nth, merged, settled)
        file = None if merged is None else attempt.files.write(merged)
        slices.append(None if file is None else Slice(file, 0, file.rows))
    produced = work.produced + state.statistics.dense(count).produced
    for generation in state.generations:
        produced = produced + generation.dense(generation.produced)
    sizes = bytes_by_group((piece for piece in slices if piece is not None), count, attempt.cuts)
    return CleanedGroups(groups, tuple(slices), tuple(sizes[numbers].tolist()), tuple(produced[numbers].tolist()))
