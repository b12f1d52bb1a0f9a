"""Expired rows: which of them are dropped, and which must be kept for spilled state.

A row older than the purge threshold of its port meets no later row. It may still have to meet rows of its partition
group that were spilled earlier: such rows are spared until clean-up has used them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.state.groups import GroupSet
from anabranch.state.runs.run import RunFile, Segment


@dataclass(frozen=True, slots=True)
class Spared:
    """Rows that are kept beyond the purge threshold: those of groups with spilled state, up to the time `until`."""

    groups: GroupSet
    until: int | None = None

    def holds(self, segment: Segment) -> NDArray[np.bool_]:
        """Which rows of a segment are spared."""
        held = self.groups.holds(segment.hashes)
        return held if self.until is None or segment.ts is None else held & (segment.ts <= self.until)


def is_newer(file: RunFile, time: int | None) -> bool:
    """Whether every row of a file is newer than a time."""
    return time is not None and file.min_ts is not None and file.min_ts > time


def keep_alive(rows: Segment, threshold: int | None, spared: Spared | None = None) -> Segment | None:
    """Keep the rows of a segment that are spared or not older than `threshold`; None if there are none."""
    if threshold is not None and rows.ts is not None:
        alive = rows.ts >= threshold
        if spared is not None:
            alive |= spared.holds(rows)
        if not alive.all():
            rows = Segment.of(rows.rows.take(pa.array(np.flatnonzero(alive))))
    return rows if len(rows) else None
