"""All processors of a step, as Spark sees them: one task each per round, with an exchange before every round."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import types as T

from anabranch.plan.placement import Placement
from anabranch.runtime.layout import Layout
from anabranch.runtime.pack import pack_between, processor_of
from anabranch.runtime.processor import run_processor
from anabranch.runtime.report import Report, parse_report
from anabranch.runtime.tasks import ProcessorPlan, StepTask
from anabranch.runtime.worker import settle_worker
from anabranch.state.manifest import Manifest
from anabranch.state.store import read_document

# By round and processor: the name of a report, and what it says.
Found = dict[tuple[int, int], tuple[str, Report, Manifest]]


class Processors:
    """The processors of a run; `owners` are the operators that ports belong to."""

    def __init__(self, layout: Layout, plan: ProcessorPlan, owners: Sequence[int]) -> None:
        """All processors have the same plan."""
        self._layout = layout
        self._plan = plan
        self._owners = owners
        self._placements: Sequence[Placement] = ()
        self._routes: list[Column] = []

    def expected(self, count: int) -> set[tuple[int, int]]:
        """The rounds and processors that have to report, if there are so many processors."""
        return {(nth, p) for nth in range(len(self._plan.rounds)) for p in range(count)}

    def place(self, placements: Sequence[Placement]) -> None:
        """From now on operators are there."""
        if placements != self._placements:
            self._placements = placements
            self._routes = [
                processor_of({tag: placements[self._owners[a.port]] for tag, a in entry.arrivals.items()})
                for entry in self._layout.processor.rounds
            ]

    def yielded(self, packed: DataFrame, tasks: list[StepTask], last: T.StructType) -> list[DataFrame]:
        """What the processors yield in each round, if each is given its task; `last` is the schema of the last."""
        schemas = [*(exchange.yielded for exchange in self._layout.exchanges), last]
        yielded: list[DataFrame] = []
        for nth, schema in enumerate(schemas):
            rows = pack_between(self._layout.exchanges[nth - 1], yielded[-1]) if yielded else packed
            routed = rows.repartitionById(len(tasks), self._routes[nth])
            yielded.append(routed.mapInArrow(_task_function(self._plan, tasks, nth), schema))
        return yielded


def collect_reports(directory: Path) -> Found:
    """One complete report per round and processor; any will do, since all attempts compute the same."""
    found: Found = {}
    for path in sorted(directory.glob("[0-9]*.json")):
        report, manifest = parse_report(read_document(path))
        found.setdefault((report.round, report.processor), (path.name, report, manifest))
    return found


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
