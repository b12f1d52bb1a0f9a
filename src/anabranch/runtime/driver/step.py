"""One step: what the driver does with one micro-batch.

Order: processors write runs and reports -> the sink writes under the batch id -> rejected and late rows are
published -> the step is committed -> Spark commits the batch. A crash anywhere before the commit leaves the
previous step in force and the batch is computed again; one after it makes Spark repeat a batch that is skipped here.

All processors are done, and what they report adds up, before any sink is given an answer.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from anabranch.checkpoint.carry_over import under
from anabranch.checkpoint.directory import Checkpoint, check_batch
from anabranch.checkpoint.in_force import Standing
from anabranch.checkpoint.step import Asked, Extra, Step
from anabranch.errors import CheckpointError, ConfigError
from anabranch.manager.adaptation import ASKED, Adaptation
from anabranch.manager.budgets import Memory
from anabranch.manager.clean_up import CleanedUp, Cleaning
from anabranch.manager.operators import known_operators
from anabranch.observe.events import EventKind, EventLog
from anabranch.plan.explain import Measured
from anabranch.plan.placement import Placement
from anabranch.plan.watermark import Thresholds
from anabranch.processor.tasks import StepTask
from anabranch.runtime.compile.prepared import Plan
from anabranch.runtime.driver.counters import Tally
from anabranch.runtime.driver.failure import explain_failure
from anabranch.runtime.driver.gate import CancelledError, Gate, StoppedError
from anabranch.runtime.driver.manual_changes import ByHand
from anabranch.runtime.driver.step_result import (
    NO_BATCH,
    StepResult,
    StepSettings,
    Todo,
    add_totals,
    latest,
    name_reports,
    publish,
    unpublish,
)
from anabranch.runtime.driver.times import StepTimes, Times
from anabranch.runtime.exchange.processors import Processors, Reports
from anabranch.runtime.sinks.answers import Answers
from anabranch.runtime.spark.batch_session import prepare_session
from anabranch.runtime.spark.query_settings import session_like
from anabranch.state.failpoints import failpoint
from anabranch.state.manifest import Manifest
from anabranch.state.report import combine
from anabranch.state.spill import CleanUp


class StepRunner:
    """The `foreachBatch` function of a run: state in the driver, one call per batch."""

    def __init__(
        self,
        plan: Plan,
        settings: StepSettings,
        memory: Memory,
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
        operators, groups = known_operators(plan.network, layout.processor, layout.families), layout.processor.groups
        self._cleaning = Cleaning(operators, groups, memory, events)
        owners = layout.processor.owners
        self._adaptation = Adaptation(operators, groups, owners, checkpoint.state, memory, settings.policies, events)
        self._wanted: int | None = None  # up to which step somebody waits for clean-up of what was spilled
        self.failure: BaseException | None = None
        self._broken: BaseException | None = None  # by what, between two batches
        self._results = results
        self._tally = Tally(self._sources, layout.processor.operators)
        self.when_started: list[Callable[[], None]] = []
        self.gate = Gate()
        self._session_ready = False
        self._sink_session: SparkSession | None = None
        empty = Manifest.empty(layout.processor.ports, layout.processor.operators)
        self._standing = Standing(checkpoint, Asked(settings.processors, layout.placements), empty)
        self._processors = Processors(layout, self._plan)
        self._times = Times(plan.network, layout)
        self._now = StepTimes(Thresholds((), ()), (), ())
        self._todo = Todo()
        self._standing.resume(self._adaptation.relocator, events)
        self.by_hand = ByHand(
            self._standing, self._adaptation, operators, memory, settings.whole, self._between_batches
        )

    def __call__(self, packed: DataFrame, batch_id: int) -> None:
        """Run one batch; what goes wrong is kept for `Run.exception`, unless it is that the run was stopped."""
        try:
            self._batch(packed, batch_id)
        except CancelledError as error:
            if self.gate.is_stopped_soon():
                raise StoppedError from None
            self.failure = error.cause
            raise error.cause from None

    def _batch(self, packed: DataFrame, batch_id: int) -> None:
        with self.gate.batch():
            if self._broken is not None:
                # What failed between two batches may have reached the sink, under the id of this one.
                raise self._broken
            try:
                self.started()
                self._start(packed.sparkSession)
                self._run(packed, batch_id)
            except BaseException as error:
                if self.gate.fails_by_cancellation(error):
                    raise CancelledError(error) from None
                self.failure = self._explain_failure(error, packed)
                raise

    @property
    def _last(self) -> Step | None:
        return self._standing.last

    @property
    def _manifests(self) -> tuple[Manifest, ...]:
        return self._standing.distribution.manifests

    def measured(self) -> Measured | None:
        """What this run has done so far, operator by operator; None before its first step."""
        return self._tally.measured(self._manifests)

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Where each operator is."""
        return self._standing.distribution.placements

    @property
    def processors(self) -> int:
        """How many processors there are."""
        return self._standing.distribution.processors

    @property
    def idle(self) -> float:
        """For how many seconds no step has been made."""
        return 0.0 if self.gate.is_busy else self._tally.idle

    @property
    def answers_at_the_end(self) -> bool:
        """Whether there may be rows whose answer waits until nothing older can come, or until clean-up."""
        last = self._last
        spilled = any(state.generations for manifest in self._manifests for state in manifest.operators)
        waits = self.holds_back or (last is not None and bool(last.hold))
        return self._layout.groupings > 0 or bool(self._settings.policies) or spilled or waits

    @property
    def owes(self) -> bool:
        """Whether results are owed that spilling has postponed."""
        return self._owes(None)

    def _owes(self, spilled_by: int | None) -> bool:
        return self._last is not None and self._cleaning.owes(self._manifests, self._last.settled, spilled_by)

    @property
    def owing_groups(self) -> int:
        """How many partition groups owe results, all processors and operators together."""
        settled = self._last.settled if self._last else ()
        return sum(use.owing_groups for use in self._cleaning.memory_uses(self._manifests, settled))

    def end(self, packed: DataFrame) -> None:
        """Take the input for ended: deliver what is owed, and answer all rows that wait. `packed` has no rows.

        First it is put on record, so that after a crash the same rows are answered under the same id before anything
        else happens. A row that comes later and is older than what was answered is late.
        """
        with self.gate.step(), self._explained(packed):
            self._go_on_with_announced(packed)
            last = self._last
            if last is None or self._checkpoint.has_planned(last.batch_id):
                return
            self._settle_all(packed)
            # What groups answer now may be rows of other groups, which are answered in the step after.
            while self._times.waiting(self._last):
                before = self._last.settled if self._last is not None else ()
                self._extra(packed, ending=True, clean_up=self._cleaning.everything_frozen(self._manifests))
                if self._last is not None and self._last.settled == before:
                    raise CheckpointError("the end of the input was taken for granted, but nothing was answered")
                self._settle_all(packed)

    @property
    def last_number(self) -> int:
        """The number of the last committed step; 0 before the first."""
        return self._last.number if self._last else 0

    def clean_up(self, packed: DataFrame, spilled_by: int) -> bool:
        """Deliver some of what is owed by groups that were spilled up to a step; False if nothing is.

        While batches come, they do it in passing; what is done here is what can be done between two of them. `packed`
        has no rows.
        """
        with self.gate.step(), self._explained(packed):
            last = self._last
            self._wanted = spilled_by if self._owes(spilled_by) else None
            if self._wanted is not None and last is not None and not self._checkpoint.has_planned(last.batch_id):
                chosen = self._choose(ASKED, back=True, spilled_by=spilled_by)
                self._extra(packed, ending=False, clean_up=chosen)
                self._wanted = spilled_by if self._owes(spilled_by) else None
            return self._wanted is not None

    def go_on(self, packed: DataFrame) -> None:
        """Make the step without a batch that was on record when the last run crashed, if there is one."""
        with self.gate.step(), self._explained(packed):
            self._go_on_with_announced(packed)

    @contextmanager
    def _between_batches(self) -> Iterator[None]:
        """While no step is made; refused if a batch has failed: it will be repeated, and must give the same rows."""
        with self.gate.step():
            if self.failure is not None or self.gate.closed:
                raise ConfigError(
                    "the run is about to end, so nothing can be changed; start it again"
                ) from self.failure
            yield

    @contextmanager
    def _explained(self, packed: DataFrame) -> Iterator[None]:
        """Keep what goes wrong for `Run.exception`."""
        try:
            if self._broken is not None:
                raise self._broken
            yield
        except BaseException as error:
            self.failure = self._broken = self._explain_failure(error, packed)
            if self.failure is error:
                raise
            raise self.failure from error
        finally:
            self._session_ready = False  # what comes next has a session of its own

    def _go_on_with_announced(self, packed: DataFrame) -> None:
        extra = self._checkpoint.announced(self._last)
        if extra is not None:
            now = self._checkpoint.plan(self._checkpoint.plan_number)
            clean_up = under(extra.clean_up, self._checkpoint.plan(extra.plan), now)
            self._extra(packed, ending=extra.ending, clean_up=clean_up)

    def _settle_all(self, packed: DataFrame) -> None:
        """Let all rows go on that were held back, and deliver all that is owed.

        What was spilled stays where it is: no row is coming that could meet it.
        """
        while self._rows_wait:
            self._extra(packed, ending=False, clean_up={})
        while self.owes:
            self._extra(packed, ending=False, clean_up=self._choose("the input has ended", back=False))

    @property
    def _rows_wait(self) -> bool:
        return any(state.held or state.overdue for manifest in self._manifests for state in manifest.operators)

    @property
    def holds_back(self) -> bool:
        """Whether rows wait, or groups are on their way."""
        return bool(self._standing.distribution.moving) or self._rows_wait

    def let_go_on(self, packed: DataFrame) -> bool:
        """If no batch is coming, let rows go on that were held back; whether any still wait. `packed` has no rows."""
        with self.gate.step(), self._explained(packed):
            last = self._last
            if self.holds_back and last is not None and not self._checkpoint.has_planned(last.batch_id):
                self._extra(packed, ending=False, clean_up={})
            return self._rows_wait

    def _choose(self, reason: str, *, back: bool, spilled_by: int | None = None) -> dict[int, CleanUp]:
        settled = self._last.settled if self._last else ()
        return self._cleaning.choose(self._manifests, settled, reason, back=back, spilled_by=spilled_by)

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
        with self.gate.step():
            self.started()

    def started(self) -> None:
        """Do, once, what had to wait for the first batch or the end of the run."""
        while self.when_started:
            self.when_started.pop()()

    def _start(self, session: SparkSession) -> None:
        """Settings of the streaming query's own session, made when its first batch arrives."""
        if self._session_ready:
            return
        if self._sink_session is None:
            # What a user's function sets in the session of its results does not change how processors are run.
            self._sink_session = session_like(session)
        prepare_session(session)
        self._session_ready = True

    def _run(self, packed: DataFrame, batch_id: int) -> None:
        if not check_batch(self._last, batch_id, self._checkpoint.path):
            self._events.add(EventKind.SKIP, f"batch {batch_id} was committed before; Spark repeats it after a restart")
            return
        self._checkpoint.check_epoch()
        self._advance(packed, batch_id, None)

    def _advance(self, packed: DataFrame, batch_id: int, extra: Extra | None) -> None:
        """One step, with a batch of Spark's or without one."""
        number = self._checkpoint.next_number
        started = time.perf_counter()
        self._todo = Todo.of(self._last, extra)
        behind = self._cleaning.behind(self._manifests)
        self._now = self._times.of_step(self._last, behind, ending=extra is not None and extra.ending)
        self._processors.place(self._standing.distribution.placements, self.processors)
        directory = self._checkpoint.prepare_step(number)
        kind = _kind(extra)
        failpoint(f"{kind}.before_sink")
        reports = self._deliver(packed, number, self._sink_id(batch_id, extra), directory)
        failpoint(f"{kind}.after_sink")
        self._commit(number, batch_id, reports, directory, extra, started)
        self._tally.took(time.perf_counter() - started)

    def _sink_id(self, batch_id: int, extra: Extra | None) -> int:
        """Under which id the sink gets a batch: Spark's, unless there were steps without a batch before."""
        return batch_id + (extra.number if extra is not None else self._last.extra if self._last else 0)

    def _deliver(self, packed: DataFrame, number: int, batch_id: int, directory: Path) -> Reports:
        """Run the processors, all of them to their end, and bring their results to the sinks."""
        folders = self._answers.folders(directory, batch_id)
        reports = self._processors.run(packed, self._tasks(number, directory, folders))
        failpoint("step.processed")
        self._checkpoint.check_epoch()  # before anybody sees what another run may have given already
        combined = combine((report, manifest) for _, report, manifest in reports.values())
        assert self._sink_session is not None, "a step has been started"
        self._answers.deliver([report for report, _ in combined], batch_id, folders, self._sink_session)
        return reports

    def _tasks(self, number: int, directory: Path, folders: tuple[Path | None, ...]) -> list[StepTask]:
        """What the step asks of each processor."""
        now = time.time()
        warm = self._adaptation.relocator.to_warm(self._standing.distribution)
        return [
            StepTask(
                state=str(self._checkpoint.state),
                reports=str(directory),
                results=tuple(None if folder is None else str(folder) for folder in folders),
                epoch=self._checkpoint.epoch,
                step=number,
                processor=p,
                owned=self._processors.owned(p),
                manifest=manifest.to_json(),
                late=self._now.limits.late,
                purge=self._now.limits.purge,
                settled=self._now.settled,
                since=self._now.since,
                clean_up=self._todo.clean_up,
                hold=self._todo.hold,
                now=now,
                warm=warm.get(p, ()),
            )
            for p, manifest in enumerate(self._manifests)
        ]

    def _commit(
        self, number: int, batch_id: int, named: Reports, directory: Path, extra: Extra | None, started: float
    ) -> None:
        combined = combine((report, manifest) for _, report, manifest in named.values())
        reports, manifests = [report for report, _ in combined], [manifest for _, manifest in combined]
        output_rows = dict(self._answers.rows)
        tag, sink_id = self._checkpoint.tag, self._sink_id(batch_id, extra)
        if not self._tally.steps:
            unpublish(self._settings, tag, sink_id)
        publish(reports, self._settings, tag, sink_id, directory)
        newest = self._last.newest if self._last else (None,) * self._sources
        seen = latest([newest, *(report.newest for report in reports)])
        settled = self._now.limits.settled
        since = self._times.since(seen, settled, self._cleaning.behind(manifests))
        found_now = replace(self._standing.distribution, manifests=tuple(manifests))
        adapted = self._adaptation.adapt(number, found_now, since, reports, self._todo.clean_up)
        after = adapted.distribution
        for p in adapted.changed:
            reports[p].look_at(after.manifests[p])
        step = self._checkpoint.next_step(
            self._last,
            batch_id=batch_id,
            processors=after.processors,
            placements=after.placements,
            reports=name_reports(
                number, named, {p: (reports[p], after.manifests[p]) for p in adapted.changed}, directory
            ),
            newest=tuple(seen),
            totals=add_totals(self._last.totals if self._last else {}, reports, output_rows),
            plan=self._checkpoint.plan_number,
            settled=settled,
            extra=(self._last.extra if self._last else 0) + (extra is not None),
            clean_up=self._clean_up_next(
                after.manifests, settled, quiet=extra is None and self._tally.is_quiet(reports)
            ),
            hold=adapted.hold,
            moving=after.moving,
            asked=self._standing.asked,
        )
        kind = _kind(extra)
        failpoint(f"{kind}.before_commit")
        self._checkpoint.commit(step)
        failpoint(f"{kind}.after_commit")
        before = self._manifests
        self._standing.advance(step, after)
        self._tally.add(reports, has_batch=extra is None)
        self._adaptation.tell(adapted)
        rows = -1 if -1 in output_rows.values() else sum(output_rows.values())
        only = extra is not None and not extra.ending
        done = CleanedUp(self._todo.clean_up, rows if only else None)
        self._cleaning.tell_cleaned_up(done, reports, before)
        told = NO_BATCH if extra is not None else batch_id
        labels = self._plan.aliases
        memory = self._cleaning.memory_uses(self._manifests, settled)
        self._adaptation.tell_shortage(memory, adapted)
        groups = tuple(self._adaptation.groups(manifest) for manifest in self._manifests)
        if self._results:
            self._results.append(self._results.pop().without_groups())
        seconds, tells = time.perf_counter() - started, (step.newest, step.totals, memory, groups)
        self._results.append(StepResult(told, number, tuple(reports), output_rows, labels, *tells, seconds))
        if extra is not None and extra.ending:
            shown = f"{rows:,} rows of the answer were waiting for it" if rows >= 0 else "all is answered"
            self._events.add(EventKind.END, f"the input has ended: {shown}", results=rows)

    def _clean_up_next(
        self, manifests: Sequence[Manifest], settled: Sequence[int | None], *, quiet: bool
    ) -> dict[int, CleanUp]:
        """What the next batch has to clean up in passing: if somebody waits for it, or if this one was quiet, and
        groups of groupings in turn."""
        asked = self._wanted is not None
        chosen: dict[int, CleanUp] = {}
        if (asked or quiet) and self._cleaning.owes(manifests, settled, self._wanted):
            reason = ASKED if asked else "the batch before was quiet"
            wanted = self._wanted
            chosen = self._cleaning.choose(manifests, settled, reason, quiet=not asked, back=True, spilled_by=wanted)
        return self._cleaning.rotate(manifests, settled, chosen)

    def _explain_failure(self, error: BaseException, packed: DataFrame) -> BaseException:
        number = self._checkpoint.next_number
        directory = self._checkpoint.reports(number)

        def again() -> list[DataFrame]:
            elsewhere = (directory / "again",) * len(self._layout.outlets)
            return self._processors.yielded(packed, self._tasks(number, directory, elsewhere))

        return explain_failure(error, directory, self._layout, self._answers, again)


def _kind(extra: Extra | None) -> str:
    """What a step is called at failpoints."""
    return "step" if extra is None else "end" if extra.ending else "clean-up"
