"""Events: adaptations, changes and warnings of a run, each with its reason.

One type for all of them, so that `run.events`, the CLI and the log show the same. Every event has a number, ascending
from 1 since the checkpoint began, so that a reader can ask for new ones only. A run keeps the most recent events in
memory, those of earlier runs among them. Each new one also goes into the checkpoint (`checkpoint/journal`) and to the
logger `anabranch`, as a warning if the user should do something about it. The library configures no handler: the
program decides where its log goes.

Details are plain values that JSON can hold. So an event is the same after a restart as before it.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

KEPT = 1_000

LOG = logging.getLogger("anabranch")
LOG.addHandler(logging.NullHandler())


class EventKind(StrEnum):
    """The kinds of events. A kind equals its text: `event.kind == "spill"`."""

    ADAPT = "adapt"
    """An adaptation was decided on among others, for what it is predicted to gain; or would be, in a dry run."""
    ADD = "add"
    """A query is answered from now on."""
    CHANGE = "change"
    """A query was replaced by another one, which goes on with its state."""
    CLEAN_UP = "clean-up"
    """Postponed results were delivered, of one operator on one processor."""
    DIFFUSE = "diffuse"
    """Partition groups are spread over several processors, or in another way than before."""
    END = "end"
    """The input has ended, and rows were waiting for that."""
    GATHER = "gather"
    """Partition groups that were spread over several processors are at one again."""
    MEMORY = "memory"
    """A processor has too little memory; somebody should give it more."""
    MIGRATE = "migrate"
    """A query goes on in another order of its joins."""
    MIGRATING = "migrating"
    """A query begins to migrate to another order of its joins, or does not any more."""
    REALLOCATE = "reallocate"
    """Operators go on at other processors."""
    OUTCOME = "outcome"
    """What has come of an adaptation, beside what was predicted."""
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


# The kinds that are more than information: the user should do something about them.
LEVELS = {EventKind.MEMORY: logging.WARNING, EventKind.WARNING: logging.WARNING}


@dataclass(frozen=True, slots=True)
class Event:
    """An event: its number, its time in seconds since 1970, its kind, its reason, and details by name."""

    number: int
    time: float
    kind: EventKind
    reason: str
    details: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """One line for people."""
        stamp = datetime.fromtimestamp(self.time, UTC).strftime("%H:%M:%S")
        return f"{stamp} {self.kind}: {self.reason}"

    def to_json(self) -> dict[str, Any]:
        """The event as a document."""
        return asdict(self)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Event:
        """The inverse of `to_json`."""
        return cls(body["number"], body["time"], EventKind(body["kind"]), body["reason"], body["details"])


def plain(value: Any) -> Any:
    """A detail of an event as JSON can hold it: numbers of NumPy as Python's, tuples as lists, numbers that are not
    finite as None, all other values without a form in JSON as text."""
    match value:
        case np.generic() | np.ndarray():
            return plain(value.tolist())
        case None | bool():
            return value
        case str():
            return str(value)
        case int():
            return int(value)
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {str(name): plain(part) for name, part in value.items()}
        case Set():
            return sorted(map(plain, value), key=str)
        case list() | tuple():
            return [plain(part) for part in value]
    return str(value)


class EventLog:
    """The most recent events of a checkpoint; safe to read while the run writes."""

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        *,
        earlier: Iterable[Event] = (),
        number: int = 0,
        keep: Callable[[Event], None] | None = None,
    ) -> None:
        """A log that goes on after the `earlier` events, the last of which had this number.

        `keep` is called with every new event before it can be read. `clock` is passed in so that tests can choose the
        time.
        """
        self._clock = clock
        self._events: deque[Event] = deque(earlier, maxlen=KEPT)
        self._before = self._number = number
        self._keep = keep
        self._lock = threading.Lock()

    def add(self, kind: EventKind, reason: str, **details: Any) -> Event:
        """Record an event now, and log it. The log's record has the event itself as `event`."""
        with self._lock:
            event = Event(self._number + 1, self._clock(), kind, reason, plain(details))
            if self._keep is not None:
                self._keep(event)
            self._number = event.number
            self._events.append(event)
        LOG.log(LEVELS.get(kind, logging.INFO), "%s: %s", kind, reason, extra={"event": event})
        return event

    def all(self) -> list[Event]:
        """The events so far, oldest first."""
        with self._lock:
            return list(self._events)

    def since(self, number: int | None = None) -> list[Event]:
        """The events after the one with this number, oldest first; without a number, those of this run."""
        after = self._before if number is None else number
        return [event for event in self.all() if event.number > after]


def log_start(queries: Iterable[str], processors: int, checkpoint: Path) -> None:
    """Log that a run has begun."""
    LOG.info("start: %s on %d processors, checkpoint %s", ", ".join(queries), processors, checkpoint)


def log_end(checkpoint: Path, step: int, failure: BaseException | None) -> None:
    """Log that a run has ended, as an error if it failed, in one line: Spark's own text would fill pages."""
    if failure is None:
        LOG.info("stop: after step %d, checkpoint %s", step, checkpoint)
    else:
        said = (str(failure).strip() or type(failure).__name__).splitlines()[0]
        LOG.error("stop: the run failed after step %d, checkpoint %s: %s", step, checkpoint, said)
