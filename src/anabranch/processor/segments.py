"""Parts of segments: rows of some partition groups, and some columns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.state.groups import GroupSet
from anabranch.state.runs.run import Segment


def rows_of(segment: Segment, chosen: NDArray[np.bool_]) -> Segment:
    """Some rows of a segment, in their order."""
    return Segment.of(segment.rows.take(pa.array(np.flatnonzero(chosen))))


def of_groups(segment: Segment, groups: GroupSet) -> Segment:
    """The rows of some groups, copied."""
    return segment if groups.is_all else rows_of(segment, groups.holds(segment.hashes))


def all_among(ports: list[list[Segment]], groups: GroupSet) -> list[list[Segment]]:
    """The segments at some ports, of which only rows of some groups count."""
    if groups.is_all:
        return ports
    return [[segment.among(groups) for segment in segments] for segments in ports]


def with_columns(segment: Segment, columns: tuple[str, ...]) -> Segment:
    """The segment with these columns in this order. Other queries may have kept more, or in another order."""
    if tuple(segment.rows.schema.names) == columns:
        return segment
    return replace(segment, rows=segment.rows.select(list(columns)))
