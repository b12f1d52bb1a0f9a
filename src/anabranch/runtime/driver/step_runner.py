"""The `foreachBatch` function of a run, and the steps that are made between two batches.

Batches and everything else pass one gate: one step at a time. What a batch is for is known to `step`; what is to be
done without one, and when, is decided by the manager (`ending`, `policies/clean_up`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import DataFrame

from anabranch.checkpoint.carry_over import under
from anabranch.checkpoint.directory import check_batch
from anabranch.checkpoint.step import Announced, Batch, Delivery, End, Replay, StepKind
from anabranch.errors import CheckpointError, ConfigError
from anabranch.manager.actions import CleanUpGroups
from anabranch.manager.actions.clean_up_groups import merged
from anabranch.manager.debt import owes
from anabranch.manager.ending import next_ending_step
from anabranch.manager.monitor import Moment
from anabranch.manager.policies.clean_up import MIGRATING, ON_REQUEST, choose
from anabranch.manager.snapshot import Snapshot
from anabranch.observe.events import EventKind
from anabranch.plan.explain import Measured
from anabranch.plan.placement import Placement
from anabranch.runtime.driver.changes.manual import ManualChanges
from anabranch.runtime.driver.gate import CancelledError, Gate, StoppedError
from anabranch.runtime.driver.sessions import Sessions
from anabranch.runtime.driver.step.context import StepContext
from anabranch.runtime.driver.step.failure import explain_failure
from anabranch.runtime.driver.step.orders import compose, tasks
from anabranch.runtime.driver.step.take_step import take_step
from anabranch.state.failpoints import failpoint
from anabranch.state.groups import GroupSet


class StepRunner:
    """Makes the steps of a run: one call per batch, and steps without a batch between them.

    `failure` is why the run has ended, if it has.
    """

    def __init__(self, context: StepContext) -> None:
        """For a run whose last step is in force."""
        self._context = context
        self._sessions = Sessions()
        self._kind: StepKind | None = None  # of the step that is being made, or was made last
        self._broken: BaseException | None = None  # by what, between two batches
        self.failure: BaseException | None = None
        self.when_started: list[Callable[[], None]] = []
        self.gate = Gate()
        self.manual = ManualChanges(context, self.between_batches)

    @property
    def context(self) -> StepContext:
        """What the steps are made with."""
        return self._context

    def use(self, context: StepContext) -> None:
        """Make steps under another plan from now on; to be called between two batches."""
        self._context = context
        self.manual = ManualChanges(context, self.between_batches)

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
                self._sessions.start(packed.sparkSession)
                self._step_of(packed, batch_id)
            except BaseException as error:
                if self.gate.fails_by_cancellation(error):
                    raise CancelledError(error) from None
                self.failure = self._explain_failure(error, packed)
                raise

    def _step_of(self, packed: DataFrame, batch_id: int) -> None:
        context, checkpoint = self._context, self._context.run.checkpoint
        if not check_batch(context.in_force.last, batch_id, checkpoint.path):
            told = f"batch {batch_id} was committed before; Spark repeats it after a restart"
            context.run.events.add(EventKind.SKIP, told)
            return
        checkpoint.check_epoch()
        self._step(Batch(batch_id), packed)

    # What a run asks of its steps.

    def measured(self) -> Measured | None:
        """What this run has done so far, operator by operator; None before its first step."""
        return self._context.counters.measured(self._context.manifests)

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Where each operator is."""
        return self._context.in_force.distribution.placements

    @property
    def processors(self) -> int:
        """How many processors there are."""
        return self._context.in_force.distribution.processors

    @property
    def last_number(self) -> int:
        """The number of the last committed step; 0 before the first."""
        last = self._context.in_force.last
        return last.number if last else 0

    @property
    def idle(self) -> float:
        """For how many seconds no step has been made."""
        return 0.0 if self.gate.is_busy else self._context.counters.idle

    @property
    def answers_at_the_end(self) -> bool:
        """Whether there may be rows whose answer waits until nothing older can come, or until clean-up."""
        context, last = self._context, self._context.in_force.last
        spilled = any(state.generations for manifest in context.manifests for state in manifest.operators)
        waits = self.holds_back or (last is not None and bool(last.hold))
        return context.layout.groupings > 0 or bool(context.run.settings.policies) or spilled or waits

    @property
    def holds_back(self) -> bool:
        """Whether rows wait, or groups are on their way."""
        return bool(self._context.in_force.distribution.moving) or self._rows_wait

    @property
    def _rows_wait(self) -> bool:
        states = (state for manifest in self._context.manifests for state in manifest.operators)
        return any(state.held or state.lagging for state in states)

    @property
    def owing_groups(self) -> int:
        """How many partition groups owe results, all processors and operators together."""
        return sum(use.owing_groups for use in self._context.memory_uses())

    def owes(self, spilled_by: int | None = None) -> bool:
        """Whether results are owed that spilling has postponed; if a step is given, by what was spilled up to it."""
        context = self._context
        return context.in_force.last is not None and owes(context.shape, context.manifests, context.settled, spilled_by)

    # Steps without a batch. `packed` has no rows.

    def go_on(self, packed: DataFrame) -> None:
        """Make the step without a batch that was on record when the last run crashed, if there is one."""
        with self.gate.step(), self._explained(packed):
            self._go_on_with_announced(packed)

    def end(self, packed: DataFrame) -> None:
        """Take the input for ended: deliver what is owed, and answer all rows that wait.

        First it is put on record, so that after a crash the same rows are answered under the same id before anything
        else happens. A row that comes later and is older than what was answered is late.
        """
        with self.gate.step(), self._explained(packed):
            self._go_on_with_announced(packed)
            if not self._may_go_on:
                return
            while (step := next_ending_step(self._look(), unanswered=self._unanswered)) is not None:
                settled = self._context.settled
                self._take(packed, End if step.answers_all else Delivery, step.clean_up)
                if step.answers_all and self._context.settled == settled:
                    raise CheckpointError("the end of the input was taken for granted, but nothing was answered")

    def clean_up(self, packed: DataFrame, spilled_by: int) -> bool:
        """Deliver some of what is owed by groups that were spilled up to a step; False if nothing is.

        While batches come, they do it in passing; what is done here is what can be done between two of them.
        """
        in_force = self._context.in_force
        with self.gate.step(), self._explained(packed):
            in_force.awaiting = spilled_by if self.owes(spilled_by) else None
            if in_force.awaiting is not None and self._may_go_on:
                self._take(packed, Delivery, tuple(choose(self._look(spilled_by), ON_REQUEST, back=True)))
                in_force.awaiting = spilled_by if self.owes(spilled_by) else None
            return in_force.awaiting is not None

    def let_go_on(self, packed: DataFrame) -> bool:
        """If no batch is coming, let rows go on that were held back; whether any still wait."""
        with self.gate.step(), self._explained(packed):
            if self.holds_back and self._may_go_on:
                self._take(packed, Delivery)
            return self._rows_wait

    def replay(self, packed: DataFrame, hold: dict[int, GroupSet]) -> None:
        """Let rows of a shadow go on that wait, all but those in `hold`; to be called between two batches."""
        with self._explained(packed):
            self._sessions.start_anew(packed.sparkSession)
            self._context.run.checkpoint.check_epoch()
            self._step(Replay(hold), packed)

    def settle(self, packed: DataFrame, operators: Collection[int]) -> bool:
        """Deliver all that some joins owe, and let their rows go on that wait; to be called between two batches.

        False, with nothing done, if the next batch may have reached a sink already: then it has to be made as it was.
        """
        while self._is_behind(operators):
            if self._context.in_force.may_repeat:
                return False
            with self._explained(packed):
                snapshot = self._look()
                clean_up = choose(snapshot.of_operators(operators), MIGRATING, back=False)
                self._take(packed, Delivery, tuple(clean_up))
        return True

    def _is_behind(self, operators: Collection[int]) -> bool:
        """Whether some joins owe results, or rows wait for them."""
        states = [manifest.operators[n] for manifest in self._context.manifests for n in operators]
        return any(state.held or state.owing() for state in states)

    def wait_idle(self) -> None:
        """Wait for a step that outlived its Spark query: until it has ended the checkpoint is not free."""
        with self.gate.step():
            self.started()

    def started(self) -> None:
        """Do, once, what had to wait for the first batch or the end of the run."""
        while self.when_started:
            self.when_started.pop()()

    @property
    def _may_go_on(self) -> bool:
        """Whether a step without a batch can be made: there was a step, and Spark has planned no batch after it."""
        last = self._context.in_force.last
        return last is not None and not self._context.run.checkpoint.has_planned(last.batch_id)

    @property
    def _unanswered(self) -> bool:
        return self._context.times.waiting(self._context.in_force.last)

    def _look(self, awaiting: int | None = None) -> Snapshot:
        """What there is between two steps; somebody may await the results of what was spilled up to a step."""
        context = self._context
        moment = Moment(self.last_number, (), context.settled, awaiting=awaiting)
        return context.adaptation.snapshot(moment, context.in_force.distribution)

    def _go_on_with_announced(self, packed: DataFrame) -> None:
        checkpoint = self._context.run.checkpoint
        announced = checkpoint.announced(self._context.in_force.last)
        if announced is not None:
            now = checkpoint.plan(checkpoint.plan_number)
            clean_up = under(announced.clean_up, checkpoint.plan(announced.plan), now)
            self._announce_and_take(packed, type(announced)(self._next_extra, clean_up, checkpoint.plan_number))

    def _take(self, packed: DataFrame, kind: type[Announced], clean_up: Sequence[CleanUpGroups] = ()) -> None:
        groups = merged({}, clean_up, self._context.shape.groups)
        self._announce_and_take(packed, kind(self._next_extra, groups, self._context.run.checkpoint.plan_number))

    @property
    def _next_extra(self) -> int:
        last = self._context.in_force.last
        assert last is not None, "there is something to do only after a step"
        return last.extra + 1

    def _announce_and_take(self, packed: DataFrame, step: Announced) -> None:
        checkpoint = self._context.run.checkpoint
        self._sessions.start_anew(packed.sparkSession)
        checkpoint.check_epoch()
        checkpoint.announce(step)
        failpoint(f"{step.name}.announced")
        self._step(step, packed)

    def _step(self, kind: StepKind, packed: DataFrame) -> None:
        self._kind = kind
        take_step(self._context, kind, packed, self._sessions.of_sinks)

    # Failure.

    @contextmanager
    def between_batches(self) -> Iterator[StepContext]:
        """While no step is made; refused if a batch has failed: it will be repeated, and must give the same rows."""
        with self.gate.step():
            if self.failure is not None or self.gate.closed:
                raise ConfigError(
                    "the run is about to end, so nothing can be changed; start it again"
                ) from self.failure
            yield self._context

    @property
    def can_change(self) -> bool:
        """Whether `between_batches` would let this thread in."""
        return self.failure is None and not self.gate.closed and not self.gate.is_mine

    def break_off(self, error: BaseException) -> None:
        """Make no further step: what has failed between two batches is half done."""
        self.failure = self._broken = error

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
            self._sessions.forget()  # what comes next has a session of its own

    def _explain_failure(self, error: BaseException, packed: DataFrame) -> BaseException:
        context = self._context
        number = context.run.checkpoint.next_number
        directory = context.run.checkpoint.reports(number)

        def again() -> list[DataFrame]:
            elsewhere = (directory / "again",) * len(context.layout.outlets)
            assert self._kind is not None, "a step has failed"
            orders = compose(context, self._kind)
            return context.processors.yielded(packed, tasks(context, orders, elsewhere))

        return explain_failure(error, directory, context.layout, context.answers, again)
