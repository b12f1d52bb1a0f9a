"""Events: what happened during a run that is worth telling, with its reason.

One type for all of them, so that `run.events`, the CLI and the log show the same thing. A run keeps the most recent
ones in memory.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

KEPT = 1_000


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened: when (seconds since the epoch), what kind, why, and details by name."""

    time: float
    kind: str
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

    def add(self, kind: str, reason: str, **details: Any) -> Event:
        """Record an event now."""
        event = Event(self._clock(), kind, reason, details)
        with self._lock:
            self._events.append(event)
        return event

    def all(self) -> list[Event]:
        """The events so far, oldest first."""
        with self._lock:
            return list(self._events)
