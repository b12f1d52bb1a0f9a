"""Sorted rows and a place to keep them, for tests of what is built on both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from anabranch.state.groups import group_cuts
from anabranch.state.runs.run import HASH, TS, RunFile, Segment
from anabranch.state.runs.slice import Cuts, Slice
from anabranch.state.runs.spine import Spine


def segment(hashes: Sequence[int], ts: Sequence[int] | None = None, **columns: Sequence | pa.Array) -> Segment:
    """A segment of these rows, sorted by (hash, ts) as a run must be."""
    arrays = {HASH: pa.array(np.array(hashes, dtype=np.uint64))}
    if ts is not None:
        arrays[TS] = pa.array(np.array(ts, dtype=np.int64))
    arrays |= {name: pa.array(values) for name, values in columns.items()}
    batch = pa.record_batch(arrays)
    order = [(TS, "ascending")] if ts is not None else []
    return Segment.of(batch.sort_by([(HASH, "ascending"), *order]) if batch.num_rows else batch)


class MemoryRuns:
    """Run files without a disk: `write` and `open` as a spine wants them, and a record of what was written."""

    def __init__(self) -> None:
        self.segments: dict[str, Segment] = {}
        self.written: list[RunFile] = []

    def write(self, rows: Segment) -> RunFile:
        span = (None, None) if rows.ts is None else (int(rows.ts.min()), int(rows.ts.max()))
        file = RunFile(f"run-{len(self.written)}", len(rows), 100 * len(rows), 0, *span)
        self.segments[file.name] = rows
        self.written.append(file)
        return file

    def open(self, piece: Slice) -> Segment:
        assert piece.rows > 0, "a spine must not list an empty slice"
        return self.segments[piece.file.name].slice(piece.start, piece.stop).of_groups(piece.groups)

    def cuts(self, groups: int) -> Cuts:
        """Where groups begin in a file."""
        return lambda file: group_cuts(self.segments[file.name].hashes, groups)

    def values(self, slices: Iterable[Slice], name: str) -> list:
        """The values of one column of some slices, in no particular order."""
        return [v for piece in slices for v in self.open(piece).only_selected().rows.column(name).to_pylist()]

    def column(self, spine: Spine, name: str) -> list:
        """The values of one column over the whole spine, in no particular order."""
        return self.values(spine.slices(), name)
