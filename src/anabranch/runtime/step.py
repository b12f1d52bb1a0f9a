"""One step: what the driver does with one micro-batch.

Order: processors write runs and reports -> the sink writes under the batch id -> rejected and late rows are
published -> the step is committed -> Spark commits the batch. A crash anywhere before the commit leaves the
previous step in force and the batch is computed again; one after it makes Spark repeat a batch that is skipped here.

The results DataFrame may be evaluated in part, or several times, by a user's sink. Before the commit every processor
has a complete report: those that have none are run once more.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

import anabranch.errors as errors
from anabranch.errors import AnabranchError, CheckpointError
from anabranch.kernel.delta import INPUT
from anabranch.kernel.operator import Settled
from anabranch.observe.events import EventLog
from anabranch.observe.numbers import format_bytes
from anabranch.plan.explain import Measured
from anabranch.plan.logical import ContinuousQuery, Output, all_of, quote
from anabranch.plan.watermark import Thresholds, thresholds
from anabranch.runtime.carried import restore
from anabranch.runtime.checkpoint import Checkpoint, Step, check_batch
from anabranch.runtime.diagnosis import failing_joined_row, is_of_the_data, unreadable_source
from anabranch.runtime.failpoints import failpoint
from anabranch.runtime.layout import Layout
from anabranch.runtime.pack import joined_columns, pack_between, processor_of
from anabranch.runtime.processor import ProcessorPlan, StepTask, run_processor, settle_worker
from anabranch.runtime.relist import list_anew
from anabranch.runtime.report import Report, combine, parse_report
from anabranch.runtime.sinks import FileSink, Sink
from anabranch.state.groups import even_placement
from anabranch.state.manifest import Manifest
from anabranch.state.store import read_document, write_file

# Rows per Arrow batch on the way to a processor. Spark's limit by bytes measures the batch at every row, which costs
# more than writing it; a smaller number of rows where they can be wide keeps a batch below Arrow's 2 GiB instead.
NARROW_ROWS = 65_536
WIDE_ROWS = 4_096
NO_BYTE_LIMIT = (1 << 31) - 1

# By round and processor: the name of a report, and what it says.
Found = dict[tuple[int, int], tuple[str, Report, Manifest]]
KEPT_STEPS = 1_000
# Instead of a batch's id, for the step at the end of the input.
AT_THE_END = -1


@dataclass(frozen=True, slots=True)
class StepSettings:
    """What the engine was told that matters to a step."""

    processors: int
    groups: int
    memory: int | None
    quarantine: Path | None
    late_rows: Path | None


@dataclass(frozen=True, slots=True)
class StepResult:
    """A committed batch as told to the user."""

    batch_id: int
    step: int
    reports: tuple[Report, ...]
    output_rows: int
    newest: tuple[int | None, ...]
    totals: dict[str, Any] = field(default_factory=dict)


class StepRunner:
    """The `foreachBatch` function of a run: state in the driver, one call per batch."""

    def __init__(
        self,
        query: ContinuousQuery,
        layout: Layout,
        settings: StepSettings,
        checkpoint: Checkpoint,
        sink: Sink,
        events: EventLog,
        *,
        sink_reads_all: bool = False,
    ) -> None:
        """Continue from the checkpoint's last step, which must have been taken by this driver."""
        self._query = query
        self._layout = layout
        self._settings = settings
        self._checkpoint = checkpoint
        self._sink = sink
        self._events = events
        self._sources = len(layout.inputs)
        self._arrow_rows = NARROW_ROWS if layout.narrow else WIDE_ROWS
        self._plan = layout.processor
        if isinstance(sink, FileSink) and layout.outputs is None:
            self._plan = replace(layout.processor, parquet=sink.parquet_compression(layout.result_schema))
        self._kept_rows: int | None = None
        self._over_memory: set[int] = set()
        self._sink_reads_all = sink_reads_all
        self.failure: BaseException | None = None
        self.results: deque[StepResult] = deque(maxlen=KEPT_STEPS)
        self.when_started: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._session_ready = False
        self._last = checkpoint.last_step()
        self._manifests = [Manifest.empty(layout.processor.parts)] * settings.processors
        self._retained: dict[int, list[Manifest]] = {}
        self._placement = even_placement(settings.groups, settings.processors)
        self._route = processor_of(self._placement)
        self._seconds = 0.0
        self._received = [0] * self._sources
        self._produced = [0] * layout.processor.operators
        self._limits = Thresholds((), ())
        self._settled = Settled()
        if self._last is not None:
            self._resume(self._last)

    def __call__(self, packed: DataFrame, batch_id: int) -> None:
        """Run one batch; what goes wrong is kept for `Run.exception`."""
        with self._lock:
            try:
                self._start(packed.sparkSession)
                self._run(packed, batch_id)
            except BaseException as error:
                self.failure = self._explain_failure(error, packed)
                raise

    def measured(self) -> Measured | None:
        """What this run has done so far, operator by operator; None before its first step."""
        if not self.results:
            return None
        spines = zip(*(manifest.spines for manifest in self._manifests), strict=True)
        state = tuple((sum(s.rows for s in part), sum(s.bytes for s in part)) for part in spines)
        return Measured(self._seconds, tuple(self._received), tuple(self._produced), state)

    @property
    def answers_at_the_end(self) -> bool:
        """Whether there may be rows whose answer waits until nothing older can come."""
        return self._query.grouping is not None

    def end(self, packed: DataFrame) -> None:
        """Take the input for ended: answer all rows that wait. `packed` has no rows.

        First it is put on record, so that after a crash the same rows are answered under the same id before anything
        else happens. A row that comes later and is older than what was answered is late.
        """
        with self._lock:
            if not self._waiting():
                return
            try:
                self._session_ready = False
                self._start(packed.sparkSession)
                self._end(packed)
            except BaseException as error:
                self.failure = self._explain_failure(error, packed)
                raise self.failure from error
            finally:
                self._session_ready = False  # what comes next has a session of its own

    def _waiting(self) -> bool:
        """Whether the end of the input makes a difference: all batches are done, and rows are not answered yet."""
        last = self._last
        if last is None or not self.answers_at_the_end:
            return False
        if self._checkpoint.must_end(last):
            return True
        seen = [time for time in last.newest if time is not None]
        unanswered = bool(seen) and (last.settled is None or last.settled <= max(seen))
        return unanswered and not self._checkpoint.has_planned(last.batch_id)

    def _end(self, packed: DataFrame) -> None:
        assert self._last is not None, "rows wait only after a step"
        self._checkpoint.check_epoch()
        self._checkpoint.announce_end(self._last)
        failpoint("end.announced")
        self._advance(packed, self._last.batch_id, ending=True)

    @property
    def must_end(self) -> bool:
        """Whether an end of the input was on record when the last run crashed, and is still to be dealt with."""
        return self._checkpoint.must_end(self._last)

    def wait_idle(self) -> None:
        """Wait for a step that outlived its Spark query: until it has ended the checkpoint is not free."""
        with self._lock:
            self.started()

    def started(self) -> None:
        """Do, once, what had to wait for the first batch or the end of the run."""
        while self.when_started:
            self.when_started.pop()()

    def _start(self, session: SparkSession) -> None:
        """Settings of the streaming query's own session, made when its first batch arrives."""
        if self._session_ready:
            return
        session.conf.set("spark.sql.adaptive.enabled", "false")
        session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(NO_BYTE_LIMIT))
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(self._arrow_rows))
        self._session_ready = True
        self.started()

    def _run(self, packed: DataFrame, batch_id: int) -> None:
        if not check_batch(self._last, batch_id, self._checkpoint.path):
            self._events.add("skip", f"batch {batch_id} was committed before; Spark repeats it after a restart")
            return
        self._checkpoint.check_epoch()
        self._advance(packed, batch_id, ending=False)

    def _advance(self, packed: DataFrame, batch_id: int, *, ending: bool) -> None:
        """One step, with a batch of Spark's or at the end of the input."""
        number = self._last.number + 1 if self._last else 1
        started = time.perf_counter()
        self._settle(ending)
        directory = self._checkpoint.prepare_step(number)
        kind = "end" if ending else "step"
        failpoint(f"{kind}.before_sink")
        found = self._deliver(packed, number, self._sink_id(batch_id, ending), directory)
        failpoint(f"{kind}.after_sink")
        missing = sorted({processor for _, processor in self._expected() - found.keys()})
        if missing:
            raise CheckpointError(f"processors {missing} left no report for step {number}; the step is not committed")
        self._commit(number, batch_id, found, directory, ending)
        self._seconds += time.perf_counter() - started

    def _sink_id(self, batch_id: int, ending: bool) -> int:
        """Under which id the sink gets a batch: Spark's, unless the input was taken for ended before."""
        return batch_id + (self._last.endings if self._last else 0) + ending

    def _settle(self, ending: bool) -> None:
        """What is late, dead and settled in the step that begins."""
        last = self._last
        newest = last.newest if last else (None,) * self._sources
        since = last.settled if last else None
        self._limits = thresholds(
            self._layout.times,
            self._layout.ports,
            newest,
            sources=self._layout.sources,
            settled=since,
        )
        if ending:
            seen = [time for time in newest if time is not None]
            self._limits = replace(self._limits, settled=max(seen) + 1 if seen else since)
        self._settled = Settled(since, self._limits.settled)

    def _deliver(self, packed: DataFrame, number: int, batch_id: int, directory: Path) -> Found:
        """Run the processors and bring their results to the sink, one way or the other."""
        if isinstance(self._sink, FileSink) and self._plan.parquet is not None:
            staging = self._sink.stage(batch_id)
            _evaluate(self._processed(packed, number, directory, staging))
            found = self._collect_reports(directory)
            written = [report.result_file for _, report, _ in found.values() if report.result_file is not None]
            files = [staging / name for name in written]
            files = files or self._sink.schema_alone(staging, self._layout.result_schema)
            self._sink.publish(staging, files, batch_id)
            return found
        processed = self._processed(packed, number, directory)
        results = finish(self._layout, self._query.residual, processed)
        kept = Observation() if self._query.residual and self._sink_reads_all else None
        if kept is not None:
            results = results.observe(kept, F.count(F.lit(1)).alias("rows"))
        self._sink(results, batch_id)
        self._kept_rows = None if kept is None else int(kept.get["rows"])
        found = self._collect_reports(directory)
        if self._expected() - found.keys():
            # Not `results`: Spark leaves the processors out altogether where the residual can never be true.
            _evaluate(processed)
            found = self._collect_reports(directory)
        return found

    def _processed(self, packed: DataFrame, number: int, directory: Path, staging: Path | None = None) -> DataFrame:
        """What the processors yield in the last round."""
        return self._yielded(packed, number, directory, staging)[-1]

    def _yielded(self, packed: DataFrame, number: int, directory: Path, staging: Path | None) -> list[DataFrame]:
        """What the processors yield in each round."""
        tasks = [
            StepTask(
                state=str(self._checkpoint.state),
                reports=str(directory),
                results=None if staging is None else str(staging),
                step=number,
                processor=p,
                manifest=manifest.to_json(),
                late=self._limits.late,
                purge=self._limits.purge,
                settled=self._settled,
            )
            for p, manifest in enumerate(self._manifests)
        ]
        schemas = [*(exchange.yielded for exchange in self._layout.exchanges), self._layout.result_schema]
        yielded: list[DataFrame] = []
        for nth, schema in enumerate(schemas):
            rows = pack_between(self._layout.exchanges[nth - 1], yielded[-1]) if yielded else packed
            routed = rows.repartitionById(self._settings.processors, self._route)
            yielded.append(routed.mapInArrow(_task_function(self._plan, tasks, nth), schema))
        return yielded

    def _expected(self) -> set[tuple[int, int]]:
        return {(nth, p) for nth in range(len(self._plan.rounds)) for p in range(self._settings.processors)}

    def _collect_reports(self, directory: Path) -> Found:
        """One complete report per round and processor; any will do, since all attempts compute the same."""
        found: Found = {}
        for path in sorted(directory.glob("[0-9]*.json")):
            report, manifest = parse_report(read_document(path))
            found.setdefault((report.round, report.processor), (path.name, report, manifest))
        return found

    def _commit(self, number: int, batch_id: int, found: Found, directory: Path, ending: bool) -> None:
        combined = combine((report, manifest) for _, report, manifest in found.values())
        reports = [report for report, _ in combined]
        output_rows = self._output_rows(reports)
        self._publish(reports, self._sink_id(batch_id, ending), directory)
        newest = self._last.newest if self._last else (None,) * self._sources
        seen = [
            max((t for t in (newest[i], *(r.newest[i] for r in reports)) if t is not None), default=None)
            for i in range(self._sources)
        ]
        step = self._checkpoint.next_step(
            self._last,
            batch_id=batch_id,
            placement=self._placement,
            reports=tuple(sorted(name for name, _, _ in found.values())),
            newest=tuple(seen),
            totals=_add_totals(self._last.totals if self._last else {}, reports, output_rows),
            settled=self._limits.settled,
            endings=(self._last.endings if self._last else 0) + ending,
        )
        kind = "end" if ending else "step"
        failpoint(f"{kind}.before_commit")
        self._checkpoint.commit(step)
        failpoint(f"{kind}.after_commit")
        self._last = step
        self._manifests = [manifest for _, manifest in combined]
        for report in reports:
            self._received = [a + b for a, b in zip(self._received, report.received, strict=True)]
            self._produced = [a + b for a, b in zip(self._produced, report.produced, strict=True)]
        self._remember(number)
        self._warn_over_memory(reports)
        told = AT_THE_END if ending else batch_id
        self.results.append(StepResult(told, number, tuple(reports), output_rows, step.newest, step.totals))
        if ending:
            shown = f"{output_rows:,} rows of the answer were waiting for it" if output_rows >= 0 else "all is answered"
            self._events.add("end", f"the input has ended: {shown}", results=output_rows)

    def _output_rows(self, reports: list[Report]) -> int:
        """Rows of the answer in this batch; -1, as in Spark, where a residual was applied and nobody counted."""
        if self._query.residual is None:
            return sum(report.results for report in reports)
        return -1 if self._kept_rows is None else self._kept_rows

    def _remember(self, number: int) -> None:
        self._retained[number] = self._manifests
        for old in sorted(self._retained)[:-2]:
            del self._retained[old]
        self._checkpoint.remove_unreferenced(self._retained)

    def _publish(self, reports: list[Report], batch_id: int, directory: Path) -> None:
        """Put rejected and late rows where the user wants them, under names that depend on the batch only."""
        tag = self._checkpoint.tag
        if not self.results:
            for aside in filter(None, (self._settings.quarantine, self._settings.late_rows)):
                for leftover in aside.glob(f"{tag}-{batch_id:010d}-*"):
                    leftover.unlink()
        for report in reports:
            for name, target in (
                (report.rejected_file, self._settings.quarantine),
                (report.late_file, self._settings.late_rows),
            ):
                if name is not None and target is not None:
                    target.mkdir(parents=True, exist_ok=True)
                    published = target / f"{tag}-{batch_id:010d}-{report.processor:04d}.jsonl"
                    write_file(published, (directory / name).read_bytes())

    def _warn_over_memory(self, reports: list[Report]) -> None:
        """Tell once that a processor went over its budget, not at every batch that it stays there."""
        budget = self._settings.memory
        over = {report.processor for report in reports if budget is not None and report.active_bytes > budget}
        for report in reports:
            if budget is not None and report.processor in over - self._over_memory:
                self._events.add(
                    "memory",
                    f"processor {report.processor} holds {format_bytes(report.active_bytes)} of active state, "
                    f"more than its budget of {format_bytes(budget)}",
                    processor=report.processor,
                    active_bytes=report.active_bytes,
                )
        self._over_memory = over

    def _resume(self, last: Step) -> None:
        manifests = [manifest for _, manifest in self._checkpoint.reports_of(last)]
        self._manifests = manifests
        self._retained[last.number] = manifests
        self._events.add("resume", f"continuing after step {last.number}, batch {last.batch_id}")
        if last.placement != self._placement:
            self._last, self._manifests = list_anew(self._checkpoint, last, manifests, self._placement)
            self._retained[self._last.number] = self._manifests
            self._events.add(
                "rescale", f"state of {last.processors} processors is now listed on {self._settings.processors}"
            )
        for number in self._checkpoint.steps()[-2:-1]:
            previous = self._checkpoint.read_step(number)
            self._retained.setdefault(number, [m for _, m in self._checkpoint.reports_of(previous)])
        self._checkpoint.remove_unreferenced(self._retained)

    def _explain_failure(self, error: BaseException, packed: DataFrame) -> BaseException:
        """The processor's own word on what went wrong, if it left one, or else what can be found out about it."""
        if isinstance(error, AnabranchError):
            return error
        number = self._last.number + 1 if self._last else 1
        directory = self._checkpoint.reports(number)
        for path in sorted(directory.glob("failed-*.json")):
            body = read_document(path)
            kind = getattr(errors, body["error"], AnabranchError)
            explained: AnabranchError = kind(body["message"])
            return explained
        told = unreadable_source(error)
        if told is None and is_of_the_data(error):
            told = self._explain_joined_row(error, self._yielded(packed, number, directory, None))
        return told or error

    def _explain_joined_row(self, error: BaseException, yielded: list[DataFrame]) -> AnabranchError | None:
        for exchange, rows in zip(self._layout.exchanges, yielded, strict=False):
            for part in exchange.parts:
                joined = rows.where(f"{INPUT} = {part.part}").selectExpr(*joined_columns(part))
                computed = [Output(f"{n}", text) for n, (_, text) in enumerate(part.computed, start=1)]
                told = failing_joined_row(all_of(part.conditions), computed, joined, error)
                if told is not None:
                    return told
        joined = restored(self._layout, yielded[-1])
        return failing_joined_row(self._query.residual, self._layout.outputs or (), joined, error)


