"""Make one step after another under the plan in force, and explain a step that fails.

The caller makes sure that one step is made at a time (`gate`). After a failure between two batches no step may follow:
the failed step may have reached a sink under the id of the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame

from anabranch.checkpoint.folder.directory import check_batch
from anabranch.checkpoint.step import Announced, Batch, StepKind
from anabranch.observe.events import EventKind
from anabranch.runtime.driver.sessions import Sessions
from anabranch.runtime.driver.status import Status
from anabranch.runtime.driver.step.context import StepContext
from anabranch.runtime.driver.step.failure import explain_failure
from anabranch.runtime.driver.step.orders import compose, tasks
from anabranch.runtime.driver.step.take_step import take_step
from anabranch.state.failpoints import failpoint


class StepMaker:
    """Makes the steps of a run. `failure` is the error that has ended the run, None while it goes on."""

    def __init__(self, context: StepContext) -> None:
        """Make steps in this context; it may be replaced between two steps."""
        self.context = context
        self.failure: BaseException | None = None
        self._broken: BaseException | None = None  # an error between two batches
        self._kind: StepKind | None = None  # of the step under way, or of the last one
        self._sessions = Sessions()

    @property
    def status(self) -> Status:
        """The state of the run after its last step."""
        return Status(self.context)

    def make_batch(self, packed: DataFrame, batch_id: int) -> None:
        """Make the step of a batch; a batch that was committed before is skipped."""
        packed = self._sessions.start(packed)
        run = self.context.run
        if not check_batch(self.context.in_force.last, batch_id, run.checkpoint.path):
            run.events.add(EventKind.SKIP, f"batch {batch_id} was committed before; Spark repeats it after a restart")
            return
        run.checkpoint.check_epoch()
        self._make(packed, Batch(batch_id))

    def make_extra(self, packed: DataFrame, kind: StepKind) -> None:
        """Make a step without a batch; `packed` has no rows."""
        self._sessions.start_anew(packed)
        self.context.run.checkpoint.check_epoch()
        self._make(packed, kind)

    def make_announced(self, packed: DataFrame, step: Announced) -> None:
        """Make a step without a batch that is put on record first, so that it is made again after a crash."""
        self._sessions.start_anew(packed)
        self.context.run.checkpoint.check_epoch()
        self.context.run.checkpoint.records.announce(step, self.context.run.checkpoint.epoch)
        failpoint(f"{step.name}.announced")
        self._make(packed, step)

    def _make(self, packed: DataFrame, kind: StepKind) -> None:
        self._kind = kind
        take_step(self.context, kind, packed, self._sessions.of_sinks)

    def check_whole(self) -> None:
        """Raise the error that broke off a step between two batches, if there was one: that step is half done."""
        if self._broken is not None:
            raise self._broken

    def break_off(self, error: BaseException) -> None:
        """Make no further step, since a step or a change between two batches is half done."""
        self.failure = self._broken = error

    @contextmanager
    def between_two_batches(self, packed: DataFrame) -> Iterator[None]:
        """Inside, steps without a batch are made; an error in them is explained and ends the run."""
        try:
            self.check_whole()
            yield
        except BaseException as error:
            explained = self.explained(error, packed)
            self.break_off(explained)
            if explained is error:
                raise
            raise explained from error
        finally:
            self._sessions.forget()  # the next step has a session of its own

    def explained(self, error: BaseException, packed: DataFrame) -> BaseException:
        """The error that a user sees for an error in the step under way."""
        context = self.context
        directory = context.run.checkpoint.reports(context.run.checkpoint.next_number)

        def repeated() -> list[DataFrame]:
            elsewhere = (directory / "again",) * len(context.layout.outlets)
            assert self._kind is not None, "a step has failed"
            orders = compose(context, self._kind)
            return context.processors.yielded(packed, tasks(context, orders, elsewhere))

        return explain_failure(error, directory, context.layout, context.answers, repeated)
