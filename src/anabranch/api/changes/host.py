"""A run as its migrations and changes see it: the protocols of `migrator` and `replacement`, filled by a `LiveRun`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from anabranch.api.changes.checks import check_fits, check_may_restart, question_of
from anabranch.api.changes.replacement import Plan
from anabranch.api.session_settings import check_unchanged
from anabranch.errors import ConfigError
from anabranch.observe.events import EventKind
from anabranch.plan.allocation import Allocation
from anabranch.runtime.driver.changes.migration import deliver_owed
from anabranch.runtime.driver.open_run import OpenedRun, Prepare, Question, open_run
from anabranch.runtime.driver.read_once import check_replay
from anabranch.runtime.spark.query_settings import session_like

if TYPE_CHECKING:
    from anabranch.api.live.live_run import LiveRun
    from anabranch.api.query import Query
    from anabranch.api.writer import Writer
    from anabranch.runtime.compile.prepared import PreparedPlan

KEPT_PROGRESS = 100


class RunHost:
    """A run as its migrations see it."""

    def __init__(self, run: LiveRun) -> None:
        """Take a run; it need not be open yet."""
        self._run = run
        self.events = run.events

    @property
    def opened(self) -> OpenedRun:
        """The run as it is open now: the runner of its steps, its plan and its targets."""
        return self._run.opened

    @opened.setter
    def opened(self, opened: OpenedRun) -> None:
        self._run.opened = opened

    def questions(self) -> dict[str, Question]:
        """The queries that the run answers, by name."""
        return self._run.questions(self._run.writers)

    def prepare(self, running: PreparedPlan | None = None) -> Prepare:
        """A function that analyses plans under the run's settings, and keeps the streaming query of `running` (by
        default the run's own) for those that it can serve."""
        check_unchanged(self._run.session, self._run.engine.spark)
        return partial(self._run.engine._prepare_again, running=running or self._run.plan)

    def allocate(self, plan: PreparedPlan, allocation: Allocation) -> PreparedPlan:
        """Compile the rounds of its plan for operators that are elsewhere."""
        return self._run.engine._allocate(plan, allocation)

    def no_rows(self) -> DataFrame:
        """An empty batch."""
        return self._run.no_rows()

    def changing(self) -> AbstractContextManager[None]:
        """Inside, nothing else changes the run."""
        return self._run.between_batches("cancelled", "no migration can be")

    def question_of(self, name: str, query: Query) -> Question:
        """The question of a query in the place of another one; its answer goes to that one's target."""
        run = self._run
        return question_of(run.engine, run.checkpoint, self._writer(name, query), run.targets[name])

    def check_sink(self, name: str, query: Query) -> None:
        """Refuse a query whose answer cannot go to the target of the query of this name."""
        run, writer = self._run, self._writer(name, query)
        check_fits(run.engine, run.checkpoint, run.trigger, writer)
        sink, before = writer._sink, run.writers[name]._query.schema
        if query.schema != before and sink.function is None and sink.format not in ("console", "noop"):
            raise ConfigError(
                f"the answer of {name!r} goes to the {sink.format} sink as {before.simpleString()}, and would be "
                f"{query.schema.simpleString()}: what is there already has other columns. Select the same columns, or "
                "add() the new query with a sink of its own"
            )

    def take_over(self, name: str, query: Query) -> None:
        """Note that a query has taken the place of the one of this name."""
        run = self._run
        run.take_over(run.opened, {**run.writers, name: self._writer(name, query)})

    @contextmanager
    def reading_anew(self, plan: Plan) -> Iterator[Plan]:
        """Inside, Spark's query is stopped and the plan of a change is in force; then Spark's query is started anew."""
        run = self._run
        check_may_restart(run.engine, run.checkpoint, run.plan, "changed")
        with stopped(run):
            migration = plan(run.runner.context)
            for warning in check_replay(run.checkpoint, migration.beside.plan, run.engine._sources.registered):
                self.events.add(EventKind.WARNING, warning)
            deliver_owed(run.opened, migration, run.no_rows())
            run.opened = open_run(run.parts, migration.beside)
            run.session = session_like(run.engine.spark)
            yield lambda _: migration
            run.start_spark()

    def _writer(self, name: str, query: Query) -> Writer:
        """The writer of a query, made into that of another one that takes its place."""
        if isinstance(query, str):
            raise ConfigError("give the query as this run's engine has made it: change(name, engine.sql(text))")
        writer = copy(self._run.writers[name])
        writer._query = query
        return writer


def check_quiet(run: LiveRun, what: str) -> None:
    """Refuse a change of queries after the end, under other settings, or while a query migrates. The error says that no
    query can be `what`."""
    run.check_may_change(what, "no query can be")
    check_unchanged(run.session, run.engine.spark)
    run.migrator.check_idle(f"no query can be {what}")


@contextmanager
def stopped(run: LiveRun) -> Iterator[None]:
    """Stop Spark's query after the step under way. The block starts another one.

    If the block fails, the run goes on with the queries that it had, or with those that have taken over by then.
    """
    number, before = run.checkpoint.plan_number, run.writers
    run.runner.gate.close()
    if run.runner.failure is not None:
        raise run.runner.failure
    run.is_changing = True
    try:
        run.spark_query.stop()
        run.runner.started()
        run.past = run.spark_progress()[-KEPT_PROGRESS:]
        try:
            yield
        except BaseException:
            run.ends = False
            last = run.checkpoint.last_step()
            if last is None or last.plan <= number:
                run.checkpoint.retreat(number)
            try:
                run.launch(before if run.checkpoint.plan_number == number else run.writers)
            except BaseException as error:
                run.runner.fail(error)
            raise
    finally:
        run.is_changing = False
