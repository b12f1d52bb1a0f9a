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
        self._session: SparkSession | None = None
        self._of_sinks: SparkSession | None = None

    def start(self, packed: DataFrame) -> DataFrame:
        """Prepare the streaming query's own session, once, when its first batch arrives; returns the batch.

        PySpark makes a new object of that session for every batch. What it has asked the JVM for is remembered in the
        first one, so that is the session of all batches.
        """
        if self._session is None:
            self._session = packed.sparkSession
            if self._of_sinks is None:
                self._of_sinks = session_like(self._session)
            prepare_session(self._session)
        return DataFrame(packed._jdf, self._session)

    def start_anew(self, packed: DataFrame) -> None:
        """Prepare the session of a step without a batch."""
        self.forget()
        self.start(packed)

    def forget(self) -> None:
        """Prepare another session for the next step."""
        self._session = None

    @property
    def of_sinks(self) -> SparkSession:
        """The session of the data frames that sinks get."""
        assert self._of_sinks is not None, "a step has been started"
        return self._of_sinks


def no_rows(spark: SparkSession, plan: PreparedPlan) -> DataFrame:
    """An empty batch, in a session of its own."""
    return empty_frame(session_like(spark), plan.packed.schema)
