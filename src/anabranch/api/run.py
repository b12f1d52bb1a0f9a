"""A running query: PySpark's StreamingQuery with Anabranch's additions."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from anabranch.api.changes.checks import check_fits, check_may_restart, kept_orders, question_of
from anabranch.api.changes.host import MigratingRun, stopped
from anabranch.api.changes.migration import Migration
from anabranch.api.changes.migrator import REFUSE, Migrator
from anabranch.api.changes.plans import explained_plans, plans_of
from anabranch.api.changes.policy_migrations import PolicyMigrations
from anabranch.api.changes.replacement import Changer
from anabranch.api.picture import draw, state_lines
from anabranch.api.progress import batches_of, groups, lateness_of, progress_of, with_step
from anabranch.api.record import recording
from anabranch.api.session_settings import check_unchanged
from anabranch.api.targets import free_name
from anabranch.checkpoint.directory import Checkpoint
from anabranch.checkpoint.journal import open_log
from anabranch.checkpoint.step import Step
from anabranch.errors import ConfigError, did_you_mean
from anabranch.manager.budgets import MemoryBudgets
from anabranch.observe.events import Event, EventKind
from anabranch.observe.numbers import parse_bytes
from anabranch.observe.progress import BatchProgress, Progress
from anabranch.plan.explain import Picture
from anabranch.plan.orders.plan_cost import PlanCost
from anabranch.plan.sharing.query_change import ChangePreview
from anabranch.plan.svg import as_svg
from anabranch.runtime.compile.prepared import PreparedPlan
from anabranch.runtime.driver.open_run import OpenedRun, Question, open_run, propose, switch
from anabranch.runtime.driver.read_once import check_replay
from anabranch.runtime.driver.sessions import no_rows
from anabranch.runtime.driver.step.context import RunParts
from anabranch.runtime.driver.step.result import StepResult
from anabranch.runtime.driver.step_runner import StepRunner
from anabranch.runtime.driver.streaming_query import query_name, start_spark_query
from anabranch.runtime.sinks.answers import Target
from anabranch.runtime.spark.query_settings import session_like

if TYPE_CHECKING:
    from anabranch.api.engine import Engine
    from anabranch.api.query import Query
    from anabranch.api.writer import Writer

KEPT_STEPS = 1_000
CLEAN_UP_PAUSE = 0.05  # seconds, in which a batch can begin
GRACE = 10.0  # seconds that a batch under way has to come to its end when the run is stopped


class Run:
    """Queries that are being answered. Names that PySpark's StreamingQuery has behave as there."""

    def __init__(self, engine: Engine, checkpoint: Checkpoint, trigger: dict[str, Any]) -> None:
        """Made by `Writer.start` and `Engine.start`; `_launch` begins."""
        self._engine = engine
        self._checkpoint = checkpoint
        self._trigger = trigger
        self._events = open_log(checkpoint)
        self._writers: dict[str, Writer] = {}
        self._targets: dict[str, Target] = {}
        self._opened: OpenedRun
        self._results: deque[StepResult] = deque(maxlen=KEPT_STEPS)
        memory = MemoryBudgets(engine._settings.memory)
        self._parts = RunParts(engine._settings, memory, checkpoint, self._events, self._results)
        self._past: list[Any] = []  # the progress of Spark's queries before the one that runs now
        self._changing = threading.RLock()
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self._ends = False
        self._left_open = False
        self._is_changing = False
        self._migrator = Migrator(MigratingRun(self))
        self._by_policy = PolicyMigrations(self._migrator)
        self._changer = Changer(MigratingRun(self))

    def __repr__(self) -> str:
        """One line: what is answered, how far it is, and where its state is."""
        how = "active" if self.isActive else "ended" if self.exception() is None else "failed"
        queries = ", ".join(map(repr, self._writers))
        return f"<Run of {queries}: {how}, step {self._runner.last_number}, checkpoint {str(self._checkpoint.path)!r}>"

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
        """The name given with `queryName`; those of several queries are joined by commas."""
        return self._given_name

    @property
    def isActive(self) -> bool:
        """Whether the run is still going."""
        return self._spark_query.isActive or self._is_changing or (self._ends and not self._ended.is_set())

    @property
    def status(self) -> dict[str, Any]:
        """What Spark is doing right now."""
        return dict(self._spark_query.status)

    @property
    def events(self) -> list[Event]:
        """What happened since the checkpoint began that is worth telling, oldest first; the newest 1,000."""
        return self._events.all()

    def events_since(self, number: int | None = None) -> list[Event]:
        """The events after the one with this number, oldest first; without a number those of this run."""
        return self._events.since(number)

    @property
    def queries(self) -> tuple[str, ...]:
        """The names of the queries that are answered."""
        return tuple(self._writers)

    def add(self, writer: Writer) -> None:
        """Answer one more query, over the rows that arrive from now on; the others do not notice.

        A stream that no query has read so far is read from its own beginning, as when a query starts.
        """
        with self._changing:
            self._check_active("added")
            name = free_name(writer, self._writers)
            check_fits(self._engine, self._checkpoint, self._trigger, writer)
            self._change({**self._writers, name: writer}, "added")
            self._events.add(EventKind.ADD, f"the query {name!r} is answered from now on", query=name)

    def remove(self, name: str) -> None:
        """Answer a query no longer. What it wrote stays; state that no other query needs is removed."""
        with self._changing:
            self._check_active("removed")
            if name not in self._writers:
                raise ConfigError(f"there is no query {name!r} in this run; {did_you_mean(name, list(self._writers))}")
            if len(self._writers) == 1:
                raise ConfigError(f"{name!r} is the only query of this run; stop() the run instead")
            self._change({other: writer for other, writer in self._writers.items() if other != name}, "removed")
            self._events.add(EventKind.REMOVE, f"the query {name!r} is answered no longer", query=name)

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        """Progress of the recent batches: Spark's, with `numOutputRows` and our own numbers under `anabranch`."""
        return [self._with_step(progress) for progress in self._of_spark()]

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        """Progress of the last batch, or None before the first; totals with what came after it."""
        newest = self._spark_query.lastProgress or next(reversed(self._past), None)
        return None if newest is None else self._with_step(newest, as_of_last=True)

    @property
    def progress(self) -> Progress | None:
        """The last step, with a batch or without one, as a value; `lastProgress` shows it as a dict."""
        results = list(self._results)
        return progress_of(results[-1], lateness_of(self._plan.layout)) if results else None

    def batches_since(self, number: int = -1) -> list[BatchProgress]:
        """The batches after the one with this number that became steps, as values, oldest first; of the recent ones."""
        newest = self._spark_query.lastProgress  # enough for whoever follows a run, and much less than all
        recent = [newest] if newest and newest.batchId <= number + 1 else self._of_spark()
        return batches_of(recent, list(self._results), lateness_of(self._plan.layout), number)

    def groups(self) -> list[dict[str, Any]]:
        """The partition groups that have state now: a dict for each processor, operator and group."""
        return groups(self._results[-1]) if self._results else []

    def awaitTermination(self, timeout: int | None = None) -> bool | None:
        """Wait until the run ends; an error in it is raised here. With a timeout: whether it has ended."""
        if not self._wait_for_end(timeout):
            return False
        failure = self.exception()
        if failure is not None:
            raise failure
        return None if timeout is None else True

    def processAllAvailable(self) -> None:
        """Wait until everything that has arrived is processed."""
        while True:
            waited_for = self._spark_query
            try:
                waited_for.processAllAvailable()
            except StreamingQueryException as error:
                with self._changing:
                    if waited_for is self._spark_query:
                        raise self._runner.failure or error from None
            with self._changing:
                if waited_for is self._spark_query:
                    break
        while self._let_go_on():
            time.sleep(CLEAN_UP_PAUSE)

    def _let_go_on(self) -> bool:
        """Let rows go on that were held back, unless a batch is coming; whether any still wait."""
        with self._changing:
            if not (self._spark_query.isActive and self._runner.holds_back):
                return False
            with self._stopping_on_failure():
                return self._runner.let_go_on(self._no_rows())

    @contextmanager
    def _stopping_on_failure(self) -> Iterator[None]:
        """What fails between two batches may have reached a sink: under the same id nothing else may follow."""
        try:
            yield
        except BaseException:
            self._ends = False
            self._spark_query.stop()
            raise

    def clean_up(self) -> None:
        """Deliver all results that spilling has postponed so far, and wait until that is done.

        While batches come they do it in passing, so that none takes long; what was spilled becomes active again as far
        as memory allows. A run that ends by itself (`availableNow`) has done this.
        """
        spilled_by = self._runner.last_number
        while True:
            with self._changing:
                if self._runner.gate.is_mine:
                    raise ConfigError("a function that a batch is given to cannot clean up; use another thread")
                if not self._spark_query.isActive:
                    raise self.exception() or ConfigError(
                        f"the run has ended; to clean up what it owes: anabranch clean-up {self._checkpoint.path}"
                    )
                with self._stopping_on_failure():
                    if not self._runner.clean_up(self._no_rows(), spilled_by):
                        return
            time.sleep(CLEAN_UP_PAUSE)

    def relocate(
        self, groups: int | Iterable[int], *, to: int, operator: str | None = None, pace: int | str | None = None
    ) -> None:
        """Move partition groups to a processor, between two batches, while the run goes on. Nothing is copied.

        Args:
            groups: their numbers, from 0 on.
            to: the number of the processor.
            operator: of which operator, by its name in events and progress, and of those that run fused with it; by
                default of all.
            pace: how many bytes per step, such as "256m", the processor reads ahead before the groups are its own. Rows
                that arrive for them in the meantime are held back. By default it reads when it needs to.
        """
        chosen = list(groups) if isinstance(groups, Iterable) else [groups]
        with self._between_batches("moved", "no state can be"):
            self._ends = self._ends or self._ends_by_itself
            self._runner.manual.relocate(chosen, to, operator, None if pace is None else parse_bytes(pace))

    def rescale(self, processors: int) -> None:
        """Go on with another number of processors from the next batch on; state is spread evenly. Nothing is copied.

        A checkpoint that is resumed by a program that asks for the same number as before keeps this one.
        """
        with self._between_batches("rescaled", "the run cannot be"):
            self._runner.manual.rescale(processors)

    def migrate(
        self,
        joins: str,
        strategy: str = "auto",
        query: str | None = None,
        *,
        pace: int | None = None,
        meanwhile: str = REFUSE,
    ) -> Migration:
        """Go on with a query's joins in another order, such as "((B C) D) A" or "multiway" (docs/migration.md).

        The `strategy` is "moving-state" (at once), "background" (in pieces, of `pace` rows per batch, while the old
        order answers), "parallel-track" (begins empty beside it), or "auto". `meanwhile` says whether to "refuse" or to
        "replace" a migration that is under way.
        """
        with self._between_batches("migrated", "no query can be"):
            self._ends = self._ends or self._ends_by_itself
            return self._migrator.begin(joins, strategy, query, pace=pace, meanwhile=meanwhile)

    def plans(self, query: str | None = None) -> list[PlanCost]:
        """The orders in which a query's joins could run, with what each costs, least work first (docs/migration.md).

        Costs are estimated from a sample of the state, taken now if that is not too often; of a run that has ended they
        are those of the last time.
        """
        if not self._spark_query.isActive:
            return plans_of(self._migrator, query, measure=False)
        with self._between_batches("compared", "orders of joins cannot be"):
            return plans_of(self._migrator, query)

    def change(self, name: str, query: Query, *, missing: str = REFUSE) -> ChangePreview:
        """Replace a query by another one, which goes on with its state from the next batch on (docs/migration.md).

        `missing` says whether to "refuse" a query for which rows are lacking that were left out, or to "allow" it.
        """
        with self._between_batches("changed", "no query can be"):
            self._check_active("changed")
            self._ends = self._ends or self._ends_by_itself
            return self._changer.change(name, query, missing)

    def preview(self, name: str, query: Query) -> ChangePreview:
        """What `change` would keep, compute and lack, and what cannot be done; it can be printed."""
        with self._between_batches("changed", "no query can be"):
            return self._changer.preview(name, query)

    def set_memory(self, memory: int | str | None, *, processor: int | None = None) -> None:
        """Change how much active state a processor may have, or all of them, until the run ends."""
        budget = None if memory is None else parse_bytes(memory)
        with self._between_batches("changed", "memory cannot be"):
            self._runner.manual.give_memory(budget, processor)

    def stop(self, *, grace: float = GRACE) -> None:
        """Stop; the last committed step stays and the checkpoint can be resumed.

        A batch under way is finished first, unless that takes more than `grace` seconds: then it is interrupted, and
        computed again after a restart. Once the input has ended, stopping waits until what was waiting for that is
        answered. A function that a batch is given to may call it, too; there it returns at once.
        """
        if self._runner.gate.is_mine:
            self._runner.gate.close(0)
            threading.Thread(target=self.stop, kwargs={"grace": grace}, name="anabranch-stop", daemon=True).start()
            return
        with self._changing:
            if self._spark_query.isActive:
                self._ends = False
                self._runner.gate.close(grace)
            self._spark_query.stop()
        self._wait_for_end(60)

    def leave_open(self) -> None:
        """Do not take the input for ended when Spark's query stops, whoever stops it."""
        self._left_open = True
        self._ends = False

    def exception(self) -> BaseException | None:
        """What ended the run, if it ended by an error."""
        return self._runner.failure or self._spark_query.exception()

    def explain(self) -> None:
        """Print the plan, with what was measured so far since it is this one, the state per processor, and what other
        orders of joins would cost."""
        print(self._picture())
        if self._results:
            print(*state_lines(self._results[-1]), sep="\n")
        measure = self._spark_query.isActive and self._runner.can_change
        for line in explained_plans(self._migrator, measure=measure):
            print(line)

    def _repr_html_(self) -> str:
        """The plan as a picture, with what was measured so far, in notebooks."""
        return as_svg(self._picture())

    def _picture(self) -> Picture:
        runner = self._runner
        return draw(self._plan, runner.placements, runner.processors, runner.measured())

    def _of_spark(self) -> list[Any]:
        return [*self._past, *self._spark_query.recentProgress]

    def _with_step(self, progress: Any, *, as_of_last: bool = False) -> dict[str, Any]:
        # Spark's query keeps the name that it was started with.
        batch = {**json.loads(progress.json), "name": self.name}
        return with_step(batch, list(self._results), lateness_of(self._plan.layout), as_of_last=as_of_last)

    @property
    def _ends_by_itself(self) -> bool:
        return "availableNow" in self._trigger and not self._left_open

    def _launch(self, writers: dict[str, Writer], removed: Collection[str] = (), resumed: Step | None = None) -> None:
        """Answer these queries, from the checkpoint's last step on, in a new query of Spark's."""
        engine, checkpoint = self._engine, self._checkpoint
        proposal = propose(checkpoint, self._questions(writers), engine._prepare_again, removed)
        if resumed is not None:
            self._events.add(EventKind.RESUME, f"continuing after step {resumed.number}, batch {resumed.batch_id}")
        for warning in check_replay(checkpoint, proposal.plan, engine._sources.registered):
            self._events.add(EventKind.WARNING, warning)
        for told in kept_orders(proposal):
            self._events.add(EventKind.RESUME, told)
        self._take_over(open_run(self._parts, proposal), writers)
        self._session = session_like(engine.spark)  # with the settings of now, whatever the user changes later
        if checkpoint.announced(checkpoint.last_step()) is not None:
            self._runner.go_on(self._no_rows())
        self._start_spark()

    def _start_spark(self) -> None:
        """Let batches come, under the plan that is in force."""
        runner = self._runner
        self._ends = runner.answers_at_the_end and self._ends_by_itself
        self._spark_query = start_spark_query(
            self._engine.spark, self._plan, runner, self._trigger, self._checkpoint.spark, self._given_name
        )

    def _take_over(self, opened: OpenedRun, writers: dict[str, Writer]) -> None:
        """Go on with what was opened, for these queries."""
        named = dict(zip(opened.targets, writers.values(), strict=True))
        self._checkpoint.record(recording(self._engine, named))
        self._opened, self._writers, self._targets = opened, named, opened.targets

    @property
    def _runner(self) -> StepRunner:
        return self._opened.runner

    @property
    def _plan(self) -> PreparedPlan:
        return self._opened.plan

    @property
    def _given_name(self) -> str | None:
        return query_name([writer._sink.name for writer in self._writers.values()])

    def _questions(self, writers: dict[str, Writer]) -> dict[str, Question]:
        """Queries as a run is opened with them. A sink that is there already stays."""
        return {
            name: question_of(self._engine, self._checkpoint, writer, self._targets.get(name))
            for name, writer in writers.items()
        }

    def _change(self, writers: dict[str, Writer], what: str) -> None:
        """Go on with other queries from the next batch on.

        If all that they need is packed already, Spark's query goes on as it is; else it is started anew.
        """
        removed = self._writers.keys() - writers.keys()
        prepare = partial(self._engine._prepare_again, running=self._plan)
        opened = None
        while opened is None:
            proposal = propose(self._checkpoint, self._questions(writers), prepare, removed)
            if proposal.plan.packed is not self._plan.packed:
                check_may_restart(self._engine, self._checkpoint, self._plan, what)
                with stopped(self):
                    self._launch(writers, removed)
                return
            try:
                opened = switch(self._opened, proposal)
            except ConfigError:
                if self._runner.failure is not None:
                    raise self._runner.failure from None
                raise
        self._take_over(opened, writers)
        self._ends = self._ends_by_itself and (self._ends or self._runner.answers_at_the_end)

    def _check_may_change(self, what: str, subject: str) -> None:
        if self._runner.gate.is_mine:
            raise ConfigError(f"{subject} {what} by a function that a batch is given to; use another thread")
        if not self._spark_query.isActive:
            raise ConfigError(f"the run has ended, so {subject} {what}; start the engine again")

    @contextmanager
    def _between_batches(self, what: str, subject: str) -> Iterator[None]:
        """While nothing else changes the run, which goes on."""
        self._check_may_change(what, subject)
        with self._changing:
            self._check_may_change(what, subject)  # it may have ended in the meantime
            yield

    def _check_active(self, what: str) -> None:
        self._check_may_change(what, "no query can be")
        check_unchanged(self._session, self._engine.spark)
        self._migrator.check_idle(f"no query can be {what}")

    def _no_rows(self) -> DataFrame:
        return no_rows(self._session, self._plan)

    def _wait_for_end(self, timeout: float | None) -> bool:
        """Wait until the run has ended and nothing of it is left; whether it has."""
        ended = self._ended.wait(timeout)
        for thread in self._threads if ended else ():
            if thread is not threading.current_thread():
                thread.join(60)
        return ended
