"""Settings of the session in which the batches of a streaming query come."""

from __future__ import annotations

from pyspark.sql import SparkSession


def prepare_session(session: SparkSession) -> None:
    """Tell a session to run plans as they are: partitions are processors, and stay as many."""
    session.conf.set("spark.sql.adaptive.enabled", "false")
