"""The Spark sessions of a run's steps: one for each streaming query, one for sinks, one for each step without a batch.

A setting that a user's function makes in the session of its results does not change how processors are run.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from anabranch.runtime.compile.prepared import PreparedPlan
from anabranch.runtime.spark.batch_session import prepare_session
from anabranch.runtime.spark.internals import empty_frame
from anabranch.runtime.spark.query_settings import session_like


class Sessions:
    """Prepares the session that batches come in, once."""

    def __init__(self) -> None:
        """No batch has come yet."""
        self._ready = False
        self._of_sinks: SparkSession | None = None

    def start(self, session: SparkSession) -> None:
        """Make the settings of the streaming query's own session, once, when its first batch arrives."""
        if self._ready:
            return
        if self._of_sinks is None:
            self._of_sinks = session_like(session)
        prepare_session(session)
        self._ready = True

    def start_anew(self, session: SparkSession) -> None:
        """Prepare another session."""
        self._ready = False
        self.start(session)

    def forget(self) -> None:
        """Prepare another session for the next step."""
        self._ready = False

    @property
    def of_sinks(self) -> SparkSession:
        """The session of the data frames that sinks get."""
        assert self._of_sinks is not None, "a step has been started"
        return self._of_sinks


def no_rows(spark: SparkSession, plan: PreparedPlan) -> DataFrame:
    """An empty batch, in a session of its own."""
    return empty_frame(session_like(spark), plan.packed.schema)
