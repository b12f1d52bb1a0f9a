"""A run: rows of one join input, sorted by (hash, ts), in one immutable Arrow file.

Layout: an uncompressed Arrow IPC file with one record batch, so that opening it is a memory map and every column is
contiguous. Columns: `hash` (uint64), `ts` (int64 microseconds, only where the query has a window), then the join
key where it must be verified, then payload. Row count and the range of `ts` stand in the schema's metadata.

A flipped bit in such a file usually passes Arrow's own validation, so the manifest keeps a CRC-32 and the size of
each file. A process verifies a file once, when it first maps it, unless it wrote it itself.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.errors import CorruptStateError
from anabranch.state.arrays.hash_index import HashIndex
from anabranch.state.arrays.mapped_file import map_file
from anabranch.state.groups import GroupSet, group_cuts
from anabranch.state.store import Json, write_unnamed

HASH = "hash"
TS = "ts"
UNUSED_TASKS = 64
CHECKED_AT_ONCE = 1 << 20
REMEMBERED_FILES = 100_000
# A process may have 65,530 mappings, if nobody has changed vm.max_map_count.
MAPPED_FILES = 32_768
REMEMBERED_CUTS = 4_000_000
# The type in which cuts are sent as text, and the most groups for which they are: a few kilobytes per file.
CUTS_TYPE = np.dtype("<u4")
MOST_GROUPS_IN_TEXTS = 1_024

# Files that this process has verified, as they were then, so that those it maps only now and then are read once.
_verified: dict[tuple[Path, int], tuple[int, int, int]] = {}


@dataclass(frozen=True, slots=True)
class RunFile:
    """The entry of a run in a manifest: enough to find the file, to verify it, and to purge it unopened."""

    name: str
    rows: int
    bytes: int
    crc: int
    min_ts: int | None
    max_ts: int | None

    def to_json(self) -> Json:
        """As stored in a manifest."""
        return {
            "rows": self.rows,
            "bytes": self.bytes,
            "crc": self.crc,
            "min_ts": self.min_ts,
            "max_ts": self.max_ts,
        }

    @classmethod
    def from_json(cls, name: str, data: Json) -> RunFile:
        """The inverse of `to_json`."""
        return cls(name, data["rows"], data["bytes"], data["crc"], data["min_ts"], data["max_ts"])


@dataclass(frozen=True, slots=True)
class Segment:
    """Sorted rows in memory: a mapped slice of a run, or the rows of one batch.

    A mapped slice has the index of its whole file, of which it is the rows from `offset` on, and the first and the last
    time in it. With `groups` only rows of these partition groups are selected; the others are there, but do not count.
    """

    rows: pa.RecordBatch
    hashes: NDArray[np.uint64]
    ts: NDArray[np.int64] | None
    index: HashIndex | None = None
    offset: int = 0
    span: tuple[int, int] | None = None
    groups: GroupSet | None = None

    @classmethod
    def of(cls, rows: pa.RecordBatch) -> Segment:
        """Views of a sorted record batch; nothing is copied."""
        names = rows.schema.names
        hashes = rows.column(names.index(HASH)).to_numpy()
        ts = rows.column(names.index(TS)).to_numpy() if TS in names else None
        return cls(rows, hashes, ts)

    def __len__(self) -> int:
        return len(self.hashes)

    def slice(self, start: int, stop: int) -> Segment:
        """Rows start to stop, without copying."""
        if start == 0 and stop == len(self.hashes):
            return self
        ts = None if self.ts is None else self.ts[start:stop]
        rows = self.rows.slice(start, stop - start)
        return Segment(rows, self.hashes[start:stop], ts, self.index, self.offset + start, self.span, self.groups)

    def of_groups(self, groups: GroupSet | None) -> Segment:
        """The same rows, of which only those of some groups are selected; None for all."""
        return self if groups is None else replace(self, groups=groups)

    def among(self, groups: GroupSet) -> Segment:
        """The same rows, of which only those are selected that were before and belong to some groups."""
        return self.of_groups(groups if self.groups is None else groups & self.groups)

    def selected(self, most: int | None = None) -> NDArray[np.int64]:
        """The numbers of the selected rows, or of the first `most` of them, found group by group."""
        if self.groups is None:
            return np.arange(len(self.hashes))[:most]
        cuts, chosen = group_cuts(self.hashes, self.groups.count), self.groups.numbers()
        lengths = np.diff(cuts)[chosen]
        before = np.cumsum(lengths) - lengths
        if most is not None:
            lengths = np.clip(most - before, 0, lengths)
        return np.repeat(cuts[chosen] - before, lengths) + np.arange(lengths.sum())

    def first_hashes(self, most: int) -> NDArray[np.uint64]:
        """The hashes of the first `most` selected rows."""
        return self.hashes[:most] if self.groups is None else self.hashes[self.selected(most)]

    def only_selected(self) -> Segment:
        """The selected rows and no others; copied if there are others."""
        if self.groups is None:
            return self
        return Segment.of(self.rows.take(pa.array(self.selected())))

    def indexed(self) -> Segment:
        """The same rows, with an index of their hashes."""
        return replace(self, index=HashIndex.of(self.hashes), offset=0) if len(self.hashes) else self


def write_run(directory: Path, name: str, segment: Segment) -> RunFile:
    """Write sorted rows as a new run file and return what a manifest needs to name it.

    The caller syncs the directory before it names the file.
    """
    ts = segment.ts
    min_ts = int(ts.min()) if ts is not None and len(ts) else None
    max_ts = int(ts.max()) if ts is not None and len(ts) else None
    metadata = {"rows": str(len(segment)), "min_ts": str(min_ts), "max_ts": str(max_ts)}
    batch = segment.rows.replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data = memoryview(sink.getvalue())
    path, crc = directory / name, zlib.crc32(data)
    write_unnamed(path, data)
    _remember_verified(path, crc, _state_of(path))
    return RunFile(name, len(segment), data.nbytes, crc, min_ts, max_ts)


def map_run(directory: Path, file: RunFile) -> Segment:
    """Map a run file. It is verified first, unless this process has verified the same version of it before."""
    path = directory / file.name
    state = _state_of(path)
    try:
        with open(path, "rb") as handle:
            size = os.fstat(handle.fileno()).st_size
            if not size:
                raise CorruptStateError(_unusable(path, "empty"))
            if size != file.bytes:
                raise CorruptStateError(_unusable(path, f"{size} bytes long instead of {file.bytes}"))
            if _verified.get((path, file.crc)) != state:
                if _checksum(handle) != file.crc:
                    raise CorruptStateError(_unusable(path, "damaged (its checksum does not match)"))
                _remember_verified(path, file.crc, state)
            data = map_file(handle.fileno(), size, path)
    except FileNotFoundError:
        raise CorruptStateError(_unusable(path, "missing")) from None
    batch = pa.ipc.open_file(data).get_batch(0)
    span = None if file.min_ts is None or file.max_ts is None else (file.min_ts, file.max_ts)
    return replace(Segment.of(batch), span=span)


def _remember_verified(path: Path, crc: int, state: tuple[int, int, int]) -> None:
    """Remember that a file is sound as it is now; of very many files, the latest."""
    _verified.pop((path, crc), None)
    _verified[path, crc] = state
    while len(_verified) > REMEMBERED_FILES:
        del _verified[next(iter(_verified))]


def _checksum(handle: BinaryIO) -> int:
    """The checksum of a file, read rather than mapped: what nobody probes is not to stay in this process's memory."""
    crc = 0
    while block := handle.read(CHECKED_AT_ONCE):
        crc = zlib.crc32(block, crc)
    return crc


