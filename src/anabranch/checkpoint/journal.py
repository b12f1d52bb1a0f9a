"""The events of a checkpoint on disk, so that they survive a restart.

    events/EPOCH-FIRST.jsonl    a document per line and event, ascending by number; FIRST is the number of the first

A file is enough by itself: it begins with the newest events so far, written as a whole, and grows by a line per event.
A run begins a file with its first event, and another one whenever the file is full, and removes those before. So one
file counts: the newest of the newest epoch. It holds at least the newest `KEPT` events, at most twice as many. An older
driver that comes back writes under its own epoch, whose files are not read.

Events are for people, and no answer depends on them. So a line is appended without waiting for the disk, and a power
cut may take back the newest ones, with their numbers. Lines that cannot be read are left out; an event that cannot be
written is logged and stays in memory. Neither stops a run.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from anabranch.checkpoint.folder.directory import Checkpoint
from anabranch.errors import DiskFullError
from anabranch.observe.events import KEPT, LOG, Event, EventLog
from anabranch.state.store import append, decode_document, encode_document, write_file

EVENTS = "events"
FULL = 2 * KEPT  # lines of a file
NAME = re.compile(r"\d{10}-\d{10}\.jsonl")


def open_log(checkpoint: Checkpoint, clock: Callable[[], float] = time.time) -> EventLog:
    """The event log of a checkpoint that was taken: it has the events so far, and writes new ones into the journal."""
    folder = checkpoint.path / EVENTS
    earlier, number = _read(folder)
    journal = Journal(folder, checkpoint.epoch, earlier)
    return EventLog(clock, earlier=earlier, number=number, keep=journal.keep)


def read_events(checkpoint: Path) -> list[Event]:
    """The newest events of a checkpoint, oldest first. Nothing is locked, and a run may go on meanwhile."""
    return _read(checkpoint / EVENTS)[0]


class Journal:
    """Writes the events of one run."""

    def __init__(self, folder: Path, epoch: int, earlier: Iterable[Event] = ()) -> None:
        """Write into a folder under an epoch, from the first event on; `earlier` ones go into the first file."""
        self._folder = folder
        self._epoch = epoch
        self._recent = deque(earlier, maxlen=KEPT)
        self._path: Path | None = None
        self._lines = 0

    def keep(self, event: Event) -> None:
        """Write an event."""
        self._recent.append(event)
        try:
            if self._path is None or self._lines >= FULL:
                self._begin_file()
            else:
                append(self._path, _line(event))
                self._lines += 1
        except (OSError, DiskFullError) as error:
            # The file may end in part of a line now. The next event begins another file, with all missing events.
            self._path = None
            LOG.warning("event %d could not be written below %s: %s", event.number, self._folder, error)

    def _begin_file(self) -> None:
        path = self._folder / f"{self._epoch:010d}-{self._recent[0].number:010d}.jsonl"
        write_file(path, b"".join(map(_line, self._recent)))
        self._path, self._lines = path, len(self._recent)
        for older in _files(self._folder):
            if older.name < path.name:
                older.unlink(missing_ok=True)


def _line(event: Event) -> bytes:
    return encode_document(event.to_json())


def _files(folder: Path) -> list[Path]:
    """The files of events, oldest first; numbers of equal length make names ascend as numbers do."""
    return sorted(path for path in folder.glob("*.jsonl") if NAME.fullmatch(path.name))


def _read(folder: Path) -> tuple[list[Event], int]:
    """The newest events that can be read, and the number of the last event."""
    while files := _files(folder):
        newest = files[-1]
        before = int(newest.stem.partition("-")[2]) - 1
        try:
            return _parse(newest.read_bytes(), before)
        except FileNotFoundError:
            continue  # a run has begun another file in the meantime
        except OSError as error:
            LOG.warning("events cannot be read: %s", error)
            return [], before
    return [], 0


def _parse(data: bytes, before: int) -> tuple[list[Event], int]:
    """The events of a file, and the last number; a line that cannot be read counts as an event."""
    events: deque[Event] = deque(maxlen=KEPT)
    number = before
    for line in data.splitlines(keepends=True):
        number += 1
        with suppress(KeyError, TypeError, ValueError):  # of another form than this version writes
            body = decode_document(line)
            if body is not None:
                event = Event.from_json(body)
                number = event.number
                events.append(event)
    return list(events), number
