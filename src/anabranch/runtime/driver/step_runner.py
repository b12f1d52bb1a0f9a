"""The `foreachBatch` function of a run, and its turn-taking: batches and changes pass one gate, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame

from anabranch.errors import ConfigError
from anabranch.runtime.driver.changes.manual import ManualChanges
from anabranch.runtime.driver.extra_steps import ExtraSteps
from anabranch.runtime.driver.gate import CancelledError, Gate, StoppedError
from anabranch.runtime.driver.status import Status
from anabranch.runtime.driver.step.context import StepContext
from anabranch.runtime.driver.step_maker import StepMaker


class StepRunner:
    """Makes the steps of a run: one call per batch. `extra` makes steps without a batch, `manual` makes changes."""

    def __init__(self, context: StepContext) -> None:
        """Make steps in the context of a run whose last step is in force."""
        self.gate = Gate()
        self._maker = StepMaker(context)
        self.extra = ExtraSteps(self._maker, self.gate)
        self.manual = ManualChanges(self.between_batches)
        self.when_started: list[Callable[[], None]] = []

    @property
    def context(self) -> StepContext:
        """The context that steps are made in."""
        return self._maker.context

    def use(self, context: StepContext) -> None:
        """Make steps under another plan from now on; to be called between two batches."""
        self._maker.context = context

    @property
    def status(self) -> Status:
        """The state of the run after its last step."""
        return self._maker.status

    @property
    def failure(self) -> BaseException | None:
        """The error that has ended the run; None while it goes on."""
        return self._maker.failure

    def fail(self, error: BaseException) -> None:
        """Note the error that has ended the run."""
        self._maker.failure = error

    def break_off(self, error: BaseException) -> None:
        """Make no further step, since a step or a change between two batches is half done."""
        self._maker.break_off(error)

    def __call__(self, packed: DataFrame, batch_id: int) -> None:
        """Make the step of one batch. An error is kept for `Run.exception`, unless the run was stopped."""
        try:
            self._batch(packed, batch_id)
        except CancelledError as error:
            if self.gate.is_stopped_soon():
                raise StoppedError from None
            self.fail(error.cause)
            raise error.cause from None

    def _batch(self, packed: DataFrame, batch_id: int) -> None:
        with self.gate.batch():
            self._maker.check_whole()
            try:
                self.started()
                self._maker.make_batch(packed, batch_id)
            except BaseException as error:
                if self.gate.fails_by_cancellation(error):
                    raise CancelledError(error) from None
                self.fail(self._maker.explained(error, packed))
                raise

    def started(self) -> None:
        """Call the functions of `when_started`, once: they wait for the first batch or the end of the run."""
        while self.when_started:
            self.when_started.pop()()

    def wait_idle(self) -> None:
        """Wait for a step that outlived its Spark query; the checkpoint is not free before it has ended."""
        with self.gate.step():
            self.started()

    @property
    def idle(self) -> float:
        """The seconds since the last step ended; 0 while one is made."""
        return 0.0 if self.gate.is_busy else self.context.counters.idle

    @contextmanager
    def between_batches(self) -> Iterator[StepContext]:
        """Inside, no step is made. Refused if a batch has failed: it will be repeated and must give the same rows."""
        with self.gate.step():
            if self.failure is not None or self.gate.closed:
                raise ConfigError(
                    "the run is about to end, so nothing can be changed; start it again"
                ) from self.failure
            yield self.context

    @property
    def can_change(self) -> bool:
        """Whether `between_batches` would let this thread in."""
        return self.failure is None and not self.gate.closed and not self.gate.is_mine
