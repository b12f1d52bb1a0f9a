"""A running query: PySpark's StreamingQuery with Anabranch's additions."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from anabranch.observe.events import Event, EventLog
from anabranch.plan.svg import as_svg
from anabranch.runtime.checkpoint import Checkpoint
from anabranch.runtime.sinks import SinkOptions, check_folder, make_sink
from anabranch.runtime.spark_logs import FILE_MANAGER, file_manager
from anabranch.runtime.step import StepResult, StepRunner

if TYPE_CHECKING:
    from anabranch.api.query import Query


class Run:
    """A started query. Names that PySpark's StreamingQuery has behave as there."""

    def __init__(
        self, query: Query, spark_query: StreamingQuery, runner: StepRunner, events: EventLog, *, ends: bool
    ) -> None:
        """Made by `Writer.start`; `ends` if the input does, and something is to be done about it."""
        self._query = query
        self._spark_query = spark_query
        self._runner = runner
        self._events = events
        self._ended = threading.Event()
        self._ends = ends

    @property
    def id(self) -> str:
        """The id of the query, the same after a restart."""
        return str(self._spark_query.id)

    @property
    def runId(self) -> str:
        """The id of this run, new after a restart."""
        return str(self._spark_query.runId)

    @property
    def name(self) -> str | None:
        """The name given with `queryName`."""
        return self._spark_query.name

    @property
    def isActive(self) -> bool:
        """Whether the run is still going."""
        return self._spark_query.isActive or (self._ends and not self._ended.is_set())

    @property
    def status(self) -> dict[str, Any]:
        """What Spark is doing right now."""
        return dict(self._spark_query.status)

    @property
    def events(self) -> list[Event]:
        """What happened so far that is worth telling, oldest first."""
        return self._events.all()

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        """Progress of the recent batches: Spark's, with `numOutputRows` and our own numbers under `anabranch`."""
        ours = {result.batch_id: result for result in list(self._runner.results)}
        return [self._combine(json.loads(progress.json), ours) for progress in self._spark_query.recentProgress]

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        """Progress of the last batch, or None before the first."""
        progress = self._spark_query.lastProgress
        if progress is None:
            return None
        results = list(self._runner.results)
        combined = self._combine(json.loads(progress.json), {r.batch_id: r for r in results})
        if "anabranch" in combined:
            combined["anabranch"]["totals"] = results[-1].totals  # with what came at the end of the input
        return combined

    def awaitTermination(self, timeout: int | None = None) -> bool | None:
        """Wait until the run ends; an error in it is raised here. With a timeout: whether it has ended."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            if timeout is None:
                self._spark_query.awaitTermination()
            elif not self._spark_query.awaitTermination(timeout):
                return False
        except StreamingQueryException as error:
            self._ended.wait(10)
            raise self._runner.failure or error from None
        if not self._ends:
            self._ended.wait(10)
        elif not self._ended.wait(None if deadline is None else max(deadline - time.monotonic(), 0)):
            return False
        if self._runner.failure is not None:
            raise self._runner.failure
        return None if timeout is None else True

    def processAllAvailable(self) -> None:
        """Wait until everything that has arrived is processed."""
        try:
            self._spark_query.processAllAvailable()
        except StreamingQueryException as error:
            raise self._runner.failure or error from None

    def stop(self) -> None:
        """Stop; the last committed step stays and the checkpoint can be resumed.

        Once the input has ended, stopping waits until what was waiting for that is answered.
        """
        if self._spark_query.isActive:
            self._ends = False
        self._spark_query.stop()
        self._ended.wait(60)

    def leave_open(self) -> None:
        """Do not take the input for ended when Spark's query stops, whoever stops it."""
        self._ends = False

    def exception(self) -> BaseException | None:
        """What ended the run, if it ended by an error."""
        return self._runner.failure or self._spark_query.exception()

    def explain(self) -> None:
        """Print the plan, with what was measured in this run so far, and the state per processor."""
        print(self._query._picture(self._runner.measured()))
        if self._runner.results:
            for report in self._runner.results[-1].reports:
                print(f"processor {report.processor}: {report.active_rows:,} rows of active state")

    def _repr_html_(self) -> str:
        """The plan as a picture, with what was measured in this run so far, in notebooks."""
        return as_svg(self._query._picture(self._runner.measured()))

    def _combine(self, progress: dict[str, Any], ours: dict[int, StepResult]) -> dict[str, Any]:
        result = ours.get(progress["batchId"])
        if result is not None:
            progress.setdefault("sink", {})["numOutputRows"] = result.output_rows
            progress["anabranch"] = _describe(result, [entry.label for entry in self._query._layout.inputs])
        return progress


