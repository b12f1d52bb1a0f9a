"""Holding back: rows of some partition groups wait in runs, until the driver lets them through."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from anabranch.kernel.operator import answers_later
from anabranch.processor.context import Attempt
from anabranch.processor.deltas import Deltas
from anabranch.processor.segments import rows_of
from anabranch.processor.tasks import OperatorPlan
from anabranch.state.groups import GroupSet, group_counts
from anabranch.state.manifest import OperatorState
from anabranch.state.runs.slice import Only, Slice, slices_of_groups


def hold_back(attempt: Attempt, deltas: Deltas, operator: OperatorPlan, state: OperatorState) -> OperatorState:
    """Set aside new rows of the groups that wait, and let rows through that have waited and need not any more."""
    waits = attempt.task.hold.get(operator.number, attempt.no_groups)
    if not waits and not state.held:
        return state
    goes_on, held = GroupSet.all(attempt.plan.groups) - waits, []
    for nth, port in enumerate(operator.ports):
        before = state.held[nth] if state.held else ()
        kept = list(slices_of_groups(before, waits, attempt.cuts))
        waiting = _set_aside(attempt, deltas, port, waits)
        if waiting is not None:
            kept.append(waiting)
        released = [attempt.files.read(port, piece) for piece in slices_of_groups(before, goes_on, attempt.cuts)]
        if released and answers_later(operator.operator):
            deltas.drain(port, released)
        elif released:
            deltas.add(port, *released)
        held.append(tuple(kept))
    return replace(state, held=tuple(held) if any(held) else ())


def _set_aside(attempt: Attempt, deltas: Deltas, port: int, waits: GroupSet) -> Slice | None:
    """Write the new rows of the groups that wait; None if there are none."""
    rows = deltas.new(port)
    if rows is None or not len(rows):
        return None
    is_waiting = waits.holds(rows.hashes)
    if not is_waiting.any():
        return None
    waiting = rows_of(rows, is_waiting)
    count = attempt.plan.groups
    present = GroupSet.of(count, np.flatnonzero(group_counts(waiting.hashes, count)))
    file = attempt.files.write(waiting)
    deltas.put(port, rows_of(rows, ~is_waiting))
    return Slice(file, 0, file.rows, Only(present, file.rows))
