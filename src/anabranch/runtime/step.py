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
from pyspark.sql import DataFrame, SparkSession

import anabranch.errors as errors
from anabranch.errors import AnabranchError, CheckpointError
from anabranch.kernel.delta import INPUT
from anabranch.kernel.operator import Settled
from anabranch.observe.events import EventLog
from anabranch.observe.numbers import format_bytes
from anabranch.plan.explain import Measured
from anabranch.plan.logical import Output, all_of
from anabranch.plan.watermark import Thresholds, below, ended, is_answered, thresholds
from anabranch.runtime.answers import Answers, evaluate
from anabranch.runtime.checkpoint import Checkpoint, Step, check_batch
from anabranch.runtime.diagnosis import failing_joined_row, is_of_the_data, unreadable_source
from anabranch.runtime.failpoints import failpoint
from anabranch.runtime.pack import joined_columns, pack_between, processor_of
from anabranch.runtime.plans import carry_over
from anabranch.runtime.prepare import Plan
from anabranch.runtime.processor import ProcessorPlan, StepTask, run_processor, settle_worker
from anabranch.runtime.relist import list_anew
from anabranch.runtime.report import Report, combine, parse_report
from anabranch.state.manifest import Manifest
from anabranch.state.store import read_document, write_file

# Rows per Arrow batch on the way to a processor. Spark's limit by bytes measures the batch at every row, which costs
# more than writing it; a smaller number of rows where they can be wide keeps a batch below Arrow's 2 GiB instead.
NARROW_ROWS = 65_536
WIDE_ROWS = 4_096
NO_BYTE_LIMIT = (1 << 31) - 1

# By round and processor: the name of a report, and what it says.
Found = dict[tuple[int, int], tuple[str, Report, Manifest]]
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
    """A committed batch as told to the user; `output_rows` are by query."""

    batch_id: int
    step: int
    reports: tuple[Report, ...]
    output_rows: dict[str, int]
    labels: tuple[str, ...]
    newest: tuple[int | None, ...]
    totals: dict[str, Any] = field(default_factory=dict)


class ClosedError(Exception):
    """A batch came to a runner that takes none any more."""


