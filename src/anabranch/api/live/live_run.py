"""The inside of a run: its queries, its checkpoint, and Spark's streaming query that brings its batches.

`Run` is its face for users, `background` has its threads, and `changes/` changes it while it goes on. A thread that
changes it holds `lock`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from anabranch.api.changes.checks import kept_orders, question_of
from anabranch.api.changes.host import RunHost
from anabranch.api.changes.migrator import Migrator
from anabranch.api.changes.policy_migrations import PolicyMigrations
from anabranch.api.changes.reallocator import Reallocator
from anabranch.api.record import recording
from anabranch.checkpoint.folder.directory import Checkpoint
from anabranch.checkpoint.journal import open_log
from anabranch.checkpoint.step import Step
from anabranch.errors import ConfigError
from anabranch.manager.memory.budgets import MemoryBudgets
from anabranch.observe.events import EventKind
from anabranch.runtime.compile.prepared import PreparedPlan
from anabranch.runtime.driver.open_run import OpenedRun, Question, open_run, propose
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
    from anabranch.api.writer import Writer

KEPT_STEPS = 1_000
END_SECONDS = 60.0  # that a stopped run has to come to its end


class LiveRun:
    """A run that goes on, or that has ended in this program.

    `past` is the progress of Spark's queries before the present one. `ends` says whether the end of Spark's query is
    the end of the input, so that all rows that wait are answered then.
    """

    def __init__(self, engine: Engine, checkpoint: Checkpoint, trigger: dict[str, Any]) -> None:
        """Take the parts of a run. It answers nothing until `launch`."""
        self.engine = engine
        self.checkpoint = checkpoint
        self.trigger = trigger
        self.events = open_log(checkpoint)
        self.writers: dict[str, Writer] = {}
        self.targets: dict[str, Target] = {}
        self.opened: OpenedRun
        self.session: SparkSession
        self.spark_query: StreamingQuery
        self.results: deque[StepResult] = deque(maxlen=KEPT_STEPS)
        memory = MemoryBudgets(engine._settings.memory)
        self.parts = RunParts(engine._settings, memory, checkpoint, self.events, self.results)
        self.past: list[Any] = []
        self.lock = threading.RLock()
        self.ended = threading.Event()
        self.threads: list[threading.Thread] = []
        self.ends = False
        self.left_open = False
        self.is_changing = False
        self.host = RunHost(self)
        self.migrator = Migrator(self.host)
        self.reallocator = Reallocator(self.host, self.migrator)
        self.by_policy = PolicyMigrations(self.migrator)

    @property
    def runner(self) -> StepRunner:
        """The maker of its steps."""
        return self.opened.runner

    @property
    def plan(self) -> PreparedPlan:
        """The plan in force."""
        return self.opened.plan

    @property
    def name(self) -> str | None:
        """The names that users gave to the queries, joined by commas; None if they gave none."""
        return query_name([writer._sink.name for writer in self.writers.values()])

    @property
    def is_active(self) -> bool:
        """Whether the run goes on."""
        return self.spark_query.isActive or self.is_changing or (self.ends and not self.ended.is_set())

    def exception(self) -> BaseException | None:
        """The error that has ended the run, if one has."""
        return self.runner.failure or self.spark_query.exception()

    def spark_progress(self) -> list[Any]:
        """Spark's progress of the recent batches, oldest first."""
        return [*self.past, *self.spark_query.recentProgress]

    def no_rows(self) -> DataFrame:
        """An empty batch."""
        return no_rows(self.session, self.plan)

    def questions(self, writers: dict[str, Writer]) -> dict[str, Question]:
        """The questions with which a run is opened for these queries; one that is answered already keeps its sink."""
        return {
            name: question_of(self.engine, self.checkpoint, writer, self.targets.get(name))
            for name, writer in writers.items()
        }

    # Beginning.

    def launch(self, writers: dict[str, Writer], removed: Collection[str] = (), resumed: Step | None = None) -> None:
        """Answer these queries from the checkpoint's last step on, with a new streaming query of Spark's.

        In a run that goes on, operators stay where they are. A program that starts may want them elsewhere.
        """
        engine, checkpoint = self.engine, self.checkpoint
        prepare = partial(engine._prepare_again, stays=self.is_changing)
        proposal = propose(checkpoint, self.questions(writers), prepare, removed)
        if resumed is not None:
            self.events.add(EventKind.RESUME, f"continuing after step {resumed.number}, batch {resumed.batch_id}")
        for warning in check_replay(checkpoint, proposal.plan, engine._sources.registered):
            self.events.add(EventKind.WARNING, warning)
        for text in kept_orders(proposal):
            self.events.add(EventKind.RESUME, text)
        self.take_over(open_run(self.parts, proposal), writers)
        self.session = session_like(engine.spark)  # with the settings of now, whatever the user changes later
        if checkpoint.records.announced(checkpoint.last_step()) is not None:
            self.runner.extra.repeat_announced(self.no_rows())
        self.start_spark()

    def start_spark(self) -> None:
        """Start Spark's streaming query, under the plan that is in force."""
        self.ends = self.ends_by_itself and self.runner.status.answers_at_the_end
        self.spark_query = start_spark_query(
            self.engine.spark, self.plan, self.runner, self.trigger, self.checkpoint.spark, self.name
        )

    def take_over(self, opened: OpenedRun, writers: dict[str, Writer]) -> None:
        """Go on with a run that was opened for these queries."""
        named = dict(zip(opened.targets, writers.values(), strict=True))
        self.checkpoint.records.write_run(recording(self.engine, named))
        self.opened, self.writers, self.targets = opened, named, opened.targets

    # Between two batches.

    @property
    def ends_by_itself(self) -> bool:
        """Whether the run processes the available rows and ends (`availableNow`)."""
        return "availableNow" in self.trigger and not self.left_open

    def expect_end(self) -> None:
        """Note that rows may wait after a change: a run that ends by itself answers them at its end."""
        self.ends = self.ends or self.ends_by_itself

    def check_may_change(self, what: str, subject: str) -> None:
        """Refuse a change by the thread of a batch, or after the end; the error reads "`subject` `what`"."""
        if self.runner.gate.is_mine:
            raise ConfigError(f"{subject} {what} by a function that a batch is given to; use another thread")
        if not self.spark_query.isActive:
            raise ConfigError(f"the run has ended, so {subject} {what}; start the engine again")

    @contextmanager
    def between_batches(self, what: str, subject: str) -> Iterator[None]:
        """Inside, nothing else changes the run; refused after its end. The error reads "`subject` `what`"."""
        self.check_may_change(what, subject)
        with self.lock:
            self.check_may_change(what, subject)  # it may have ended in the meantime
            yield

    @contextmanager
    def stopping_on_failure(self) -> Iterator[None]:
        """Stop the run if the block fails: rows may have reached a sink, and no others may follow under their id."""
        try:
            yield
        except BaseException:
            self.ends = False
            self.spark_query.stop()
            raise

    def release_held(self) -> bool:
        """Answer rows that are held back, unless a batch is coming; whether any are still held back."""
        with self.lock:
            if not (self.spark_query.isActive and self.runner.status.holds_back):
                return False
            with self.stopping_on_failure():
                return self.runner.extra.release_held(self.no_rows())

    # Ending.

    def leave_open(self) -> None:
        """Do not treat the input as ended when Spark's query stops."""
        self.left_open, self.ends = True, False

    def stop(self, grace: float) -> None:
        """Stop after the batch under way, or after `grace` seconds. From a `foreachBatch` function, return at once."""
        if self.runner.gate.is_mine:
            self.runner.gate.close(0)
            threading.Thread(target=self.stop, args=(grace,), name="anabranch-stop", daemon=True).start()
            return
        with self.lock:
            if self.spark_query.isActive:
                self.ends = False
                self.runner.gate.close(grace)
            self.spark_query.stop()
        self.wait_for_end(END_SECONDS)

    def wait_for_end(self, timeout: float | None) -> bool:
        """Wait until the run has ended and its threads are gone; whether it has ended."""
        ended = self.ended.wait(timeout)
        for thread in self.threads if ended else ():
            if thread is not threading.current_thread():
                thread.join(END_SECONDS)
        return ended
