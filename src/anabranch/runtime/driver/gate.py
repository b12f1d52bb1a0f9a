"""The gate before a run's steps: batches pass it until somebody asks the run to change or to stop.

Whoever asks closes the gate and waits for the step under way. A batch that Spark brings after that is kept waiting,
with nothing done for it, until Spark's query has been stopped; then it is left in the one way that Spark takes for a
stop. It is not committed, so the next query begins with it. A step that Spark interrupts leaves in the same way.

Spark recognises a stop by the text of a Python error: one of Py4J that names Java's InterruptedException. It looks for
that with a regular expression that needs stack for every character, so that the true error of an interrupted job, which
is long, ends in a StackOverflowError. Ours is short.

Ctrl-C in a program cancels all jobs of Spark (PySpark's handler does that) before the program hears of it. So a step
that fails by that waits for a while whether the run is stopped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

POLL_SECONDS = 0.02
# How long a step that failed because all jobs were cancelled waits for somebody to stop the run.
CANCELLED_SECONDS = 5.0
ALL_CANCELLED = "cancelled as part of cancellation of all jobs"


class StoppedError(Exception):
    """Leaves a batch whose query was stopped; the text is the one that Spark looks for."""

    def __init__(self) -> None:
        """Always the same."""
        super().__init__("py4j.protocol.Py4JJavaError: An error occurred while calling: java.lang.InterruptedException")


class CancelledError(Exception):
    """A step failed because its jobs were cancelled; `cause` is Spark's own error."""

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
        """Inside, a batch is worked on; with the gate closed, it is held until Spark's query is stopped."""
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
        """Let no batch in any more; whether the step under way has come to its end within so many seconds."""
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
        """Whether the thread that asks is the one that makes a step right now."""
        return self._lock.locked() and self._thread == threading.get_ident()


def _text(error: BaseException) -> str:
    """The error's text; Py4J's errors ask the JVM for it, which may be gone."""
    try:
        return str(error)
    except Exception:
        return ""
