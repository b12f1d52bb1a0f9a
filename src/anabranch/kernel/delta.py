"""Delta: the rows of one batch, sorted out by input and ready to be joined and stored.

A packed row carries the number of its input, its hash, possibly its event time and reject reason, and typed slots
that all inputs share. `Projection` says which slot holds which state column of an input.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.state.arrays.order import order_of
from anabranch.state.runs.run import HASH, TS, Segment

INPUT = "input"


@dataclass(frozen=True, slots=True)
class Projection:
    """The state columns of one input: pairs of (state column, slot); and the event time, if it is `timed`."""

    columns: tuple[tuple[str, str], ...]
    timed: bool = True


def sort_delta(packed: pa.RecordBatch, rows: NDArray[np.int64], projection: Projection) -> Segment:
    """The given rows of a packed batch as a segment of one input, sorted by (hash, ts)."""
    hashes = packed.column(HASH).to_numpy().view(np.uint64)[rows]
    ts = packed.column(TS).to_numpy()[rows] if projection.timed and TS in packed.schema.names else None
    order = order_of(hashes, ts)
    names, arrays = [HASH], [pa.array(hashes[order])]
    if ts is not None:
        names.append(TS)
        arrays.append(pa.array(ts[order]))
    chosen = pa.array(rows[order])
    for column, slot in projection.columns:
        names.append(column)
        arrays.append(packed.column(slot).take(chosen))
    return Segment.of(pa.RecordBatch.from_arrays(arrays, names))


def sort_rows(rows: pa.RecordBatch) -> Segment:
    """Rows with a hash, and a time where there is one, as a sorted segment."""
    hashes = rows.column(HASH).to_numpy()
    timed = TS in rows.schema.names
    order = order_of(hashes, rows.column(TS).to_numpy() if timed else None)
    names = [HASH, *([TS] if timed else []), *(name for name in rows.schema.names if name not in (HASH, TS))]
    return Segment.of(rows.select(names).take(pa.array(order)))


def keep_after(segment: Segment, threshold: int | None) -> Segment:
    """The rows of a segment that are not older than `threshold`."""
    if threshold is None or segment.ts is None:
        return segment
    alive = segment.ts >= threshold
    if alive.all():
        return segment
    return Segment.of(segment.rows.take(pa.array(np.flatnonzero(alive))))
