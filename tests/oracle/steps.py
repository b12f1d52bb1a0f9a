"""`anabranch.testing.Steps` with its inside out: for tests that look at manifests, plans and the step runner.

A step takes a fraction of the time of a micro-batch, and a test decides what is in a batch and under which id it comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import TracebackType

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from anabranch import testing
from anabranch.api.query import Query
from anabranch.api.testing.streams import fed_stream
from anabranch.checkpoint.folder.directory import Checkpoint
from anabranch.checkpoint.queries import REMOVE
from anabranch.manager.patterns.operator_graph import OperatorGraph
from anabranch.observe.events import EventLog
from anabranch.plan.join_order import shape_of
from anabranch.plan.placement import Placement
from anabranch.plan.routing import check_routings
from anabranch.plan.shape_text import shape_text
from anabranch.runtime.compile.prepared import PreparedPlan
from anabranch.runtime.driver.step.result import StepResult
from anabranch.runtime.driver.step_runner import StepRunner
from anabranch.state.broken_shares import broken_shares
from anabranch.state.runs.run import FileCuts
from anabranch.state.share import groups_by_port, home_groups
from anabranch.state.spill import present_groups

Sink = Callable[[DataFrame, int], None]


@dataclass(frozen=True)
class Kind:
    """What a stream is like: the schema of its Arrow tables, expressions over them, event time and lateness (us)."""

    schema: pa.Schema
    time: str | None = None
    lateness: int | None = None
    select: tuple[str, ...] = ("*",)

    def frame(self, spark: SparkSession, rows: pa.Table) -> DataFrame:
        """A batch of the stream."""
        return fed_stream(spark, "a stream", self.schema, self.through).frame(spark, rows)

    def through(self, rows: DataFrame) -> DataFrame:
        """The expressions over rows of the schema."""
        return rows.selectExpr(*self.select)


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
    sink: Sink | None = None
    settings: dict = field(default_factory=dict)
    answers: list[pa.Table] = field(default_factory=list)
    joins: str = "auto"
    emit: str = "tuple"
    place: Callable[[OperatorGraph], tuple[Placement, ...]] | None = None
    name: str = "query"
    others: Mapping[str, str] = field(default_factory=dict)
    other_answers: dict[str, list[pa.Table]] = field(default_factory=dict)
    sinks: Mapping[str, Sink] = field(default_factory=dict)

    def __enter__(self) -> Steps:
        settings = {"groups": self.groups, "missing": REMOVE, **self.settings}
        self.public = testing.Steps(self.spark, self.checkpoint, processors=self.processors, **settings)
        for name, kind in self.kinds.items():
            lateness = None if kind.lateness is None else timedelta(microseconds=kind.lateness)
            self.public.stream(name, kind.schema, time=kind.time, lateness=lateness, through=kind.through)
        if self.place is not None:
            self.public.engine._place = self.place
        sink = self._collector(self.answers) if self.sink is None else self.sink
        self.query: Query = self.public.query(self.text, name=self.name, joins=self.joins, emit=self.emit, sink=sink)
        for name, text in self.others.items():
            own = self.other_answers.setdefault(name, [])
            self.public.query(text, name=name, sink=self.sinks.get(name, self._collector(own)))
        self.public.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.public.stop()

    def feed(self, batches: Mapping[str, pa.Table], batch_id: int | None = None) -> None:
        """Deliver a batch; streams that are not named bring nothing."""
        self.public._run.deliver(batches, batch_id)

    def end(self) -> None:
        """Take the input for ended, as a run does that processes what is there."""
        self.public.end()

    def clean_up(self) -> bool:
        """Deliver some of what is owed; whether anything still is."""
        return self.runner.extra.clean_up(self.public._run.no_rows(), self.runner.status.last_number)

    def let_go_on(self) -> bool:
        """Let rows go on that were held back, as a run does that no batch comes to; whether any still wait."""
        return self.public.let_go_on()

    def check_owners(self) -> None:
        """Every row is listed once, by a processor that its group belongs to."""
        found = self.runner.context.in_force.distribution
        cuts = FileCuts(self.taken.state, self.groups)
        owners = self.plan.layout.processor.owners
        check_routings(found.routings, owners, self.groups, found.processors)
        assert not [*broken_shares(found.manifests, found.routings, owners, cuts)]
        for p, manifest in enumerate(found.manifests):
            own = groups_by_port(found.routings, owners, p)
            for port, spine in enumerate(manifest.spines):
                slices = [*spine.slices(), *spine.retired]
                assert not present_groups(slices, self.groups, cuts) - own[port], f"port {port} on processor {p}"
            for n, state in enumerate(manifest.operators):
                slices = [piece for held in state.held for piece in held]
                slices += [piece for generation in state.generations for port in generation.ports for piece in port]
                home = home_groups(found.routings[n], p)
                strange = present_groups(slices, self.groups, cuts) - home
                assert not strange, f"operator {n} on processor {p}: groups {strange.numbers().tolist()}"

    def order(self) -> str:
        """The order of the query's joins that is in force."""
        request = next(request for request in self.plan.requests if request.name == self.name)
        return shape_text(shape_of(request.query), [entry.alias for entry in request.query.inputs])

    @property
    def runner(self) -> StepRunner:
        """What makes the steps."""
        return self.public._run.runner

    @property
    def plan(self) -> PreparedPlan:
        """The plan that is in force."""
        return self.public._run.plan

    @property
    def taken(self) -> Checkpoint:
        """The checkpoint, which this run has taken."""
        return self.public._run.checkpoint

    @property
    def events(self) -> EventLog:
        """What happened so far."""
        return self.public._run.events

    @property
    def results(self) -> deque[StepResult]:
        """What the steps have told."""
        return self.public._run.results

    @property
    def next_batch(self) -> int:
        """The id of the next batch."""
        return self.public._run.next_batch

    @property
    def answer(self) -> pa.Table:
        """The results of all batches so far."""
        return pa.concat_tables(self.answers)

    @property
    def active_rows(self) -> int:
        """How many rows the state holds."""
        return sum(report.active_rows for report in self.results[-1].reports)

    def _collector(self, answers: list[pa.Table]) -> Sink:
        return lambda results, _: answers.append(results.toArrow())
