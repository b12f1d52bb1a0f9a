"""Events: what happened during a run that is worth telling, with its reason.

One type for all of them, so that `run.events`, the CLI and the log show the same thing. A run keeps the most recent
ones in memory, and hands each to the logger `anabranch`, as a warning if somebody should do something about it. Where
that goes is up to the program: the library configures no handler.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

KEPT = 1_000

LOG = logging.getLogger("anabranch")
LOG.addHandler(logging.NullHandler())


class EventKind(StrEnum):
    """What kinds of events there are. A kind equals its text: `event.kind == "spill"`."""

    ADD = "add"
    """A query is answered from now on."""
    CLEAN_UP = "clean-up"
    """Postponed results were delivered, of one operator on one processor."""
    END = "end"
    """The input has ended, and rows were waiting for that."""
    MEMORY = "memory"
    """A processor has too little memory; somebody should give it more."""
    RELOCATE = "relocate"
    """Partition groups have moved to another processor."""
    RELOCATING = "relocating"
    """Partition groups begin to move at a pace: the processor that gets them reads ahead first."""
    REMOVE = "remove"
    """A query is answered no longer."""
    RESCALE = "rescale"
    """State is listed on another number of processors, or placed otherwise."""
    RESUME = "resume"
    """The run goes on from a checkpoint."""
    SKIP = "skip"
    """Spark repeated a batch that was committed before."""
    SPILL = "spill"
    """Partition groups of one operator on one processor were pushed to disk."""
    WARNING = "warning"
    """The program does something that may go wrong later."""


# The kinds that are more than information: somebody should do something about them.
LEVELS = {EventKind.MEMORY: logging.WARNING, EventKind.WARNING: logging.WARNING}


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened: when (seconds since the epoch), what kind, why, and details by name."""

    time: float
    kind: EventKind
    reason: str
    details: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """One line for people."""
        stamp = datetime.fromtimestamp(self.time, UTC).strftime("%H:%M:%S")
        return f"{stamp} {self.kind}: {self.reason}"


class EventLog:
    """The most recent events of a run; safe to read while the run writes."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """An empty log; `clock` is passed in so that tests can choose the time."""
        self._clock = clock
        self._events: deque[Event] = deque(maxlen=KEPT)
        self._lock = threading.Lock()

    def add(self, kind: EventKind, reason: str, **details: Any) -> Event:
        """Record an event now, and log it; a handler finds all of it as `event` of the log's record."""
        event = Event(self._clock(), kind, reason, details)
        with self._lock:
            self._events.append(event)
        LOG.log(LEVELS.get(kind, logging.INFO), "%s: %s", kind, reason, extra={"event": event})
        return event

    def all(self) -> list[Event]:
        """The events so far, oldest first."""
        with self._lock:
            return list(self._events)


def log_start(queries: Iterable[str], processors: int, checkpoint: Path) -> None:
    """Log that a run has begun."""
    LOG.info("start: %s on %d processors, checkpoint %s", ", ".join(queries), processors, checkpoint)


def log_end(checkpoint: Path, step: int, failure: BaseException | None) -> None:
    """Log that a run has ended, as an error if it failed; what Spark has to say about that fills pages."""
    if failure is None:
        LOG.info("stop: after step %d, checkpoint %s", step, checkpoint)
    else:
        said = (str(failure).strip() or type(failure).__name__).splitlines()[0]
        LOG.error("stop: the run failed after step %d, checkpoint %s: %s", step, checkpoint, said)
