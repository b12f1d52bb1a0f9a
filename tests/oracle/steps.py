"""The engine without Structured Streaming around it: batches go straight to the step runner.

A step takes a fraction of the time of a micro-batch, and a test decides what is in a batch and under which id it comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

import anabranch
from anabranch.api.engine import Engine
from anabranch.api.query import Query
from anabranch.checkpoint.directory import Checkpoint
from anabranch.checkpoint.journal import open_log
from anabranch.checkpoint.queries import missing_queries
from anabranch.checkpoint.settings import describe_engine
from anabranch.language import parse_query
from anabranch.manager.budgets import MemoryBudgets
from anabranch.plan.network import Network
from anabranch.plan.placement import Placement
from anabranch.plan.query import StreamSchema
from anabranch.plan.routing import check_routings
from anabranch.runtime.driver.context import RunParts
from anabranch.runtime.driver.open_run import Question, open_run, propose
from anabranch.runtime.exchange.pack import pack
from anabranch.runtime.rows.derived import Sources
from anabranch.runtime.sinks.answers import Target
from anabranch.state.run import FileCuts
from anabranch.state.share import groups_by_port, home_groups
from anabranch.state.spill import present_groups


@dataclass(frozen=True)
class Kind:
    """What a stream is like: the schema of its Arrow tables, expressions over them, event time and lateness (us)."""

    schema: pa.Schema
    time: str | None = None
    lateness: int | None = None
    select: tuple[str, ...] = ("*",)

    def frame(self, spark: SparkSession, rows: pa.Table) -> DataFrame:
        """A batch of the stream."""
        if len(rows):
            return spark.createDataFrame(rows).selectExpr(*self.select)
        schema = from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
        return spark.createDataFrame(spark.sparkContext.emptyRDD(), schema).selectExpr(*self.select)


@dataclass
class Steps:
    """A run on a checkpoint. Use it as a context manager; `answer` collects the results of all batches.

    There may be `others`, queries by name that are answered beside it; what they answer goes to `other_answers`, or to
    their `sinks`. Queries that the checkpoint answers and that are not among them are removed. `place` says where
    operators are.
    """

    spark: SparkSession
    checkpoint: Path
    text: str
    kinds: Mapping[str, Kind]
    processors: int = 2
    groups: int = 16
    sink: Callable[[DataFrame, int], None] | None = None
    settings: dict = field(default_factory=dict)
    answers: list[pa.Table] = field(default_factory=list)
    next_batch: int = 0
    joins: str = "auto"
    emit: str = "tuple"
    place: Callable[[Network], tuple[Placement, ...]] | None = None
    name: str = "query"
    others: Mapping[str, str] = field(default_factory=dict)
    other_answers: dict[str, list[pa.Table]] = field(default_factory=dict)
    sinks: Mapping[str, Callable[[DataFrame, int], None]] = field(default_factory=dict)

    def __enter__(self) -> Steps:
        # Rows as an RDD, as Structured Streaming hands them over; a local relation could be optimised away.
        self.spark.conf.set("spark.sql.execution.arrow.localRelationThreshold", "0")
        frames = {name: kind.frame(self.spark, kind.schema.empty_table()) for name, kind in self.kinds.items()}
        streams = {
            name: StreamSchema(name, tuple(frames[name].columns), kind.time, kind.lateness)
            for name, kind in self.kinds.items()
        }
        engine = Engine(self.spark, self.checkpoint, self.processors, groups=self.groups, **self.settings)
        engine._sources, engine._streams = Sources(frames), streams
        if self.place is not None:
            engine._place = self.place
        self.query = Query(engine, parse_query(self.text, streams, self.joins, self.emit))
        others = {name: Query(engine, parse_query(text, streams)) for name, text in self.others.items()}
        self.taken = Checkpoint(self.checkpoint)
        self.taken.take(describe_engine(anabranch.__version__, self.groups, None))
        self.results = deque()
        try:
            self.events = open_log(self.taken)
            targets = {self.name: self._write, **{name: self._collector(name) for name in others}}
            self.engine = engine
            self.questions = questions = {
                name: Question(query._bound, query._described, lambda _, sink=targets[name]: Target(sink))
                for name, query in {self.name: self.query, **others}.items()
            }
            removed = missing_queries(self.taken, list(questions))
            proposal = propose(self.taken, questions, engine._prepare_again, removed)
            sources = sum(number * uses for _, number, uses in proposal.plan.read)
            self._offsets = "\n".join(["v1", "{}", *["-"] * sources])
            parts = RunParts(
                engine._settings, MemoryBudgets(engine._settings.memory), self.taken, self.events, self.results
            )
            opened = open_run(parts, proposal)
            self.plan, self.runner, self.opened = opened.plan, opened.runner, opened
        except BaseException:
            self.taken.release()
            raise
        last = self.taken.last_step()
        self.next_batch = last.batch_id + 1 if last else 0
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.taken.release()

    def feed(self, batches: Mapping[str, pa.Table], batch_id: int | None = None) -> None:
        """Deliver a batch; streams that are not named bring nothing."""
        frames = {
            name: kind.frame(self.spark, batches.get(name, kind.schema.empty_table()))
            for name, kind in self.kinds.items()
        }
        number = self.next_batch if batch_id is None else batch_id
        log = self.taken.spark / "offsets" / str(number)
        log.parent.mkdir(exist_ok=True)
        log.write_text(self._offsets)
        self.runner(pack(self.plan.packing, Sources(frames)), number)
        self.next_batch = number + 1

    def end(self) -> None:
        """Take the input for ended, as a run does that processes what is there."""
        self.runner.end(self.plan.packed)

    def clean_up(self) -> bool:
        """Deliver some of what is owed; whether anything still is."""
        return self.runner.clean_up(self.plan.packed, self.runner.last_number)

    def let_go_on(self) -> bool:
        """Let rows go on that were held back, as a run does that no batch comes to; whether any still wait."""
        return self.runner.let_go_on(self.plan.packed)

    def check_owners(self) -> None:
        """Every partition group of every operator has one owner, and nobody else has state of it."""
        found = self.runner._context.in_force.distribution
        cuts = FileCuts(self.taken.state, self.groups)
        owners = self.plan.layout.processor.owners
        check_routings(found.routings, owners, self.groups, found.processors)
        for p, manifest in enumerate(found.manifests):
            own = groups_by_port(found.routings, owners, p)
            for port, spine in enumerate(manifest.spines):
                slices = [*spine.slices(), *spine.retired]
                assert not present_groups(slices, self.groups, cuts) - own[port], f"port {port} on processor {p}"
            for n, state in enumerate(manifest.operators):
                slices = [piece for held in state.held for piece in held]
                slices += [piece for generation in state.generations for port in generation.ports for piece in port]
                home = home_groups(found.routings[n], p)
                assert not present_groups(slices, self.groups, cuts) - home, f"operator {n} on processor {p}"

    @property
    def answer(self) -> pa.Table:
        """The results of all batches so far."""
        return pa.concat_tables(self.answers)

    @property
    def active_rows(self) -> int:
        """How many rows the state holds."""
        return sum(report.active_rows for report in self.results[-1].reports)

    def _collector(self, name: str) -> Callable[[DataFrame, int], None]:
        if name in self.sinks:
            return self.sinks[name]

        def collect(results: DataFrame, batch_id: int) -> None:
            self.other_answers.setdefault(name, []).append(results.toArrow())

        return collect

    def _write(self, results: DataFrame, batch_id: int) -> None:
        if self.sink is not None:
            self.sink(results, batch_id)
        else:
            self.answers.append(results.toArrow())
