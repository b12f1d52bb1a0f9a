"""Settings of the session in which the batches of a streaming query come."""

from __future__ import annotations

from pyspark.sql import SparkSession

# Rows per Arrow batch on the way to a processor. Spark's limit by bytes measures the batch at every row, which costs
# more than writing it; a smaller number of rows where they can be wide keeps a batch below Arrow's 2 GiB instead.
NARROW_ROWS = 65_536
WIDE_ROWS = 4_096
NO_BYTE_LIMIT = (1 << 31) - 1


def prepare_session(session: SparkSession, *, narrow: bool) -> None:
    """Tell a session how rows go to processors; `narrow` rows have columns of fixed width only."""
    session.conf.set("spark.sql.adaptive.enabled", "false")
    # The types of Arrow columns are those of the state files, whatever the user's own functions are given.
    session.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "false")
    session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(NO_BYTE_LIMIT))
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(NARROW_ROWS if narrow else WIDE_ROWS))