def _unusable(path: str | os.PathLike[str], problem: str) -> str:
    return (
        f"state file {path} is {problem}. The run stopped before using it. Restore the file from a copy of the "
        "checkpoint, or start again with a new checkpoint directory"
    )


def _state_of(path: str | os.PathLike[str]) -> tuple[int, int, int]:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        raise CorruptStateError(_unusable(path, "missing")) from None
    return status.st_ino, status.st_size, status.st_mtime_ns


class RunCache:
    """Verified, mapped runs of one process, so that a batch opens only what is new to it.

    A file is verified again when it is not the one that was mapped any more: other inode, size or time of change. It is
    dropped when it has been deleted, so that its space is freed; when the processor that asked for it last does not
    list it as active any more; or when none of the last `UNUSED_TASKS` uses of the cache asked for it, since its
    processor may have moved to another process. Of more than `MAPPED_FILES` those go that were used least recently.
    """

    def __init__(self) -> None:
        self._tick = 0
        self._entries: dict[tuple[Path, RunFile], _Mapped] = {}
        self._cuts: dict[tuple[Path, int], FileCuts] = {}

    def open(self, directory: Path, file: RunFile, processor: int = 0, *, indexed: bool = True) -> Segment:
        """The run, mapped; verified if this process sees it, as it is now, for the first time.

        Who only reads its rows one after the other needs no index.
        """
        entry = self._entry(directory, file, processor)
        if indexed and entry.segment.index is None:
            entry.segment = entry.segment.indexed()
        return entry.segment

    def cuts(self, directory: Path, groups: int) -> FileCuts:
        """Where the partition groups of runs begin; files that are not mapped are not kept mapped for it."""
        return self._cuts.setdefault((directory, groups), FileCuts(directory, groups))

    def _entry(self, directory: Path, file: RunFile, processor: int) -> _Mapped:
        # A path as text: this is done for every run in every task, and objects take longer than the look at the file.
        state = _state_of(os.path.join(directory, file.name))
        entry = self._entries.get((directory, file))
        if entry is None or entry.state != state:
            self._make_room()
            entry = self._entries[directory, file] = _Mapped(state, map_run(directory, file))
        entry.used, entry.processor = self._tick, processor
        return entry

    def start_task(self, directory: Path, processor: int = 0, active: Collection[RunFile] | None = None) -> None:
        """Count a use and forget what nobody has asked for lately, or what is not active any more for this processor.

        Other runs in the same Spark have processors of the same numbers, with state in other directories.
        """
        self._tick += 1
        oldest = self._tick - UNUSED_TASKS
        stale = [
            (where, file)
            for (where, file), entry in self._entries.items()
            if entry.used < oldest
            or (active is not None and (where, entry.processor) == (directory, processor) and file not in active)
            or not os.path.exists(os.path.join(where, file.name))
        ]
        for key in stale:
            del self._entries[key]

    def _make_room(self) -> None:
        """Forget the quarter that was used least recently, if there is no room for one more."""
        if len(self._entries) >= MAPPED_FILES:
            for key in sorted(self._entries, key=lambda key: self._entries[key].used)[: max(MAPPED_FILES // 4, 1)]:
                del self._entries[key]

    def close(self) -> None:
        """Unmap everything."""
        self._entries.clear()
        self._cuts.clear()


class FileCuts:
    """Where the partition groups of run files begin: as the writer of a file has sent it, or else found in the file.

    A file that is looked into is verified, once, like one that is used.
    """

    def __init__(self, directory: Path, groups: int) -> None:
        """Know nothing yet of the files of a directory; there are so many groups."""
        self._directory = directory
        self._groups = groups
        self._cuts_of: dict[str, NDArray[np.int64]] = {}

    def __call__(self, file: RunFile) -> NDArray[np.int64]:
        """Where the groups of a file begin, and at last its number of rows."""
        cuts = self._cuts_of.get(file.name)
        if cuts is None or cuts[-1] != file.rows:
            return self.learn(file.name, map_run(self._directory, file).hashes)
        return cuts

    def learn(self, name: str, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Remember where groups begin in a file with these hashes."""
        cuts = group_cuts(hashes, self._groups)
        self._remember(name, cuts)
        return cuts

    @property
    def nbytes(self) -> int:
        """The memory that is taken by what is remembered."""
        return sum(cuts.nbytes for cuts in self._cuts_of.values())

    def learn_texts(self, texts: Mapping[str, str]) -> None:
        """Remember the cuts that another process has sent (`texts`), by the name of the file."""
        for name, text in texts.items():
            self._remember(name, np.frombuffer(bytes.fromhex(text), dtype=CUTS_TYPE).astype(np.int64))

    def texts(self, names: Iterable[str]) -> dict[str, str]:
        """The cuts of some files as text, to be sent to another process; empty if there are too many groups for
        that."""
        if self._groups > MOST_GROUPS_IN_TEXTS:
            return {}
        return {name: self._cuts_of[name].astype(CUTS_TYPE).tobytes().hex() for name in names if name in self._cuts_of}

    def forget_others(self, names: Collection[str]) -> None:
        """Remember only files with these names."""
        self._cuts_of = {name: cuts for name, cuts in self._cuts_of.items() if name in names}

    def _remember(self, name: str, cuts: NDArray[np.int64]) -> None:
        self._cuts_of.pop(name, None)
        while len(self._cuts_of) >= max(REMEMBERED_CUTS // (self._groups + 1), 64):
            del self._cuts_of[next(iter(self._cuts_of))]
        self._cuts_of[name] = cuts


@dataclass(slots=True)
class _Mapped:
    """A mapped run, the file it was made of, and by whom it was used last."""

    state: tuple[int, int, int]
    segment: Segment
    used: int = 0
    processor: int = 0
