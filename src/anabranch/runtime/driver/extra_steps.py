"""Steps without a batch, made between two batches: deliveries of owed results, the end of the input, replays.

`manager/ending` and `manager/policies/clean_up` decide what such a step does. `packed` has no rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame

from anabranch.checkpoint.carry_over import under
from anabranch.checkpoint.step import Announced, Delivery, End, Replay
from anabranch.errors import CheckpointError
from anabranch.manager.actions import CleanUpGroups
from anabranch.manager.actions.clean_up_groups import merged
from anabranch.manager.ending import next_ending_step
from anabranch.manager.policies.clean_up import MIGRATING, ON_REQUEST, choose
from anabranch.manager.runtime_monitor import Moment
from anabranch.manager.snapshot import Snapshot
from anabranch.manager.waiting import joins_are_behind
from anabranch.runtime.driver.gate import Gate
from anabranch.runtime.driver.status import Status
from anabranch.runtime.driver.step.context import StepContext
from anabranch.runtime.driver.step_maker import StepMaker
from anabranch.state.groups import GroupSet


class ExtraSteps:
    """Makes the steps of a run that have no batch. All but `replay` and `settle` wait at the gate for their turn."""

    def __init__(self, maker: StepMaker, gate: Gate) -> None:
        """Share the maker of steps and the gate with the batches of the run."""
        self._maker = maker
        self._gate = gate

    def repeat_announced(self, packed: DataFrame) -> None:
        """Make the step without a batch again that was on record when the last run crashed, if there is one."""
        with self._turn(packed):
            self._repeat_announced(packed)

    def end(self, packed: DataFrame) -> None:
        """Treat the input as ended: deliver what is owed, and answer all rows that wait.

        The step is put on record first. So after a crash the same rows are answered under the same id before anything
        else happens. A row that comes later and is older than answered ones is late.
        """
        with self._turn(packed):
            self._repeat_announced(packed)
            if not self._status.may_step_without_batch:
                return
            while (step := next_ending_step(self._snapshot(), unanswered=self._status.has_unanswered)) is not None:
                settled = self._context.settled
                self._announce(packed, End if step.answers_all else Delivery, step.clean_up)
                if step.answers_all and self._context.settled == settled:
                    raise CheckpointError("the end of the input was taken for granted, but nothing was answered")

    def clean_up(self, packed: DataFrame, spilled_by: int) -> bool:
        """Deliver some of the results owed by groups that were spilled up to a step; whether any are still owed.

        Batches deliver owed results in passing; this step delivers some of them between two batches.
        """
        in_force, status = self._context.in_force, self._status
        with self._turn(packed):
            in_force.awaiting = spilled_by if status.owes(spilled_by) else None
            if in_force.awaiting is not None and status.may_step_without_batch:
                self._announce(packed, Delivery, choose(self._snapshot(spilled_by), ON_REQUEST, back=True))
                in_force.awaiting = spilled_by if status.owes(spilled_by) else None
            return in_force.awaiting is not None

    def release_held(self, packed: DataFrame) -> bool:
        """Answer rows that are held back, unless a batch is coming; whether any are still held back."""
        with self._turn(packed):
            if self._status.holds_back and self._status.may_step_without_batch:
                self._announce(packed, Delivery)
            return self._status.rows_wait

    def replay(self, packed: DataFrame, hold: dict[int, GroupSet]) -> None:
        """Let the waiting rows of a shadow go on, except those in `hold`; to be called between two batches."""
        with self._maker.between_two_batches(packed):
            self._maker.make_extra(packed, Replay(hold))

    def settle(self, packed: DataFrame, joins: Collection[int]) -> bool:
        """Deliver all that some joins owe, and answer the rows that they hold back; to be called between two batches.

        False, with nothing done, if the next batch may have reached a sink already: then it must be made unchanged.
        """
        while joins_are_behind(self._context.manifests, joins):
            if self._context.in_force.may_repeat:
                return False
            with self._maker.between_two_batches(packed):
                snapshot = self._snapshot().of_operators(joins)
                self._announce(packed, Delivery, choose(snapshot, MIGRATING, back=False))
        return True

    @property
    def _context(self) -> StepContext:
        return self._maker.context

    @property
    def _status(self) -> Status:
        return self._maker.status

    @contextmanager
    def _turn(self, packed: DataFrame) -> Iterator[None]:
        """Wait for the gate; inside, no other step is made."""
        with self._gate.step(), self._maker.between_two_batches(packed):
            yield

    def _snapshot(self, awaiting: int | None = None) -> Snapshot:
        """A snapshot between two steps. The user awaits results of groups that were spilled up to step `awaiting`."""
        context = self._context
        moment = Moment(self._status.last_number, (), context.settled, awaiting=awaiting)
        return context.decision_maker.snapshot(moment, context.in_force.distribution)

    def _repeat_announced(self, packed: DataFrame) -> None:
        checkpoint = self._context.run.checkpoint
        announced = checkpoint.records.announced(self._context.in_force.last)
        if announced is not None:
            document = checkpoint.plan(checkpoint.plan_number)
            clean_up = under(announced.clean_up, checkpoint.plan(announced.plan), document)
            step = type(announced)(self._next_extra, clean_up, checkpoint.plan_number)
            self._maker.make_announced(packed, step)

    def _announce(self, packed: DataFrame, kind: type[Announced], clean_up: Iterable[CleanUpGroups] = ()) -> None:
        groups = merged({}, tuple(clean_up), self._context.shape.groups)
        step = kind(self._next_extra, groups, self._context.run.checkpoint.plan_number)
        self._maker.make_announced(packed, step)

    @property
    def _next_extra(self) -> int:
        last = self._context.in_force.last
        assert last is not None, "there is something to do only after a step"
        return last.extra + 1
