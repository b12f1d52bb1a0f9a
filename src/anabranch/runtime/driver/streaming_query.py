"""Spark's streaming query that drives the steps of a run: how it is started, called and watched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from anabranch.runtime.compile.prepared import PreparedPlan
from anabranch.runtime.driver.step_runner import StepRunner
from anabranch.runtime.spark.logs import FILE_MANAGER, file_manager


def start_spark_query(
    spark: SparkSession,
    plan: PreparedPlan,
    runner: StepRunner,
    trigger: Mapping[str, Any],
    directory: Path,
    name: str | None,
) -> StreamingQuery:
    """Start the query, with its own logs in `directory`. Spark calls `runner` with every batch."""
    writer = plan.packed.writeStream.foreachBatch(runner).trigger(**trigger)
    # Not as_uri(): Spark takes %20 for a part of the name.
    writer = writer.option("checkpointLocation", f"file://{directory}")
    if name is not None:
        writer = writer.queryName(name)
    conf = spark.conf
    if conf.get(FILE_MANAGER, None) is None:
        # Spark opens its logs between start() and the first batch; the session is left as it was after that.
        conf.set(FILE_MANAGER, file_manager(spark))
        runner.when_started.append(lambda: conf.unset(FILE_MANAGER))
    try:
        query = writer.start()
    except BaseException:
        runner.started()
        raise
    runner.gate.is_stopped = lambda: _is_stopped(query)
    return query


def query_name(names: Sequence[str | None]) -> str | None:
    """The name of Spark's query: the names that users chose for the queries of a run, joined by commas.

    Spark refuses two active queries with one name, so a run without chosen names has none.
    """
    return ", ".join(name for name in names if name is not None) or None


def _is_stopped(query: StreamingQuery) -> bool:
    try:
        return not query.isActive
    except Py4JError:  # the JVM is gone: whatever went wrong is not that somebody stopped the query
        return False
