"""What a change of a running run has to keep to, and a run as its migrations and changes see it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from anabranch.api.changing import Plan
from anabranch.api.session_settings import check_unchanged, settings_of_a_run
from anabranch.api.targets import check_target, target_of
from anabranch.errors import ConfigError
from anabranch.observe.events import EventKind
from anabranch.plan.join_order import shape_of
from anabranch.plan.shape_text import shape_text
from anabranch.runtime.driver.migration import deliver_owed
from anabranch.runtime.driver.open_run import OpenedRun, Prepare, Proposal, Question, open_run
from anabranch.runtime.driver.read_once import check_replay, read_once
from anabranch.runtime.sinks.answers import Target
from anabranch.runtime.spark.query_settings import session_like
from anabranch.state.store import local_path

if TYPE_CHECKING:
    from anabranch.api.engine import Engine
    from anabranch.api.query import Query
    from anabranch.api.run import Run
    from anabranch.api.writer import Writer
    from anabranch.checkpoint.directory import Checkpoint
    from anabranch.runtime.compile.prepared import PreparedPlan

KEPT_PROGRESS = 100


def check_fits(engine: Engine, checkpoint: Checkpoint, trigger: dict[str, object], writer: Writer) -> None:
    """Refuse a query that cannot be answered beside those of a run."""
    settings_of_a_run(engine, [writer])
    if writer._query._engine is not engine:
        raise ConfigError("add() and change() take a query of this run's own engine")
    if writer._trigger not in (None, trigger):
        raise ConfigError("all queries of a run have one trigger; leave the trigger of the one you add out")
    if local_path(writer._checkpoint) not in (checkpoint.path, local_path(engine.checkpoint)):
        raise ConfigError("all queries of a run have one checkpoint; leave checkpointLocation out")
    writer._check_partitions()
    check_target(writer, engine.spark)


def check_may_restart(engine: Engine, checkpoint: Checkpoint, plan: PreparedPlan, what: str) -> None:
    """Refuse what needs rows or columns that Spark's query does not read, if it cannot be started anew."""
    for stream, source in read_once(plan, engine._sources.registered).items():
        raise ConfigError(
            f"no query can be {what}: the stream {stream} reads a {source}, which cannot go on where it was"
        )
    if (checkpoint.spark / "state").exists():
        raise ConfigError(
            f"no query can be {what}: a registered stream has state of its own in Spark (dropDuplicates, an "
            "aggregate or a join), which Spark cannot carry over to another query"
        )


def question_of(engine: Engine, checkpoint: Checkpoint, writer: Writer, kept: Target | None) -> Question:
    """A query as a run is opened with it; its sink is the one that is `kept`, if there is one."""

    def target(named: str) -> Target:
        return kept or target_of(writer, engine.spark, checkpoint, named)

    return Question(writer._query._bound, writer._query._described, target)


def kept_orders(proposal: Proposal) -> Iterator[str]:
    """What to tell of queries whose joins go on in another order than the program asks for: they have migrated."""
    for request, question in zip(proposal.plan.requests, proposal.questions.values(), strict=True):
        if request.query.logical is None:
            continue
        now, asked = shape_of(request.query), shape_of(question.query)
        if now != asked:
            aliases = [entry.alias for entry in request.query.inputs]
            yield (
                f"{request.name}: joins go on as {shape_text(now, aliases)}, which they have come to, and not as "
                f"{shape_text(asked, aliases)}, as the program says"
            )


class MigratingRun:
    """A run as its migrations see it."""

    def __init__(self, run: Run) -> None:
        """Of a run that has not been opened yet."""
        self._run = run
        self.events = run._events

    @property
    def opened(self) -> OpenedRun:
        """What makes its steps now."""
        return self._run._opened

    @opened.setter
    def opened(self, opened: OpenedRun) -> None:
        self._run._opened = opened

    def questions(self) -> dict[str, Question]:
        """Its queries."""
        return self._run._questions(self._run._writers)

    def prepare(self, running: PreparedPlan | None = None) -> Prepare:
        """Analyses plans that the streaming query of a plan can serve, its own if none is given, under its settings."""
        check_unchanged(self._run._session, self._run._engine.spark)
        return partial(self._run._engine._prepare_again, running=running or self._run._plan)

    def no_rows(self) -> DataFrame:
        """An empty batch."""
        return self._run._no_rows()

    def changing(self) -> AbstractContextManager[None]:
        """While nothing else changes the run."""
        return self._run._between_batches("cancelled", "no migration can be")

    def question_of(self, name: str, query: Query) -> Question:
        """Another query in the place of one, its answer going where that one's goes."""
        run = self._run
        return question_of(run._engine, run._checkpoint, self._writer(name, query), run._targets[name])

    def check_sink(self, name: str, query: Query) -> None:
        """Refuse an answer that cannot go where that of the query of this name goes."""
        run, writer = self._run, self._writer(name, query)
        check_fits(run._engine, run._checkpoint, run._trigger, writer)
        sink, before = writer._sink, run._writers[name]._query.schema
        if query.schema != before and sink.function is None and sink.format not in ("console", "noop"):
            raise ConfigError(
                f"the answer of {name!r} goes to the {sink.format} sink as {before.simpleString()}, and would be "
                f"{query.schema.simpleString()}: what is there already has other columns. Select the same columns, or "
                "add() the new query with a sink of its own"
            )

    def take_over(self, name: str, query: Query) -> None:
        """A query has taken the place of the one of this name."""
        run = self._run
        run._take_over(run._opened, {**run._writers, name: self._writer(name, query)})

    @contextmanager
    def reading_anew(self, plan: Plan) -> Iterator[Plan]:
        """Inside, Spark's query is stopped and the plan of a change in force; then it is started anew."""
        run = self._run
        check_may_restart(run._engine, run._checkpoint, run._plan, "changed")
        with stopped(run):
            migration = plan(run._runner.context)
            for warning in check_replay(run._checkpoint, migration.beside.plan, run._engine._sources.registered):
                self.events.add(EventKind.WARNING, warning)
            deliver_owed(run._opened, migration, run._no_rows())
            run._opened = open_run(run._parts, migration.beside)
            run._session = session_like(run._engine.spark)
            yield lambda _: migration
            run._start_spark()

    def _writer(self, name: str, query: Query) -> Writer:
        """The writer of a query as that of another one that takes its place."""
        if isinstance(query, str):
            raise ConfigError("give the query as this run's engine has made it: change(name, engine.sql(text))")
        writer = copy(self._run._writers[name])
        writer._query = query
        return writer


@contextmanager
def stopped(run: Run) -> Iterator[None]:
    """Let the step under way come to its end; inside, Spark's query is stopped and another one started.

    If that fails the run goes on with the queries that it had, or with those that have taken over by then.
    """
    number, before = run._checkpoint.plan_number, run._writers
    run._runner.gate.close()
    if run._runner.failure is not None:
        raise run._runner.failure
    run._is_changing = True
    try:
        run._spark_query.stop()
        run._runner.started()
        run._past = run._of_spark()[-KEPT_PROGRESS:]
        try:
            yield
        except BaseException:
            run._ends = False
            last = run._checkpoint.last_step()
            if last is None or last.plan <= number:
                run._checkpoint.retreat(number)
            try:
                run._launch(before if run._checkpoint.plan_number == number else run._writers)
            except BaseException as error:
                run._runner.failure = error
            raise
    finally:
        run._is_changing = False
