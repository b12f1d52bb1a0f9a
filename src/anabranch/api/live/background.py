"""The two threads beside a run: one waits for its end, the other does the work that needs no batch."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

from anabranch.observe.events import log_end

if TYPE_CHECKING:
    from anabranch.api.live.live_run import LiveRun

PAUSE = 0.1  # seconds between two looks at what may go on without a batch
IDLE = 1.0  # seconds without a batch after which rows that are held back need not wait for the next one


def watch(run: LiveRun) -> None:
    """Wait for the end of the run, and release the checkpoint."""
    try:
        while _goes_on(run):
            pass
        if run.ends and run.exception() is None:
            run.runner.extra.end(run.no_rows())
    except Exception as error:
        # Told to the user by awaitTermination and exception.
        run.runner.fail(run.runner.failure or error)
    finally:
        try:
            run.runner.wait_idle()
        finally:
            run.checkpoint.release()
            run.ended.set()
            run.migrator.end(run.exception())
            log_end(run.checkpoint.path, run.runner.status.last_number, run.exception())


def keep_going(run: LiveRun) -> None:
    """Do the work that needs no batch, while the run goes on: answer rows that are held back, since the next batch may
    never come; end a migration as soon as it can; measure orders of joins for policies, and
    reallocate operators as they have decided."""
    while not run.ended.wait(PAUSE):
        if run.by_policy.has_work and run.spark_query.isActive:
            with run.lock:
                run.by_policy.go_on()
        if run.reallocator.has_work and run.spark_query.isActive:
            with run.lock:
                run.reallocator.go_on()
        if run.by_policy.measures and run.spark_query.isActive:
            # Without the lock of the run: measuring waits for the batch under way, and a user may want to stop that.
            run.by_policy.measure()
        if run.runner.status.holds_back and run.runner.idle > IDLE:
            with suppress(Exception):  # told to the user by awaitTermination and exception
                run.release_held()


def _goes_on(run: LiveRun) -> bool:
    """Wait for the end of Spark's query; whether another one has taken its place."""
    with suppress(StreamingQueryException):
        (watched := run.spark_query).awaitTermination()
    with run.lock:
        return watched is not run.spark_query
