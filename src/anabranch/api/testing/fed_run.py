"""A run on a checkpoint whose batches are fed by hand, in the place of Spark's streaming query.

Spark notes in a log that a batch has begun before it brings it, and the engine reads that log after a crash. This
module writes the same log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import anabranch
from anabranch.api.changes.migrator import Migrator
from anabranch.api.changes.policy_migrations import PolicyMigrations
from anabranch.api.changes.reallocator import Reallocator
from anabranch.api.changes.replacement import Plan
from anabranch.api.engine import Engine
from anabranch.api.query import Query
from anabranch.api.testing.rows import Rows
from anabranch.api.testing.streams import FedStream, prepare
from anabranch.checkpoint.folder.directory import Checkpoint
from anabranch.checkpoint.journal import open_log
from anabranch.checkpoint.queries import REMOVE, missing_queries
from anabranch.checkpoint.settings import describe_engine
from anabranch.errors import CheckpointError, ConfigError, did_you_mean
from anabranch.manager.memory.budgets import MemoryBudgets
from anabranch.observe.events import EventKind, EventLog
from anabranch.plan.allocation import Allocation
from anabranch.runtime.compile.prepared import PreparedPlan
from anabranch.runtime.driver.changes.migration import deliver_owed
from anabranch.runtime.driver.open_run import OpenedRun, Prepare, Question, open_run, propose
from anabranch.runtime.driver.step.context import RunParts
from anabranch.runtime.driver.step.result import StepResult
from anabranch.runtime.driver.step_runner import StepRunner
from anabranch.runtime.exchange.pack import pack
from anabranch.runtime.rows.derived import Sources
from anabranch.runtime.sinks.answers import Target
from anabranch.runtime.spark.internals import empty_frame, stays_active
from anabranch.runtime.spark.query_settings import session_like, settings_in_force


@dataclass(frozen=True, slots=True)
class AnsweredQuery:
    """A query that is answered, and the target of its answer."""

    query: Query
    target: Target

    def question(self) -> Question:
        """The question with which a run is opened for the query."""
        return Question(self.query._bound, self.query._described, lambda _: self.target)


class FedRun:
    """Opens a run, delivers its batches, and lets it go. Events and results go on when it is opened again."""

    def __init__(self, engine: Engine, missing: str, clock: Callable[[], float]) -> None:
        """Take an engine; nothing is opened yet. `missing` says whether to refuse or remove queries of the checkpoint
        that are not answered."""
        self._engine = engine
        self._missing = missing
        self._clock = clock
        self.fed: dict[str, FedStream] = {}
        self.events = EventLog(clock)
        self.results: deque[StepResult] = deque()
        self.next_batch = 0
        self.checkpoint = Checkpoint(engine.checkpoint)
        self._session: SparkSession
        self._parts: RunParts
        self._opened: OpenedRun | None = None
        self._answered: Mapping[str, AnsweredQuery] = {}
        self.migrator = Migrator(self)
        self.reallocator = Reallocator(self, self.migrator)
        self._by_policy = PolicyMigrations(self.migrator)

    @property
    def opened(self) -> OpenedRun:
        """The run as it is open now: the runner of its steps, its plan and its targets."""
        return self._now_open

    @opened.setter
    def opened(self, opened: OpenedRun) -> None:
        self._opened = opened

    def questions(self) -> dict[str, Question]:
        """The queries that are answered, by name."""
        return {name: answered.question() for name, answered in self._answered.items()}

    def prepare(self, running: PreparedPlan | None = None) -> Prepare:
        """A function that analyses plans, and keeps the packed rows for those that they can serve."""
        return partial(self._engine._prepare_again, running=running or self.plan)

    def allocate(self, plan: PreparedPlan, allocation: Allocation) -> PreparedPlan:
        """Compile the rounds of a plan for operators that are elsewhere."""
        return self._engine._allocate(plan, allocation)

    def question_of(self, name: str, query: Query) -> Question:
        """The question of a query in the place of another one; its answer goes to that one's target."""
        return AnsweredQuery(query, self._answered[name].target).question()

    def check_sink(self, name: str, query: Query) -> None:
        """Accept any query: functions of tests take any answer."""

    def take_over(self, name: str, query: Query) -> None:
        """Note that a query has taken the place of the one of this name."""
        self._answered = {**self._answered, name: AnsweredQuery(query, self._answered[name].target)}

    @contextmanager
    def reading_anew(self, plan: Plan) -> Iterator[Plan]:
        """Inside, the plan of a change is in force, and rows are packed as it needs them."""
        migration = plan(self.runner.context)
        deliver_owed(self.opened, migration, self.no_rows())
        self._opened = open_run(self._parts, migration.beside)
        yield lambda _: migration

    def changing(self) -> AbstractContextManager[None]:
        """Inside, nothing else changes the run: there are no other threads."""
        return nullcontext()

    @property
    def is_open(self) -> bool:
        """Whether steps can be made."""
        return self._opened is not None

    @property
    def runner(self) -> StepRunner:
        """The runner of its steps."""
        return self._now_open.runner

    @property
    def plan(self) -> PreparedPlan:
        """The plan that is in force."""
        return self._now_open.plan

    @property
    def _now_open(self) -> OpenedRun:
        assert self._opened is not None, "it has been started"
        return self._opened

    def start(self, queries: Mapping[str, AnsweredQuery]) -> None:
        """Take the checkpoint and go on from its last step, unless the run is open already."""
        if self._opened is not None:
            return
        engine = self._engine
        self._session = session_like(engine.spark)
        prepare(self._session)
        self.checkpoint = Checkpoint(engine.checkpoint)
        settings = settings_in_force(engine.spark)
        self.checkpoint.take(describe_engine(anabranch.__version__, engine.groups, settings))
        self.events = open_log(self.checkpoint, self._clock)
        memory = MemoryBudgets(engine._settings.memory)
        self._parts = RunParts(engine._settings, memory, self.checkpoint, self.events, self.results, self._clock)
        try:
            self._resume(queries)
        except BaseException:
            self.stop()
            raise

    def _resume(self, queries: Mapping[str, AnsweredQuery]) -> None:
        last = self.checkpoint.last_step()
        if last is not None:
            self.events.add(EventKind.RESUME, f"continuing after step {last.number}, batch {last.batch_id}")
        self.next_batch = last.batch_id + 1 if last is not None else 0
        self.open(queries, missing_queries(self.checkpoint, list(queries)) if self._missing == REMOVE else [])
        if self.checkpoint.records.announced(last) is not None:
            self.runner.extra.repeat_announced(self.no_rows())

    def open(self, queries: Mapping[str, AnsweredQuery], removed: Collection[str]) -> None:
        """Answer these queries from now on, without those that are removed."""
        self._answered = queries
        proposal = propose(self.checkpoint, self.questions(), self._engine._prepare_again, removed)
        self._opened = open_run(self._parts, proposal)
        for name in removed:
            self._parts.orders.forget(name)

    def stop(self) -> None:
        """Release the checkpoint."""
        self.migrator.end(None)
        self.checkpoint.release()
        self._opened = None

    def tables(self, batches: Mapping[str, Rows]) -> dict[str, pa.Table]:
        """The rows that a test feeds, by stream, as Arrow tables."""
        for name in batches:
            if name not in self.fed:
                raise ConfigError(f"there is no stream {name!r} to feed; {did_you_mean(name, list(self.fed))}")
        return {name: self.fed[name].table(self._session, rows) for name, rows in batches.items()}

    def deliver(self, tables: Mapping[str, pa.Table], number: int | None = None) -> None:
        """Bring a batch, by default the next one; streams that are not named bring nothing."""
        batch_id = self.next_batch if number is None else number
        with stays_active(self._engine.spark):
            frames = {name: stream.frame(self._session, tables.get(name)) for name, stream in self.fed.items()}
            packed = pack(self.plan.packing, Sources(frames))
            self._note_begun(batch_id)
            self.runner(packed, batch_id)
            self.migrator.advance()
            self._by_policy.go_on()
            self.reallocator.go_on()
            self._by_policy.measure()
        self.next_batch = batch_id + 1

    def _note_begun(self, batch_id: int) -> None:
        """Note that a batch has begun, in the form of Spark's log: an offset for every source."""
        sources = sum(number * uses for _, number, uses in self.plan.read)
        log = self.checkpoint.spark / "offsets" / str(batch_id)
        log.parent.mkdir(exist_ok=True)
        log.write_text("\n".join(["v1", "{}", *["-"] * sources]))

    def no_rows(self) -> DataFrame:
        """An empty batch, for a step without a batch."""
        return empty_frame(session_like(self._session), self.plan.packed.schema)

    def check_nothing_under_way(self) -> None:
        """Refuse steps between two batches while one has begun that is not committed."""
        last = self.checkpoint.last_step()
        if last is not None and self.checkpoint.has_planned(last.batch_id):
            raise CheckpointError("a batch has failed; feed it again before anything else is done")
