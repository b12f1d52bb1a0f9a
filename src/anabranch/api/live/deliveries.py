"""Wait until a run has processed all rows that have arrived, or has delivered all results that spilling postponed."""

from __future__ import annotations

import time

from pyspark.errors import StreamingQueryException

from anabranch.api.live.live_run import LiveRun
from anabranch.errors import ConfigError

PAUSE = 0.05  # seconds, in which a batch can begin


def process_all_available(run: LiveRun) -> None:
    """Wait until all rows that have arrived are processed, even if Spark's query is started anew meanwhile."""
    while True:
        waited_for = run.spark_query
        try:
            waited_for.processAllAvailable()
        except StreamingQueryException as error:
            with run.lock:
                if waited_for is run.spark_query:
                    raise run.runner.failure or error from None
        with run.lock:
            if waited_for is run.spark_query:
                break
    while run.release_held():
        time.sleep(PAUSE)


def clean_up(run: LiveRun) -> None:
    """Deliver all results that spilling has postponed so far; batches may come between two deliveries."""
    spilled_by = run.runner.status.last_number
    while _deliver_some(run, spilled_by):
        time.sleep(PAUSE)


def _deliver_some(run: LiveRun, spilled_by: int) -> bool:
    """Deliver results owed by groups that were spilled up to a step; whether any are still owed."""
    with run.lock:
        if run.runner.gate.is_mine:
            raise ConfigError("a function that a batch is given to cannot clean up; use another thread")
        if not run.spark_query.isActive:
            raise run.exception() or ConfigError(
                f"the run has ended; to clean up what it owes: anabranch clean-up {run.checkpoint.path}"
            )
        with run.stopping_on_failure():
            return run.runner.extra.clean_up(run.no_rows(), spilled_by)
