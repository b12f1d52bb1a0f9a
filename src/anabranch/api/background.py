"""What goes on beside a run, in threads of its own: its end is waited for, and what needs no batch is done."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

from anabranch.observe.events import log_end

if TYPE_CHECKING:
    from anabranch.api.run import Run

PAUSE = 0.1  # seconds between two looks at what may go on without a batch
IDLE = 1.0  # seconds without a batch after which rows that are held back need not wait for the next one


def watch(run: Run) -> None:
    """Wait for the end of the run, and leave the checkpoint to others."""
    try:
        while _goes_on(run):
            pass
        if run._ends and run.exception() is None:
            run._runner.end(run._no_rows())
    except Exception as error:
        # Told to the user by awaitTermination and exception.
        run._runner.failure = run._runner.failure or error
    finally:
        try:
            run._runner.wait_idle()
        finally:
            run._checkpoint.release()
            run._ended.set()
            run._migrator.end(run.exception())
            log_end(run._checkpoint.path, run._runner.last_number, run.exception())


def keep_going(run: Run) -> None:
    """While the run goes on: rows that were held back do not wait for a batch that may never come, a migration comes to
    its end as soon as it can, and what policies want of orders of joins is done."""
    while not run._ended.wait(PAUSE):
        if run._by_policy.has_work and run._spark_query.isActive:
            with run._changing:
                run._by_policy.go_on()
        if run._spark_query.isActive:
            # Not while nobody else may change the run: it waits for a batch, and somebody may want to stop that.
            run._by_policy.measure()
        if run._runner.holds_back and run._runner.idle > IDLE:
            with suppress(Exception):  # told to the user by awaitTermination and exception
                run._let_go_on()


def _goes_on(run: Run) -> bool:
    """Wait for the end of Spark's query; whether another one has taken its place."""
    with suppress(StreamingQueryException):
        (watched := run._spark_query).awaitTermination()
    with run._changing:
        return watched is not run._spark_query
