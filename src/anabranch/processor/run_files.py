"""The run files of one attempt of a processor: those that it reads, and those that it writes.

What is read stays mapped from task to task (`RunCache`), as long as the processor lists it as active. New files have
names that no other attempt uses.
"""

from __future__ import annotations

from pathlib import Path

from anabranch.processor.segments import with_columns
from anabranch.state.groups import GroupSet
from anabranch.state.runs.merge import OpenSlice
from anabranch.state.runs.run import FileCuts, RunCache, RunFile, Segment, map_run, write_run
from anabranch.state.runs.slice import Slice

# Who files belong to that are read ahead.
NOBODY = -1

_cache = RunCache()


class RunFiles:
    """Opens and writes runs in a directory, for a processor; `stored` are the columns of each port's state."""

    def __init__(
        self, directory: str, name: str, processor: int, stored: tuple[tuple[str, ...], ...], groups: int
    ) -> None:
        """New files will have names that begin with `name`; there are so many partition groups."""
        self.directory = Path(directory)
        self.written: list[str] = []
        self._name = name
        self._processor = processor
        self._stored = stored
        self._groups = groups

    @property
    def cuts(self) -> FileCuts:
        """Where partition groups begin in files."""
        return _cache.cuts(self.directory, self._groups)

    def start(self, active: set[RunFile]) -> None:
        """Let go of what is not among the active state any more."""
        _cache.start_task(self.directory, self._processor, active)

    def warm(self, file: RunFile) -> None:
        """Read a file ahead."""
        _cache.open(self.directory, file, NOBODY)

    def open(self, port: int, piece: Slice) -> Segment:
        """A slice of a port's state, to look rows up in."""
        return _part(self.open_run(port, piece.file), piece)

    def open_run(self, port: int, file: RunFile, *, indexed: bool = True) -> Segment:
        """A whole file of a port."""
        mapped = _cache.open(self.directory, file, self._processor, indexed=indexed)
        return with_columns(mapped, self._stored[port])

    def scan(self, port: int) -> OpenSlice:
        """How slices of a port are opened that are read once, from their beginning to their end."""
        return lambda piece: _part(self.open_run(port, piece.file, indexed=False), piece)

    def read(self, port: int, piece: Slice) -> Segment:
        """The rows of a slice, copied, so that its file need not stay mapped."""
        mapped = with_columns(map_run(self.directory, piece.file), self._stored[port])
        return (
            mapped.slice(piece.start, piece.stop).of_groups(piece.groups or GroupSet.all(self._groups)).only_selected()
        )

    def write(self, segment: Segment) -> RunFile:
        """Write sorted rows; the directory has to be synced before the file is named."""
        self.written.append(f"{self._name}-{len(self.written) + 1}.arrow")
        self.cuts.learn(self.written[-1], segment.hashes)
        return write_run(self.directory, self.written[-1], segment)


def _part(run: Segment, piece: Slice) -> Segment:
    return run.slice(piece.start, piece.stop).of_groups(piece.groups)