def start_run(
    query: Query, chosen: SinkOptions, trigger: dict[str, Any], checkpoint_location: str | os.PathLike[str]
) -> Run:
    """Take the checkpoint, pick up its last step, and start the Spark query that drives the steps."""
    events = EventLog()
    checkpoint = Checkpoint(checkpoint_location)
    make_sink(chosen, query._spark, "")  # refuse wrong options before the checkpoint is touched
    for aside, whose in ((query._settings.quarantine, "quarantine"), (query._settings.late_rows, "late_rows")):
        if aside is not None:
            check_folder(aside, whose)
    checkpoint.take(query._identity())
    try:
        sink = make_sink(chosen, query._spark, checkpoint.tag)
        runner = StepRunner(
            query._bound,
            query._layout,
            query._settings,
            checkpoint,
            sink,
            events,
            sink_reads_all=chosen.function is None and chosen.format != "console",
        )
        if runner.must_end:
            runner.end(_no_rows(query))
        spark_query = _start_spark(query, chosen.name, trigger, checkpoint, runner)
    except BaseException:
        checkpoint.release()
        raise
    ends = runner.answers_at_the_end and bool(trigger.get("availableNow"))
    run = Run(query, spark_query, runner, events, ends=ends)
    threading.Thread(target=_release_at_end, args=(run, checkpoint), name="anabranch-run", daemon=True).start()
    return run


def _start_spark(
    query: Query, name: str | None, trigger: dict[str, Any], checkpoint: Checkpoint, runner: StepRunner
) -> StreamingQuery:
    writer = query._packed.writeStream.foreachBatch(runner).trigger(**trigger)
    # Not as_uri(): Spark takes %20 for a part of the name.
    writer = writer.option("checkpointLocation", f"file://{checkpoint.spark}")
    if name is not None:
        writer = writer.queryName(name)
    conf = query._spark.conf
    if conf.get(FILE_MANAGER, None) is None:
        # Spark opens its logs between start() and the first batch; the session is left as it was after that.
        conf.set(FILE_MANAGER, file_manager(query._spark))
        runner.when_started.append(lambda: conf.unset(FILE_MANAGER))
    try:
        return writer.start()
    except BaseException:
        runner.started()
        raise


def _no_rows(query: Query) -> DataFrame:
    """An empty batch, in a session of its own that knows what the user's session knows now."""
    spark = query._spark
    session = SparkSession(spark.sparkContext, jsparkSession=spark._jsparkSession.cloneSession())
    return session.createDataFrame([], query._packed.schema)


def _release_at_end(run: Run, checkpoint: Checkpoint) -> None:
    runner = run._runner
    try:
        run._spark_query.awaitTermination()
        if run._ends:
            runner.end(_no_rows(run._query))
    except Exception as error:
        # Told to the user by awaitTermination and exception.
        runner.failure = runner.failure or (None if isinstance(error, StreamingQueryException) else error)
    finally:
        try:
            runner.wait_idle()
        finally:
            checkpoint.release()
            run._ended.set()


def _describe(result: StepResult, aliases: list[str]) -> dict[str, Any]:
    def per_input(name: str) -> dict[str, int]:
        counts = zip(*(getattr(report, name) for report in result.reports), strict=True)
        return {alias: sum(values) for alias, values in zip(aliases, counts, strict=True)}

    return {
        "step": result.step,
        "receivedRows": per_input("received"),
        "lateRows": per_input("late"),
        "quarantinedRows": per_input("rejected"),
        "newestEventTime": dict(zip(aliases, result.newest, strict=True)),
        "totals": result.totals,
        "processors": [
            {
                "processor": report.processor,
                "activeRows": report.active_rows,
                "activeBytes": report.active_bytes,
                "results": report.results,
                "busyMs": round(report.busy_ms, 1),
            }
            for report in result.reports
        ],
    }
