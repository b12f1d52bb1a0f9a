"""Deliver the results that a stopped run owes without its program, from the record in its checkpoint (`record`).

The record has the schemas of streams, the text of queries and the options of sinks. Functions of the program
(`foreachBatch`, user-defined ones) and its own operators cannot be recorded; a run that needs them is cleaned up by
starting the program again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import types as T

import anabranch
from anabranch.api.engine import Engine
from anabranch.api.targets import target_of
from anabranch.checkpoint.folder.directory import Checkpoint
from anabranch.checkpoint.journal import open_log
from anabranch.checkpoint.settings import describe_engine
from anabranch.checkpoint.step import Step
from anabranch.errors import AnabranchError, CheckpointError
from anabranch.manager.memory.budgets import MemoryBudgets
from anabranch.runtime.driver.open_run import OpenedRun, Question, open_run, propose
from anabranch.runtime.driver.sessions import no_rows
from anabranch.runtime.driver.step.context import RunParts
from anabranch.runtime.spark.query_settings import put_in_force, session_like
from anabranch.state.store import Json

if TYPE_CHECKING:
    from anabranch.api.writer import Writer

AGAIN = "start its program again and let it call run.clean_up()"


def clean_up_stopped(
    checkpoint: Checkpoint, start_spark: Callable[[], SparkSession], empty: Path, tell: Callable[[int], None]
) -> int:
    """Deliver all results that a stopped run owes, and answer rows that are held back; return the number of results.

    Spark is started only if results are owed and can be delivered without the program. `empty` is a folder without
    files, which stands for the streams. `tell` is called with the number of groups that still owe results.
    """
    body = checkpoint.records.run()
    settings = body["session settings"]
    checkpoint.take(describe_engine(anabranch.__version__, body["groups"], settings))
    try:
        last = checkpoint.last_step()
        if last is None:
            return 0
        if checkpoint.has_planned(last.batch_id):
            raise CheckpointError(
                f"{checkpoint.path}: a batch was under way when the run was stopped. Start the run again; once that "
                "batch is done, what it owes can be cleaned up"
            )
        if not _may_owe(checkpoint, last):
            return 0
        _check_needs_no_program(checkpoint.path, body)
        spark = session_like(start_spark())
        put_in_force(spark, settings)
        engine, writers = _rebuild(spark, checkpoint.path, body, empty)
        # The pattern may have been one of the program's own; what it gave is on record.
        engine._placed = dict(zip(checkpoint.plan(last.plan)["operators"], last.initial.placements, strict=True))
        opened = _open(engine, writers, checkpoint)
        runner, packed = opened.runner, no_rows(spark, opened.plan)
        tell(runner.status.owing_groups)
        runner.extra.repeat_announced(packed)
        while runner.extra.release_held(packed):
            pass
        tell(runner.status.owing_groups)
        while runner.extra.clean_up(packed, runner.status.last_number):
            tell(runner.status.owing_groups)
        tell(0)
        return _delivered(checkpoint.last_step()) - _delivered(last)
    finally:
        checkpoint.release()


def _may_owe(checkpoint: Checkpoint, last: Step) -> bool:
    """False if a look at the last step shows that nothing is owed, held back or on its way."""
    if checkpoint.records.announced(last) is not None or last.moving or last.hold:
        return True
    plan = checkpoint.plan(last.plan)
    for _, manifest in checkpoint.reports_of(last):
        for identity, state in zip(plan["operators"], manifest.operators, strict=True):
            # For a grouping only its own step shows which of its spilled groups still owe answers.
            owing = state.generations if identity in plan["groupings"] else state.owing()
            if owing or any(state.held) or state.lagging:
                return True
    return False


def _check_needs_no_program(path: Path, body: Json) -> None:
    for name, query in body["queries"].items():
        if query["sink"] is None:
            raise CheckpointError(f"{path}: the answer to {name!r} goes where only its program can write; {AGAIN}")
    if body["operators"]:
        raise CheckpointError(f"{path}: {body['operators'][0]!r} is an operator of a program; {AGAIN}")


def _delivered(step: Step | None) -> int:
    """The results up to a step, of the queries whose results are counted."""
    return sum(rows or 0 for rows in step.totals["results"].values()) if step is not None else 0


def _open(engine: Engine, writers: Mapping[str, Writer], checkpoint: Checkpoint) -> OpenedRun:
    """The run as it was, under the plan that is in force."""
    stored = checkpoint.plan(checkpoint.plan_number)

    questions = {
        name: Question(
            writer._query._bound, writer._query._described, partial(target_of, writer, engine.spark, checkpoint)
        )
        for name, writer in writers.items()
    }
    proposal = propose(checkpoint, questions, engine._prepare_again)
    document = proposal.document
    # If a query was removed since the run was stopped, the operators that only it needed go.
    smaller = document["queries"] == stored["queries"] and set(document["operators"]) < set(stored["operators"])
    if not smaller and any(document[part] != stored[part] for part in document if part != "read"):
        raise CheckpointError(f"{checkpoint.path}: the queries cannot be put together as they were; {AGAIN}")
    parts = RunParts(
        engine._settings, MemoryBudgets(engine._settings.memory), checkpoint, open_log(checkpoint), deque()
    )
    return open_run(parts, proposal if smaller else replace(proposal, document=stored))


def _rebuild(spark: SparkSession, path: Path, body: Json, empty: Path) -> tuple[Engine, dict[str, Writer]]:
    """The engine and the writers of the record, over streams that bring nothing."""
    engine = Engine(
        spark,
        path,
        body["processors"],
        memory=body["memory"],
        groups=body["groups"],
        quarantine=body["quarantine"],
        late_rows=body["late_rows"],
        policies=[],
    )
    for name, stream in body["streams"].items():
        schema = T.StructType.fromJson(stream["schema"])
        lateness = None if stream["lateness"] is None else timedelta(microseconds=stream["lateness"])
        frame = spark.readStream.schema(schema).parquet(str(empty))
        engine.register(name, frame, time=stream["time"], lateness=lateness)
    writers = {}
    for name, query in body["queries"].items():
        try:
            writer = engine.sql(query["text"], joins=query["joins"], emit=query["emit"]).writeStream
        except AnabranchError as error:
            raise CheckpointError(f"{path}: the query {name!r} cannot be made again ({error}); {AGAIN}") from error
        sink = query["sink"]
        writer = writer.format(sink["format"]).options(**sink["options"]).partitionBy(*sink["partition_by"])
        writers[name] = writer.queryName(sink["name"]) if sink["name"] is not None else writer
    return engine, writers
