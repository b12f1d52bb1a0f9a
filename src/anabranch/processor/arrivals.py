"""Sorting out what arrives from streams: bad rows, late rows, and the rest by port.

Bad rows carry a note that says why (`notes`). They stop the step, unless there is a quarantine; late rows are counted.
Either may be written down, one JSON document per line, for the driver to publish when the step is committed. Copies of
rows that are kept by another processor (`StepTask.copied`) are counted and written down there only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.errors import BadRowError, InconsistentStepError
from anabranch.kernel.delta import INPUT, Projection, sort_delta
from anabranch.processor.context import Attempt
from anabranch.processor.deltas import Deltas
from anabranch.processor.json_rows import json_rows
from anabranch.processor.tasks import Arrival
from anabranch.state.arrays.row_bytes import concatenated, longest_row, narrowed, rows_at_once
from anabranch.state.groups import group_counts
from anabranch.state.runs.run import HASH, TS, Segment
from anabranch.state.store import write_file

REJECT = "reject"


def take_arrived(attempt: Attempt, deltas: Deltas, batches: list[pa.RecordBatch]) -> None:
    """Sort arriving rows by port; refuse those of groups that are not this processor's."""
    if not batches:
        return
    packed, arrivals = concatenated(batches), attempt.round.arrivals
    by_port = _sort_out(attempt, packed, arrivals).items() if attempt.number == 0 else _by_tag(packed, arrivals)
    for port, rows in by_port:
        _check_owned(attempt, port, rows)
        deltas.add(port, rows)


def _by_tag(packed: pa.RecordBatch, arrivals: dict[int, Arrival]) -> Iterator[tuple[int, Segment]]:
    """The rows of an exchange by port."""
    tags = packed.column(INPUT).to_numpy()
    for tag, arrival in arrivals.items():
        yield arrival.port, sort_delta(packed, np.flatnonzero(tags == tag), arrival.stored)


def _sort_out(attempt: Attempt, packed: pa.RecordBatch, arrivals: dict[int, Arrival]) -> dict[int, Segment]:
    """Count and reject the arriving rows of streams by source, and sort them by port."""
    tags = packed.column(INPUT).to_numpy()
    copies = _copies(attempt, packed, arrivals)
    bad = _bad_rows(attempt, packed, copies)
    timed = TS in packed.schema.names
    taken: dict[int, list[NDArray[np.int64]]] = {}
    late_rows = []
    for i, arrival in arrivals.items():
        mask = tags == i
        own = mask if copies is None else mask & ~copies
        attempt.report.received[i] = int(own.sum())
        if bad is not None:
            attempt.report.rejected[i] = int((own & bad).sum())
            mask &= ~bad
        rows = np.flatnonzero(mask)
        if timed and len(rows):
            ts = packed.column(TS).to_numpy()
            attempt.report.newest[i] = int(ts[rows].max())
            threshold = attempt.task.late[i]
            if threshold is not None:
                on_time = ts[rows] >= threshold
                late = rows[~on_time] if copies is None else rows[~on_time & ~copies[rows]]
                if i not in attempt.plan.shadows:
                    late_rows.append((i, late))
                attempt.report.late[i] = len(late)
                rows = rows[on_time]
        taken.setdefault(arrival.port, []).append(rows)
    if attempt.plan.late_projections is not None and any(len(rows) for _, rows in late_rows):
        attempt.report.late_file = _write_late(attempt, packed, attempt.plan.late_projections, late_rows)
    stored = {arrival.port: arrival.stored for arrival in arrivals.values()}
    return {
        port: sort_delta(packed, np.concatenate(rows) if len(rows) > 1 else rows[0], stored[port])
        for port, rows in taken.items()
    }


def _copies(attempt: Attempt, packed: pa.RecordBatch, arrivals: dict[int, Arrival]) -> NDArray[np.bool_] | None:
    """Which rows are copies of rows that another processor keeps; None if there are none."""
    copies = None
    for tag, arrival in arrivals.items():
        groups = attempt.task.copied_at(arrival.port)
        if groups is not None:
            own = groups.holds(packed.column(HASH).to_numpy().view(np.uint64))
            own &= packed.column(INPUT).to_numpy() == tag
            copies = own if copies is None else copies | own
    return copies


def _bad_rows(attempt: Attempt, packed: pa.RecordBatch, copies: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    if REJECT not in packed.schema.names:
        return None
    column = packed.column(REJECT)
    if column.null_count == len(column):
        return None
    mask: NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    if not attempt.plan.keep_rejected:
        sample = json.loads(column.filter(column.is_valid())[0].as_py())
        raise BadRowError(
            f"stream {sample['stream']}, column {sample['column']}: {int(mask.sum())} row(s) cannot be "
            f"processed because {sample['problem']}; for example {sample['row']}. Correct or filter the "
            "input, or set quarantine=PATH to put such rows aside and go on"
        )
    counted = ~np.isin(packed.column(INPUT).to_numpy(), list(attempt.plan.shadows))
    counted &= True if copies is None else ~copies
    lines = [text for text in column.filter(pa.array(counted)).to_pylist() if text is not None]
    if lines:
        attempt.report.rejected_file = _write_lines(attempt, "rejected", lines)
    return mask


def _write_late(
    attempt: Attempt,
    packed: pa.RecordBatch,
    projections: tuple[Projection, ...],
    late: list[tuple[int, NDArray[np.int64]]],
) -> str:
    lines: list[str] = []
    for i, rows in late:
        slots = dict.fromkeys([*(slot for _, slot in projections[i].columns), TS])
        chosen = packed.select(list(slots)).take(pa.array(rows))
        at_once = rows_at_once(len(rows), longest_row(chosen))
        for first in range(0, len(rows), at_once):
            lines += _late_lines(attempt, i, projections[i], narrowed(chosen.slice(first, at_once)))
    return _write_lines(attempt, "late", lines)


def _late_lines(attempt: Attempt, i: int, projection: Projection, late: pa.RecordBatch) -> Iterator[str]:
    texts = json_rows({name: late.column(slot) for name, slot in projection.columns}, len(late))
    alias, times = json.dumps(attempt.plan.aliases[i]), late.column(TS).to_pylist()
    for n, (row, time_us) in enumerate(zip(texts.rows, times, strict=True)):
        invalid = texts.invalid.get(n)
        flagged = "" if invalid is None else f'"invalid_utf8": {json.dumps(invalid)}, '
        yield f'{{"input": {alias}, {flagged}"row": {row}, "ts": {time_us}}}'


def _write_lines(attempt: Attempt, kind: str, lines: list[str]) -> str:
    name = f"{kind}-{attempt.name}.jsonl"
    text = "".join(line + "\n" for line in sorted(lines))
    write_file(Path(attempt.task.reports) / name, text.encode())
    return name


def _check_owned(attempt: Attempt, port: int, rows: Segment) -> None:
    """Refuse rows of partition groups that are not this processor's."""
    plan, task = attempt.plan, attempt.task
    owned = task.owned[port]
    if owned.is_all:
        return
    foreign = np.flatnonzero((group_counts(rows.hashes, plan.groups) > 0) & ~owned.mask())
    if len(foreign):
        raise InconsistentStepError(
            f"processor {task.processor} got rows of partition group {foreign[0]}, which is not its own, in step "
            f"{task.step}. Nothing of the step is committed. Something between Spark and the engine changes how rows "
            "are partitioned, such as an extension of the session"
        )
