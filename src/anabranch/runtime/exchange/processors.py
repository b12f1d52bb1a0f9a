"""All processors of a step, as Spark sees them: one task each per round, with an exchange before every round.

The engine runs them itself, to their end, before any sink sees an answer: whatever a user does with an answer (coalesce
it, read half of it, read it twice) cannot reach them. Before a step is committed the reports are checked: there is
one per round and processor, named by the task that Spark took for done, and as many rows have arrived in every round as
Spark has written into its exchange.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from anabranch.errors import InconsistentStepError
from anabranch.plan.routing import Routing, port_routings
from anabranch.processor.attempt import REPORT, run_processor
from anabranch.processor.tasks import ProcessorPlan, StepTask
from anabranch.runtime.compile.layout import Layout
from anabranch.runtime.exchange.crossing import Crossing
from anabranch.runtime.exchange.long_rows import limit_batches, must_limit
from anabranch.runtime.spark.internals import empty_frame, exchanged_rows, map_in_arrow
from anabranch.runtime.spark.worker import settle_worker
from anabranch.state.groups import GroupSet
from anabranch.state.manifest import Manifest
from anabranch.state.report import Report, parse_report
from anabranch.state.share import copied_by_port, groups_by_port
from anabranch.state.store import read_document

# By round and processor: the name of a report, and what it says.
Reports = dict[tuple[int, int], tuple[str, Report, Manifest]]


@dataclass(frozen=True, slots=True)
class Reading:
    """What the reports of a step say together, and what it has taken to read them: bytes, and seconds of CPU time.

    `exchanged` are the rows that came through the exchange before each round.
    """

    bytes: int = 0
    seconds: float = 0.0
    exchanged: tuple[int, ...] = ()


NAMES = T.StructType([T.StructField(REPORT, T.StringType())])


class Processors:
    """The processors of a run."""

    def __init__(self, layout: Layout, plan: ProcessorPlan, crossing: Crossing) -> None:
        """All processors have the same plan. Rows come to them by its `crossing`."""
        self._layout = layout
        self._crossing = crossing
        self._columns = [list(map(F.col, crossing.columns(nth))) for nth in range(len(plan.rounds))]
        self._plan = plan
        self._routings: Sequence[Routing] = ()
        self._owned: list[tuple[GroupSet, ...]] = []
        self._copied: list[tuple[GroupSet, ...]] = []
        self._told: tuple[SparkSession, bool] | None = None
        self.reading = Reading()
        schemas = (exchange.yielded for exchange in layout.exchanges)
        self._limited = must_limit(T.StructType([T.StructField(slot.name, slot.type) for slot in layout.slots])) or any(
            map(must_limit, schemas)
        )

    def route(self, routings: Sequence[Routing], processors: int) -> None:
        """From now on rows go where these routings, one per operator, send them."""
        if routings != self._routings or processors != len(self._owned):
            self._routings = routings
            owners = self._plan.owners
            self._crossing.route(port_routings(routings, owners), processors)
            self._owned = [groups_by_port(routings, owners, p) for p in range(processors)]
            self._copied = [copied_by_port(routings, owners, p) for p in range(processors)]

    def owned(self, processor: int) -> tuple[GroupSet, ...]:
        """The groups whose rows a processor can get, per port."""
        return self._owned[processor]

    def copied(self, processor: int) -> tuple[GroupSet, ...]:
        """The groups of which a processor gets copies of rows, per port; empty if nothing is diffused."""
        return self._copied[processor]

    def run(self, packed: DataFrame, tasks: list[StepTask]) -> Reports:
        """Run the task of each processor, wait for all of them, and check that no report and no row is missing."""
        self._limit_batches(packed.sparkSession)
        *sent, last = self._frames(packed, tasks)
        names = [str(row[REPORT]) for row in last.collect()]
        written = exchanged_rows(last, len(self._plan.rounds))
        if written is None and (tasks[0].trial > 1 or packed.count()):
            raise InconsistentStepError(
                "the exchanges between Spark and the processors are not to be found in Spark's plan, so nobody can say "
                "how many rows were sent. Something replaces them, such as an extension of the session; leave it out"
            )
        if written is None:
            # Spark knows that there are no rows, and has left exchanges and processors out.
            return self.run(empty_frame(packed.sparkSession, packed.schema), _again(tasks))
        begun, directory = time.thread_time(), Path(tasks[0].reports)
        reports = _read_reports(directory, names)
        size = sum((directory / name).stat().st_size for name, _, _ in reports.values())
        seconds = time.thread_time() - begun
        if not self._limited and any(report.long_rows for _, report, _ in reports.values()):
            self._limited = True
            return self.run(packed, _again(tasks))
        _check_present(reports, len(self._plan.rounds), tasks)
        exchanged = [0] * len(written)
        for (nth, _), (_, report, _) in reports.items():
            exchanged[nth] += report.arrived
        self.reading = Reading(size, seconds, tuple(exchanged))
        for number, (rows, arrived) in enumerate(zip(written, exchanged, strict=True)):
            # A stage that was computed again has counted its rows again; then they are counted by themselves.
            if arrived != rows and arrived != self._count(number, [packed, *sent][number]):
                raise InconsistentStepError(
                    f"{arrived:,} rows have arrived at the processors in round {number} of step {tasks[0].step}, but "
                    f"{rows:,} were sent to them. Nothing of the step is committed; start the run again"
                )
        return reports

    def yielded(self, packed: DataFrame, tasks: list[StepTask]) -> list[DataFrame]:
        """The rows that the processors yield into each exchange when each runs its task."""
        return self._frames(packed, tasks)[:-1]

    def _frames(self, packed: DataFrame, tasks: list[StepTask]) -> list[DataFrame]:
        frames: list[DataFrame] = []
        for nth, schema in enumerate([*(exchange.yielded for exchange in self._layout.exchanges), NAMES]):
            routed = self._crossing.sent(nth, limited=self._limited)(frames[-1] if nth else packed)
            frames.append(map_in_arrow(routed, _task_function(self._plan, tasks, nth), schema, self._columns[nth]))
        return frames

    def _count(self, number: int, rows: DataFrame) -> int:
        """The number of rows that go into the exchange before a round, made of packed rows or what is yielded."""
        return self._crossing.counted(number, limited=self._limited)(rows).count()

    def _limit_batches(self, session: SparkSession) -> None:
        """Tell a session how large batches may be, unless it knows."""
        if self._told is None or self._told[0] is not session or self._told[1] != self._limited:
            limit_batches(session, narrow=self._layout.narrow, limited=self._limited)
            self._told = session, self._limited


def _again(tasks: list[StepTask]) -> list[StepTask]:
    return [replace(task, trial=task.trial + 1) for task in tasks]


def _read_reports(directory: Path, names: Iterable[str]) -> Reports:
    """The reports of these names, and of the earlier rounds that they go on from."""
    reports: Reports = {}
    for name in names:
        body = read_document(directory / name)
        earlier = [(other, read_document(directory / other)) for other in body["earlier"]]
        for each, content in [*earlier, (name, body)]:
            report, manifest = parse_report(content)
            if (report.round, report.processor) in reports:
                raise InconsistentStepError(f"{directory / each}: processor {report.processor} has reported twice")
            reports[report.round, report.processor] = each, report, manifest
    return reports


def _check_present(reports: Reports, rounds: int, tasks: list[StepTask]) -> None:
    missing = sorted({p for nth in range(rounds) for p in range(len(tasks)) if (nth, p) not in reports})
    if missing:
        raise InconsistentStepError(
            f"processors {missing} left no report for step {tasks[0].step}. Nothing of the step is committed; start "
            "the run again"
        )


def _task_function(
    plan: ProcessorPlan, tasks: list[StepTask], number: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def process(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "a processor runs inside a Spark task"
        settle_worker()
        processor = context.partitionId()
        with suppress(OSError):
            # What `top` and `ps` show, where there is a /proc: which processor a worker is at the moment.
            Path("/proc/self/comm").write_text(f"processor {processor}")
        return run_processor(plan, tasks[processor], number, batches)

    return process