def _task_function(
    plan: ProcessorPlan, tasks: list[StepTask], number: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def process(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "a processor runs inside a Spark task"
        settle_worker()
        return run_processor(plan, tasks[context.partitionId()], number, batches)

    return process


def _evaluate(results: DataFrame) -> None:
    """Run every processor to its end."""
    results.write.format("noop").mode("overwrite").save()


def _add_totals(totals: dict[str, Any], reports: list[Report], output_rows: int) -> dict[str, Any]:
    """Totals after a step. Rows of the answer are None from the first batch on in which nobody counted them."""
    before = totals.get("results", 0)
    added: dict[str, Any] = {
        "combinations": totals.get("combinations", 0) + sum(report.results for report in reports),
        "results": None if before is None or output_rows < 0 else before + output_rows,
    }
    for name in ("received", "late", "rejected"):
        per_input = [sum(counts) for counts in zip(*(getattr(report, name) for report in reports), strict=True)]
        before = totals.get(name, [0] * len(per_input))
        added[name] = [a + b for a, b in zip(before, per_input, strict=True)]
    return added


def finish(layout: Layout, residual: str | None, yielded: DataFrame) -> DataFrame:
    """The answer, from what processors yield: types restored, then residual predicate, then projection."""
    joined = restored(layout, yielded)
    kept = joined.where(residual) if residual else joined
    if layout.outputs is None:
        return kept
    return kept.selectExpr(*(f"{output.expression} AS {quote(output.name)}" for output in layout.outputs))


def restored(layout: Layout, yielded: DataFrame) -> DataFrame:
    """The joined rows with the columns' own types."""
    return yielded if layout.result_schema == layout.joined_schema else restore(yielded, layout.joined_schema)


__all__ = ["StepResult", "StepRunner", "StepSettings"]
