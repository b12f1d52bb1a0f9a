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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import anabranch.errors as errors
from anabranch.errors import AnabranchError, CheckpointError
from anabranch.kernel.delta import INPUT
from anabranch.observe.events import EventLog
from anabranch.plan.explain import Measured
from anabranch.plan.logical import Output, all_of
from anabranch.plan.watermark import Thresholds
from anabranch.runtime.adaptation import Adaptation, CleanedUp
from anabranch.runtime.answers import Answers, evaluate
from anabranch.runtime.checkpoint import Checkpoint, Extra, Step, check_batch
from anabranch.runtime.diagnosis import failing_joined_row, full_disk_inside, is_of_the_data, unreadable_source
from anabranch.runtime.outcome import NO_BATCH, StepResult, StepSettings, add_totals, publish, unpublish
from anabranch.runtime.pack import joined_columns
from anabranch.runtime.plans import carry_over, clean_up_under
from anabranch.runtime.prepare import Plan
from anabranch.runtime.processors import Found, Processors, collect_reports
from anabranch.runtime.relist import list_anew
from anabranch.runtime.report import Report, combine, report_body
from anabranch.runtime.tasks import StepTask
from anabranch.runtime.times import StepTimes, Times
from anabranch.state.failpoints import failpoint
from anabranch.state.manifest import Manifest
from anabranch.state.spill import CleanUp
from anabranch.state.store import encode_document, read_document, write_file

# Rows per Arrow batch on the way to a processor. Spark's limit by bytes measures the batch at every row, which costs
# more than writing it; a smaller number of rows where they can be wide keeps a batch below Arrow's 2 GiB instead.
NARROW_ROWS = 65_536
WIDE_ROWS = 4_096
NO_BYTE_LIMIT = (1 << 31) - 1

