"""Settings of the session in which the batches of a streaming query come."""

from __future__ import annotations

from pyspark.sql import SparkSession


def prepare_session(session: SparkSession) -> None:
    """Tell a session to run plans as they are: partitions are processors, and stay as many."""
    session.conf.set("spark.sql.adaptive.enabled", "false")
    # The types of Arrow columns are those of the state files, whatever the user's own functions are given.
    session.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "false")
