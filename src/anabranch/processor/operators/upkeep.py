"""Upkeep of an operator's spines in a step: purging expired rows, inserting new ones, merging runs."""

from __future__ import annotations

from dataclasses import replace

from anabranch.kernel.operator import SpillableOperator
from anabranch.processor.operators.working import OperatorAtWork
from anabranch.state.manifest import OperatorState
from anabranch.state.runs.expiry import keep_alive
from anabranch.state.runs.merge_budget import merge_rows
from anabranch.state.runs.run import RunFile, Segment
from anabranch.state.runs.slice import Slice
from anabranch.state.runs.spine import Spine
from anabranch.state.spill import FullState, present_groups


def purge(work: OperatorAtWork, spines: list[Spine], state: OperatorState) -> FullState:
    """Drop expired files from the spines; groups with expired rows that spilled state still needs are noted as
    retired."""
    attempt, purged = work.attempt, []
    expired: list[Slice] = []
    for port, spine in zip(work.ports, spines, strict=True):
        purged.append(spine.purge(attempt.task.purge[port], work.spared, attempt.cuts))
        expired += purged[-1].retired[len(spine.retired) :]
    if expired:
        groups = present_groups(expired, attempt.plan.groups, attempt.cuts)
        state = replace(state, retired=groups if state.retired is None else groups | state.retired)
    return purged, state


def consolidate(work: OperatorAtWork, spines: list[Spine]) -> list[Spine]:
    """Write small and sparse runs anew.

    Nothing of this step is answered yet, so rows that an operator will not need after its answers (`keep`) are still
    there.
    """
    attempt, files = work.attempt, work.attempt.files
    written = []
    for port, spine in zip(work.ports, spines, strict=True):
        budget = merge_rows(sum(map(len, work.deltas.kept(port))), spine)
        threshold, span = attempt.task.purge[port], attempt.plan.max_spans[port]
        written.append(spine.consolidate(budget, files.scan(port), files.write, threshold, span, work.spared))
    return written


def insert(work: OperatorAtWork, spines: list[Spine]) -> list[Spine]:
    """Insert the rows of every port into its spine, and go on with the merges there."""
    return [_insert(work, nth, spine) for nth, spine in enumerate(spines)]


def _insert(work: OperatorAtWork, nth: int, before: Spine) -> Spine:
    attempt, port, kernel = work.attempt, work.ports[nth], work.operator.operator
    settled = (
        work.answering.settled_afterwards if isinstance(kernel, SpillableOperator) else work.answering.settled_for_all
    )
    threshold = attempt.task.purge[port]
    arrived, spine = work.deltas.kept(port), before
    for rows in arrived:
        file = work.deltas.file_of(port, rows)
        alive = keep_alive(rows, threshold, work.spared) if file is None else None
        if alive is not None:
            file = attempt.files.write(alive)
        if file is not None:
            spine = spine.insert(file)
    if spine is before:
        return spine
    budget = merge_rows(sum(map(len, arrived)), spine) * max(1, len(spine.merges))

    def write(merged: Segment) -> RunFile:
        # Which rows a spilled group still needs is not known here.
        return attempt.files.write(merged if work.spared is not None else kernel.keep(nth, merged, settled))

    span = attempt.plan.max_spans[port]
    return spine.compact(budget, attempt.files.scan(port), write, threshold, span, work.spared)