# A batch is quiet if it brings less than this share of what batches bring on average.
QUIET = 0.25


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
        self._adaptation = Adaptation(
            plan.network, layout.processor, checkpoint.state, settings.memory, settings.policies, events
        )
        self._wanted: int | None = None  # up to which step somebody waits for clean-up of what was spilled
        self._reason = "the batch before was quiet"  # why what is cleaned up is
        self.failure: BaseException | None = None
        self._broken: BaseException | None = None  # by what, between two batches
        self._results = results
        self._steps = 0  # that this runner has made
        self._batches = 0  # of these, with a batch
        self.when_started: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._closed = False
        self._thread: int | None = None
        self._session_ready = False
        self._last = checkpoint.last_step()
        empty = Manifest.empty(layout.processor.ports, layout.processor.operators)
        self._manifests = [empty] * settings.processors
        self._retained: dict[int, list[Manifest]] = {}
        self._owners = [n for n, _ in plan.network.ports]
        self._processors = Processors(layout, self._plan, self._owners, settings.processors)
        self._seconds = 0.0
        self._received = [0] * self._sources
        self._produced = [0] * layout.processor.operators
        self._times = Times(plan.network, layout)
        self._now = StepTimes(Thresholds((), ()), (), ())
        self._cleaning: dict[int, CleanUp] = {}
        if self._last is not None:
            self._resume(self._last)

    def __call__(self, packed: DataFrame, batch_id: int) -> None:
        """Run one batch; what goes wrong is kept for `Run.exception`."""
        with self._lock:
            self._thread = threading.get_ident()
            if self._closed:
                raise ClosedError("other queries are to be answered from this batch on")
            if self._broken is not None:
                # What failed between two batches may have reached the sink, under the id of this one.
                raise self._broken
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
        """Whether there may be rows whose answer waits until nothing older can come, or until clean-up."""
        spilled = any(state.generations for manifest in self._manifests for state in manifest.operators)
        return self._layout.groupings > 0 or bool(self._settings.policies) or spilled

    @property
    def owes(self) -> bool:
        """Whether results are owed that spilling has postponed."""
        return self._owes(None)

    def _owes(self, spilled_by: int | None) -> bool:
        return self._last is not None and self._adaptation.owes(self._manifests, self._last.settled, spilled_by)

    @property
    def owing_groups(self) -> int:
        """How many partition groups owe results, all processors and operators together."""
        settled = self._last.settled if self._last else ()
        return sum(groups for groups, _ in self._adaptation.debts(self._manifests, settled))

    def end(self, packed: DataFrame) -> None:
        """Take the input for ended: deliver what is owed, and answer all rows that wait. `packed` has no rows.

        First it is put on record, so that after a crash the same rows are answered under the same id before anything
        else happens. A row that comes later and is older than what was answered is late.
        """
        with self._lock, self._explained(packed):
            self._go_on_with_announced(packed)
            last = self._last
            if last is None or self._checkpoint.has_planned(last.batch_id):
                return
            self._clean_up_all(packed)
            # What groups answer now may be rows of other groups, which are answered in the step after.
            while self._times.waiting(self._last):
                before = self._last.settled if self._last is not None else ()
                self._extra(packed, ending=True, clean_up=self._adaptation.everything_frozen(self._manifests))
                if self._last is not None and self._last.settled == before:
                    raise CheckpointError("the end of the input was taken for granted, but nothing was answered")
                self._clean_up_all(packed)

    @property
    def last_number(self) -> int:
        """The number of the last committed step; 0 before the first."""
        return self._last.number if self._last else 0

    def clean_up(self, packed: DataFrame, spilled_by: int) -> bool:
        """Deliver some of what is owed by groups that were spilled up to a step; False if nothing is.

        While batches come, they do it in passing; what is done here is what can be done between two of them. `packed`
        has no rows.
        """
        with self._lock, self._explained(packed):
            last = self._last
            self._wanted = spilled_by if self._owes(spilled_by) else None
            if self._wanted is not None and last is not None and not self._checkpoint.has_planned(last.batch_id):
                self._reason = "it was asked for"
                self._extra(packed, ending=False, clean_up=self._choose(back=True, spilled_by=spilled_by))
                self._wanted = spilled_by if self._owes(spilled_by) else None
            return self._wanted is not None

    def go_on(self, packed: DataFrame) -> None:
        """Make the step without a batch that was on record when the last run crashed, if there is one."""
        with self._lock, self._explained(packed):
            self._go_on_with_announced(packed)

    @contextmanager
    def _explained(self, packed: DataFrame) -> Iterator[None]:
        """Keep what goes wrong for `Run.exception`."""
        self._thread = threading.get_ident()
        try:
            if self._broken is not None:
                raise self._broken
            yield
        except BaseException as error:
            self.failure = self._broken = self._explain_failure(error, packed)
            raise self.failure from error
        finally:
            self._session_ready = False  # what comes next has a session of its own

    def _go_on_with_announced(self, packed: DataFrame) -> None:
        extra = self._checkpoint.announced(self._last)
        if extra is not None:
            self._reason = "that was under way when the run was stopped"
            now = self._checkpoint.plan(self._checkpoint.plan_number)
            clean_up = clean_up_under(extra.clean_up, self._checkpoint.plan(extra.plan), now)
            self._extra(packed, ending=extra.ending, clean_up=clean_up)

    def _clean_up_all(self, packed: DataFrame) -> None:
        """Deliver all that is owed. What was spilled stays where it is: no row is coming that could meet it."""
        self._reason = "the input has ended"
        while self.owes:
            self._extra(packed, ending=False, clean_up=self._choose(back=False))

    def _choose(self, *, back: bool, spilled_by: int | None = None) -> dict[int, CleanUp]:
        settled = self._last.settled if self._last else ()
        return self._adaptation.choose(self._manifests, settled, quiet=False, back=back, spilled_by=spilled_by)

    def _extra(self, packed: DataFrame, *, ending: bool, clean_up: dict[int, CleanUp]) -> None:
        """A step without a batch."""
        assert self._last is not None, "there is something to do only after a step"
        self._session_ready = False
        self._start(packed.sparkSession)
        self._checkpoint.check_epoch()
        extra = Extra(self._last.extra + 1, ending, clean_up, self._checkpoint.plan_number)
        self._checkpoint.announce(extra)
        failpoint("end.announced" if ending else "clean-up.announced")
        self._advance(packed, self._last.batch_id, extra)

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
        self._advance(packed, batch_id, None)

    def _advance(self, packed: DataFrame, batch_id: int, extra: Extra | None) -> None:
        """One step, with a batch of Spark's or without one."""
        number = self._last.number + 1 if self._last else 1
        started = time.perf_counter()
        if extra is not None:
            self._cleaning = extra.clean_up
        else:
            self._cleaning = self._last.clean_up if self._last else {}
        frontiers = self._adaptation.frontiers(self._manifests)
        self._now = self._times.of_step(self._last, frontiers, ending=extra is not None and extra.ending)
        directory = self._checkpoint.prepare_step(number)
        kind = _kind(extra)
        failpoint(f"{kind}.before_sink")
        found = self._deliver(packed, number, self._sink_id(batch_id, extra), directory)
        failpoint(f"{kind}.after_sink")
        self._commit(number, batch_id, found, directory, extra)
        self._seconds += time.perf_counter() - started

    def _sink_id(self, batch_id: int, extra: Extra | None) -> int:
        """Under which id the sink gets a batch: Spark's, unless there were steps without a batch before."""
        return batch_id + (extra.number if extra is not None else self._last.extra if self._last else 0)

    def _deliver(self, packed: DataFrame, number: int, batch_id: int, directory: Path) -> Found:
        """Run the processors and bring their results to the sinks."""
        folders = self._answers.folders(directory, batch_id)
        processed = self._yielded(packed, number, directory, folders)[-1]

        def complete(processed: DataFrame) -> list[Report]:
            if self._processors.expected - collect_reports(directory).keys():
                # Not what the sink was given: Spark leaves the processors out where its condition can never be true.
                evaluate(processed)
            found = collect_reports(directory)
            missing = sorted({processor for _, processor in self._processors.expected - found.keys()})
            if missing:
                told = f"processors {missing} left no report for step {number}; the step is not committed"
                raise CheckpointError(told)
            return [report for report, _ in combine((report, manifest) for _, report, manifest in found.values())]

        self._answers.deliver(processed, batch_id, folders, complete)
        return collect_reports(directory)

    def _yielded(
        self, packed: DataFrame, number: int, directory: Path, folders: tuple[Path | None, ...]
    ) -> list[DataFrame]:
        """What the processors yield in each round."""
        now = time.time()
        tasks = [
            StepTask(
                state=str(self._checkpoint.state),
                reports=str(directory),
                results=tuple(None if folder is None else str(folder) for folder in folders),
                step=number,
                processor=p,
                manifest=manifest.to_json(),
                late=self._now.limits.late,
                purge=self._now.limits.purge,
                settled=self._now.settled,
                since=self._now.since,
                clean_up=self._cleaning,
                now=now,
            )
            for p, manifest in enumerate(self._manifests)
        ]
        return self._processors.yielded(packed, tasks, self._answers.yielded)

    def _commit(self, number: int, batch_id: int, found: Found, directory: Path, extra: Extra | None) -> None:
        combined = combine((report, manifest) for _, report, manifest in found.values())
        reports, manifests = [report for report, _ in combined], [manifest for _, manifest in combined]
        output_rows = dict(self._answers.rows)
        tag, sink_id = self._checkpoint.tag, self._sink_id(batch_id, extra)
        if not self._steps:
            unpublish(self._settings, tag, sink_id)
        publish(reports, self._settings, tag, sink_id, directory)
        newest = self._last.newest if self._last else (None,) * self._sources
        seen = [
            max((t for t in (newest[i], *(r.newest[i] for r in reports)) if t is not None), default=None)
            for i in range(self._sources)
        ]
        settled = self._now.limits.settled
        since = self._times.since(seen, settled, self._adaptation.frontiers(manifests))
        adapted, changed = self._adaptation.adapt(number, manifests, since)
        for p in changed:
            reports[p].look_at(adapted[p])
        step = self._checkpoint.next_step(
            self._last,
            batch_id=batch_id,
            processors=self._settings.processors,
            placements=self._layout.placements,
            reports=_name_reports(number, found, {p: (reports[p], adapted[p]) for p in changed}, directory),
            newest=tuple(seen),
            totals=add_totals(self._last.totals if self._last else {}, reports, output_rows),
            plan=self._checkpoint.plan_number,
            settled=settled,
            extra=(self._last.extra if self._last else 0) + (extra is not None),
            clean_up=self._clean_up_next(reports, adapted, settled) if extra is None else {},
        )
        kind = _kind(extra)
        failpoint(f"{kind}.before_commit")
        self._checkpoint.commit(step)
        failpoint(f"{kind}.after_commit")
        before, self._manifests, self._last = self._manifests, adapted, step
        for report in reports:
            self._received = [a + b for a, b in zip(self._received, report.received, strict=True)]
            self._produced = [a + b for a, b in zip(self._produced, report.produced, strict=True)]
        self._steps += 1
        self._batches += extra is None
        self._adaptation.tell(self._manifests)
        rows = -1 if -1 in output_rows.values() else sum(output_rows.values())
        only = extra is not None and not extra.ending
        done = CleanedUp(self._cleaning, self._reason, rows if only else None)
        self._adaptation.tell_cleaned_up(done, reports, before)
        self._remember(number)
        told = NO_BATCH if extra is not None else batch_id
        labels = self._plan.aliases
        debts = tuple(self._adaptation.debts(self._manifests, settled))
        groups = tuple(self._adaptation.groups(manifest) for manifest in self._manifests)
        if self._results:
            self._results.append(self._results.pop().without_groups())
        self._results.append(
            StepResult(
                told, number, tuple(reports), output_rows, labels, step.newest, step.totals, debts=debts, groups=groups
            )
        )
        if extra is not None and extra.ending:
            shown = f"{rows:,} rows of the answer were waiting for it" if rows >= 0 else "all is answered"
            self._events.add("end", f"the input has ended: {shown}", results=rows)

    def _clean_up_next(
        self, reports: list[Report], manifests: list[Manifest], settled: Sequence[int | None]
    ) -> dict[int, CleanUp]:
        """What the next batch has to clean up in passing: if somebody waits for it, or if this one was quiet."""
        rows = sum(sum(report.received) for report in reports)
        usual = sum(self._received) / max(self._batches, 1)
        quiet = bool(self._batches) and rows < QUIET * usual
        asked = self._wanted is not None
        if not (asked or quiet) or not self._adaptation.owes(manifests, settled, self._wanted):
            return {}
        self._reason = "it was asked for" if asked else "the batch before was quiet"
        return self._adaptation.choose(manifests, settled, quiet=not asked, back=True, spilled_by=self._wanted)

    def _remember(self, number: int) -> None:
        self._retained[number] = self._manifests
        for old in sorted(self._retained)[:-2]:
            del self._retained[old]
        self._checkpoint.remove_unreferenced(self._retained)

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
        told = full_disk_inside(error) or unreadable_source(error)
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


def _kind(extra: Extra | None) -> str:
    """What a step is called at failpoints."""
    return "step" if extra is None else "end" if extra.ending else "clean-up"


def _name_reports(
    number: int, found: Found, adapted: Mapping[int, tuple[Report, Manifest]], directory: Path
) -> tuple[str, ...]:
    """The reports that a step consists of; those of processors whose state was adapted are written anew."""
    names = [name for name, report, _ in found.values() if report.processor not in adapted]
    for p, (report, manifest) in adapted.items():
        names.append(f"{number:010d}-{p:04d}-adapted.json")
        write_file(directory / names[-1], encode_document(report_body(report, manifest)))
    return tuple(sorted(names))
