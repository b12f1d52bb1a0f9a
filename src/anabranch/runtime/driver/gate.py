"""The gate before a run's steps: batches pass it until the run is to change or to stop.

Closing the gate waits for the step under way. A batch that Spark brings after that waits, with nothing done for it,
until Spark's query has been stopped. Then it ends with the one error that Spark treats as a stop. It is not committed,
so the next query begins with it. A step that Spark interrupts ends with the same error.

Spark recognises a stop by the text of a Python error: one of Py4J that names Java's InterruptedException. It looks for
that with a regular expression that needs stack for every character, so that the true error of an interrupted job, which
is long, ends in a StackOverflowError. Ours is short.

Ctrl-C in a program makes PySpark's handler cancel all jobs of Spark before the program hears of it. So a step that
fails because all jobs were cancelled waits for a while whether the run is stopped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

POLL_SECONDS = 0.02
# How long a step that failed because all jobs were cancelled waits for the run to be stopped.
CANCELLED_SECONDS = 5.0
ALL_CANCELLED = "cancelled as part of cancellation of all jobs"


class StoppedError(Exception):
    """The error that ends a batch whose query was stopped; its text is the one that Spark looks for."""

    def __init__(self) -> None:
        """Always the same."""
        super().__init__("py4j.protocol.Py4JJavaError: An error occurred while calling: java.lang.InterruptedException")


class CancelledError(Exception):
    """A step failed because its jobs were cancelled; `cause` is Spark's error."""

    def __init__(self, cause: BaseException) -> None:
        """Wrap the error that the step failed by."""
        super().__init__("the jobs of a step were cancelled")
        self.cause = cause


class Gate:
    """Lets one step at a time through, batch or not. `is_stopped` says whether Spark's query has been told to stop."""

    def __init__(self) -> None:
        """Open, for a query that goes on."""
        self.is_stopped: Callable[[], bool] = lambda: False
        self.closed = False
        self._lock = threading.Lock()
        self._thread: int | None = None

    @contextmanager
    def step(self) -> Iterator[None]:
        """Inside, no other step is made."""
        with self._lock:
            self._thread = threading.get_ident()
            yield

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Inside, the step of a batch is made. If the gate is closed, wait until Spark's query is stopped instead."""
        with self.step():
            if not self.closed:
                yield
                return
        while not self.is_stopped():
            time.sleep(POLL_SECONDS)
        raise StoppedError

    def fails_by_cancellation(self, error: BaseException) -> bool:
        """Whether a step failed because Spark's query was stopped, or all jobs cancelled; then no batch may follow."""
        cancelled = self.is_stopped() or ALL_CANCELLED in _text(error)
        self.closed = self.closed or cancelled
        return cancelled

    def is_stopped_soon(self) -> bool:
        """Wait for a while until Spark's query is stopped; whether it is. Not to be called inside a step."""
        until = time.monotonic() + CANCELLED_SECONDS
        while not self.is_stopped() and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
        return self.is_stopped()

    def close(self, timeout: float = -1) -> bool:
        """Let no further batch in, and wait for the step under way; whether it ended within `timeout` seconds."""
        self.closed = True
        ended = self._lock.acquire(timeout=timeout)
        if ended:
            self._lock.release()
        return ended

    @property
    def is_busy(self) -> bool:
        """Whether a step is being made."""
        return self._lock.locked()

    @property
    def is_mine(self) -> bool:
        """Whether the calling thread is the one that makes a step right now."""
        return self._lock.locked() and self._thread == threading.get_ident()


def _text(error: BaseException) -> str:
    """The error's text, or nothing: Py4J's errors ask the JVM for theirs, and it may be gone."""
    try:
        return str(error)
    except Exception:
        return ""