class StepRunner:
    """The `foreachBatch` function of a run: state in the driver, one call per batch."""

    def __init__(
        self,
        plan: Plan,
        settings: StepSettings,
        checkpoint: Checkpoint,
        answers: Answers,
        events: EventLog,
        results: deque[StepResult],
    ) -> None:
        """Continue from the checkpoint's last step, which must have been taken by this driver.

        What is done is told in `events` and `results`.
        """
        layout = plan.layout
        self._layout = layout
        self._settings = settings
        self._checkpoint = checkpoint
        self._answers = answers
        self._plan = answers.plan
        self._events = events
        self._sources = len(layout.inputs)
        self._arrow_rows = NARROW_ROWS if layout.narrow else WIDE_ROWS
        self._over_memory: set[int] = set()
        self.failure: BaseException | None = None
        self._results = results
        self._steps = 0  # that this runner has made
        self.when_started: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._closed = False
        self._thread: int | None = None
        self._session_ready = False
        self._last = checkpoint.last_step()
        self._manifests = [Manifest.empty(layout.processor.ports)] * settings.processors
        self._retained: dict[int, list[Manifest]] = {}
        self._owners = [n for n, _ in plan.network.ports]
        self._routes = [
            processor_of({tag: layout.placements[self._owners[a.port]] for tag, a in entry.arrivals.items()})
            for entry in layout.processor.rounds
        ]
        self._seconds = 0.0
        self._received = [0] * self._sources
        self._produced = [0] * layout.processor.operators
        self._limits = Thresholds((), ())
        self._settled: tuple[Settled, ...] = ()
        if self._last is not None:
            self._resume(self._last)

    def __call__(self, packed: DataFrame, batch_id: int) -> None:
        """Run one batch; what goes wrong is kept for `Run.exception`."""
        with self._lock:
            self._thread = threading.get_ident()
            if self._closed:
                raise ClosedError("other queries are to be answered from this batch on")
            try:
                self._start(packed.sparkSession)
                self._run(packed, batch_id)
            except BaseException as error:
                self.failure = self._explain_failure(error, packed)
                raise

    @property
    def is_mine(self) -> bool:
        """Whether the thread that asks is the one that makes a step right now."""
        return self._lock.locked() and self._thread == threading.get_ident()

    def close(self) -> None:
        """Take no batch any more. Waits for the step that is being made."""
        with self._lock:
            self._closed = True

    def measured(self) -> Measured | None:
        """What this run has done so far, operator by operator; None before its first step."""
        if not self._steps:
            return None
        spines = zip(*(manifest.spines for manifest in self._manifests), strict=True)
        state = tuple((sum(s.rows for s in port), sum(s.bytes for s in port)) for port in spines)
        return Measured(self._seconds, tuple(self._received), tuple(self._produced), state)

    @property
    def answers_at_the_end(self) -> bool:
        """Whether there may be rows whose answer waits until nothing older can come."""
        return self._layout.groupings > 0

    def end(self, packed: DataFrame) -> None:
        """Take the input for ended: answer all rows that wait. `packed` has no rows.

        First it is put on record, so that after a crash the same rows are answered under the same id before anything
        else happens. A row that comes later and is older than what was answered is late.
        """
        with self._lock:
            try:
                # What groups answer now may be rows of other groups, which are answered in the step after.
                while self._waiting():
                    before = self._last.settled if self._last is not None else ()
                    self._session_ready = False
                    self._start(packed.sparkSession)
                    self._end(packed)
                    if self._last is not None and self._last.settled == before:
                        raise CheckpointError("the end of the input was taken for granted, but nothing was answered")
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
        unanswered = not all(map(is_answered, last.settled, self._ends(last)))
        return unanswered and not self._checkpoint.has_planned(last.batch_id)

    def _ends(self, last: Step) -> list[int | None]:
        """Per grouping, the time up to which there are rows; None if there are none."""
        ends: list[int | None] = [None] * self._layout.groupings
        for port in self._layout.ports:
            if port.grouping is not None:
                inside = below(port.inside, self._layout.fed)
                pairs = zip(self._layout.inputs, last.newest, strict=True)
                seen = [t for entry, t in pairs if entry.leaf in inside and entry.time is not None and t is not None]
                ends[port.grouping] = max(seen) + 1 if seen else None
        return ends

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
        self._commit(number, batch_id, found, directory, ending)
        self._seconds += time.perf_counter() - started

    def _sink_id(self, batch_id: int, ending: bool) -> int:
        """Under which id the sink gets a batch: Spark's, unless the input was taken for ended before."""
        return batch_id + (self._last.endings if self._last else 0) + ending

    def _settle(self, ending: bool) -> None:
        """What is late, dead and settled in the step that begins."""
        last = self._last
        newest = last.newest if last else (None,) * self._sources
        since = last.settled if last else (None,) * self._layout.groupings
        self._limits = thresholds(self._layout.sources, self._layout.ports, newest, since, self._layout.fed)
        if ending and last is not None:
            ends = ended(self._layout.ports, self._layout.fed, self._ends(last), since)
            self._limits = replace(self._limits, settled=ends)
        pairs = zip(since, self._limits.settled, strict=True)
        self._settled = tuple(Settled(before, now) for before, now in pairs)

    def _deliver(self, packed: DataFrame, number: int, batch_id: int, directory: Path) -> Found:
        """Run the processors and bring their results to the sinks."""
        folders = self._answers.folders(directory, batch_id)
        processed = self._yielded(packed, number, directory, folders)[-1]

        def complete(processed: DataFrame) -> list[Report]:
            if self._expected() - self._collect_reports(directory).keys():
                # Not what the sink was given: Spark leaves the processors out where its condition can never be true.
                evaluate(processed)
            found = self._collect_reports(directory)
            missing = sorted({processor for _, processor in self._expected() - found.keys()})
            if missing:
                told = f"processors {missing} left no report for step {number}; the step is not committed"
                raise CheckpointError(told)
            return [report for report, _ in combine((report, manifest) for _, report, manifest in found.values())]

        self._answers.deliver(processed, batch_id, folders, complete)
        return self._collect_reports(directory)

    def _yielded(
        self, packed: DataFrame, number: int, directory: Path, folders: tuple[Path | None, ...]
    ) -> list[DataFrame]:
        """What the processors yield in each round."""
        tasks = [
            StepTask(
                state=str(self._checkpoint.state),
                reports=str(directory),
                results=tuple(None if folder is None else str(folder) for folder in folders),
                step=number,
                processor=p,
                manifest=manifest.to_json(),
                late=self._limits.late,
                purge=self._limits.purge,
                settled=self._settled,
            )
            for p, manifest in enumerate(self._manifests)
        ]
        schemas = [*(exchange.yielded for exchange in self._layout.exchanges), self._answers.yielded]
        yielded: list[DataFrame] = []
        for nth, schema in enumerate(schemas):
            rows = pack_between(self._layout.exchanges[nth - 1], yielded[-1]) if yielded else packed
            routed = rows.repartitionById(self._settings.processors, self._routes[nth])
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
        output_rows = dict(self._answers.rows)
        self._publish(reports, self._sink_id(batch_id, ending), directory)
        newest = self._last.newest if self._last else (None,) * self._sources
        seen = [
            max((t for t in (newest[i], *(r.newest[i] for r in reports)) if t is not None), default=None)
            for i in range(self._sources)
        ]
        step = self._checkpoint.next_step(
            self._last,
            batch_id=batch_id,
            processors=self._settings.processors,
            placements=self._layout.placements,
            reports=tuple(sorted(name for name, _, _ in found.values())),
            newest=tuple(seen),
            totals=_add_totals(self._last.totals if self._last else {}, reports, output_rows),
            plan=self._checkpoint.plan_number,
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
        self._steps += 1
        self._remember(number)
        self._warn_over_memory(reports)
        told = AT_THE_END if ending else batch_id
        labels = self._plan.aliases
        self._results.append(StepResult(told, number, tuple(reports), output_rows, labels, step.newest, step.totals))
        if ending:
            rows = -1 if -1 in output_rows.values() else sum(output_rows.values())
            shown = f"{rows:,} rows of the answer were waiting for it" if rows >= 0 else "all is answered"
            self._events.add("end", f"the input has ended: {shown}", results=rows)

    def _remember(self, number: int) -> None:
        self._retained[number] = self._manifests
        for old in sorted(self._retained)[:-2]:
            del self._retained[old]
        self._checkpoint.remove_unreferenced(self._retained)

    def _publish(self, reports: list[Report], batch_id: int, directory: Path) -> None:
        """Put rejected and late rows where the user wants them, under names that depend on the batch only."""
        tag = self._checkpoint.tag
        if not self._steps:
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
        checkpoint = self._checkpoint
        manifests = [manifest for _, manifest in checkpoint.reports_of(last)]
        self._retained[last.number] = manifests
        for number in checkpoint.steps()[-2:-1]:
            self._retained[number] = [m for _, m in checkpoint.reports_of(checkpoint.read_step(number))]
        self._last, self._manifests = last, manifests
        if last.plan != checkpoint.plan_number:
            known, now = checkpoint.plan(last.plan), checkpoint.plan(checkpoint.plan_number)
            self._last, self._manifests = carry_over(last, manifests, known, now, self._layout.placements)
        processors, placements = self._settings.processors, self._layout.placements
        if (self._last.processors, self._last.placements) != (processors, placements):
            listed = list_anew(checkpoint, self._last, self._manifests, processors, placements, self._owners)
            self._last, self._manifests = listed
            self._retained[self._last.number] = self._manifests
            same = "the same, placed otherwise" if last.processors == processors else str(processors)
            self._events.add("rescale", f"state of {last.processors} processors is now listed on {same}")
        checkpoint.remove_unreferenced(self._retained)

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
            told = self._explain_joined_row(error, packed, number, directory)
        return told or error

    def _explain_joined_row(
        self, error: BaseException, packed: DataFrame, number: int, directory: Path
    ) -> AnabranchError | None:
        elsewhere = (directory / "again",) * len(self._layout.outlets)
        yielded = self._yielded(packed, number, directory, elsewhere)
        for exchange, rows in zip(self._layout.exchanges, yielded, strict=False):
            for lane in exchange.lanes:
                joined = rows.where(f"{INPUT} = {lane.tag}").selectExpr(*joined_columns(lane))
                computed = [Output(f"{n}", text) for n, (_, text) in enumerate(lane.computed, start=1)]
                told = failing_joined_row(all_of(lane.conditions), computed, joined, error)
                if told is not None:
                    return told
        return self._answers.failing_row(error)


def _task_function(
    plan: ProcessorPlan, tasks: list[StepTask], number: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def process(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "a processor runs inside a Spark task"
        settle_worker()
        return run_processor(plan, tasks[context.partitionId()], number, batches)

    return process


def _add_totals(totals: dict[str, Any], reports: list[Report], output_rows: dict[str, int]) -> dict[str, Any]:
    """Totals after a step. Rows of an answer are None from the first batch on in which nobody counted them."""
    results = dict(totals.get("results", {}))
    for name, rows in output_rows.items():
        before = results.get(name, 0)
        results[name] = None if before is None or rows < 0 else before + rows
    added: dict[str, Any] = {
        "combinations": totals.get("combinations", 0) + sum(sum(report.results) for report in reports),
        "results": results,
        "late_joined": totals.get("late_joined", 0) + sum(report.late_joined for report in reports),
    }
    for name in ("received", "late", "rejected"):
        per_input = [sum(counts) for counts in zip(*(getattr(report, name) for report in reports), strict=True)]
        before = totals.get(name, [0] * len(per_input))
        added[name] = [a + b for a, b in zip(before, per_input, strict=True)]
    return added


__all__ = ["StepResult", "StepRunner", "StepSettings"]
