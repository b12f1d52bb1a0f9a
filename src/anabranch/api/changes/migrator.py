"""Begin, end and cancel the migrations of a run: `Run.migrate`.

The mechanism is `runtime/driver/changes/migration`. This module checks the request, writes the events, and ends a
migration between two batches as soon as its shadow is ready.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame

from anabranch.api.changes.migration import Migration, Phase
from anabranch.errors import ConfigError, MigrationError, did_you_mean
from anabranch.language.shape import read_shape
from anabranch.observe.events import EventKind, EventLog
from anabranch.plan.arrangement import Shape, UnconnectedError
from anabranch.plan.orders.join_orders import Wish
from anabranch.plan.orders.migration_choice import Prediction
from anabranch.plan.shape_text import shape_text
from anabranch.runtime.compile.prepared import PreparedPlan
from anabranch.runtime.driver.changes.measure_orders import measure_orders
from anabranch.runtime.driver.changes.migration import (
    BACKGROUND,
    MOVING_STATE,
    PARALLEL_TRACK,
    STRATEGIES,
    MigrationProposal,
    ShadowProgress,
    after_failure,
    begin_migration,
    check_begins,
    drop_shadow,
    end_migration,
    propose_migration,
)
from anabranch.runtime.driver.changes.strategy import best_strategy, predictions
from anabranch.runtime.driver.open_run import OpenedRun, Prepare, Question

AUTO = "auto"
REPLACE = "replace"
REFUSE = "refuse"
ON_REQUEST = "it was asked for"
# If no strategy is named and nothing is measured yet, state of at most this many rows is moved at once.
AT_ONCE = 100_000


class Host(Protocol):
    """A run that can be migrated, between two of its batches."""

    opened: OpenedRun
    events: EventLog

    def questions(self) -> Mapping[str, Question]:
        """The queries that the run answers, by name."""

    def prepare(self) -> Prepare:
        """A function that analyses plans, and keeps the run's streaming query for those that it can serve."""

    def no_rows(self) -> DataFrame:
        """An empty batch."""

    def changing(self) -> AbstractContextManager[None]:
        """Inside, nothing else changes the run; refused if the run cannot be changed now."""


@dataclass(slots=True)
class _UnderWay:
    """A migration that has begun: its handle, its progress in the driver, its prediction, and when and after which step
    it began."""

    handle: Migration
    progress: ShadowProgress
    started: float
    step: int
    prediction: Prediction | None


class Migrator:
    """Begins, ends and cancels the migrations of a run, one at a time. The host makes sure that nothing else changes
    the run meanwhile."""

    def __init__(self, host: Host) -> None:
        """Migrate the queries of this host; none migrates yet."""
        self.host = host
        self._under_way: _UnderWay | None = None

    @property
    def current(self) -> Migration | None:
        """The migration under way."""
        return None if self._under_way is None else self._under_way.handle

    def check_idle(self, problem: str) -> None:
        """Refuse a change while a query migrates; the error begins with `problem`."""
        if self.current is not None:
            raise ConfigError(f"{problem} while {self.current.query!r} migrates; wait for it, or cancel() it")

    def begin(
        self,
        joins: str,
        strategy: str = AUTO,
        query: str | None = None,
        *,
        pace: int | None = None,
        meanwhile: str = REFUSE,
        reason: str = ON_REQUEST,
        wish: Wish = "latency",
    ) -> Migration:
        """Begin a migration. If one is under way, `meanwhile` says whether it is replaced or this one refused."""
        _check_choice("strategy", strategy, (AUTO, *STRATEGIES))
        _check_choice("meanwhile", meanwhile, (REFUSE, REPLACE))
        if pace is not None and (not isinstance(pace, int) or isinstance(pace, bool) or pace < 1):
            raise ConfigError(f"pace must be a positive whole number of rows per step, not {pace!r}")
        name = self.name_of(query)
        self._check_way(meanwhile)
        host = self.host
        proposal = self._proposal(name, joins)
        chosen, prediction = self._strategy(proposal, strategy, wish)
        if self.current is not None:
            check_begins(host.opened.runner.context, proposal, chosen)
            self.cancel(self.current)
            proposal = self._proposal(name, joins)  # its plan has another number now
        aliases = _aliases(host.opened.plan, name)
        before, after = (shape_text(shape, aliases) for shape in (proposal.before, proposal.after))
        step, started = host.opened.runner.status.last_number, time.perf_counter()
        try:
            host.opened, progress = begin_migration(host.opened, proposal, chosen, host.no_rows(), pace)
        except BaseException:
            host.opened = after_failure(host.opened, host.questions, host.prepare)
            raise
        handle = Migration(name, chosen, before, after)
        handle._cancel = lambda: self.cancel(handle)
        self._under_way = _UnderWay(handle, progress, started, step, prediction)
        filling = proposal.filling
        parts = [
            f"{len(filling.listed)} states listed ({progress.listed_rows:,} rows)",
            f"{len(filling.rehashed)} hashed anew ({progress.rehashed_rows:,} rows)",
            f"{len(filling.computed)} computed",
        ]
        how = "beginning empty" if chosen == PARALLEL_TRACK else ", ".join(parts)
        is_felt = chosen != MOVING_STATE and host.opened.runner.context.run.memory.is_limited
        memory = "; what the new order stores cannot be pushed to disk before it is in force" if is_felt else ""
        host.events.add(
            EventKind.MIGRATING,
            f"{name}: joins go from {before} to {after} by {chosen}, {how}, since {reason}{memory}",
            query=name,
            before=before,
            after=after,
            strategy=chosen,
            listed_rows=progress.listed_rows,
            rehashed_rows=progress.rehashed_rows,
            state_bytes=progress.state_bytes(host.opened.runner.context),
            seconds=round(time.perf_counter() - started, 3),
        )
        try:
            self.advance()
        except BaseException as error:
            self._fail(error)
            raise
        return handle

    def advance(self) -> bool:
        """End the migration under way if its shadow is ready; whether one is still under way."""
        under_way, host = self._under_way, self.host
        if under_way is None:
            return False
        handle, progress = under_way.handle, under_way.progress
        handle.share_done = progress.share_done(host.opened.runner.context)
        if not progress.is_ready(host.opened.runner.context):
            return True
        rows = progress.rows_done(host.opened.runner.context)
        size = progress.state_bytes(host.opened.runner.context)
        opened = end_migration(host.opened, progress, host.no_rows())
        if opened is None:
            return True
        host.opened, self._under_way = opened, None
        try:
            self._note_done(under_way, rows, size)
        finally:
            handle._end(Phase.DONE)
        return False

    def _note_done(self, under_way: _UnderWay, rows: int, size: int) -> None:
        """Write the event of the end of a migration that has read and made so many rows, and stored so many bytes."""
        handle, host, opened = under_way.handle, self.host, self.host.opened
        seconds = time.perf_counter() - under_way.started
        steps = opened.runner.status.last_number - under_way.step
        host.events.add(
            EventKind.MIGRATE,
            f"{handle.query}: joins are {handle.after} now, after {steps} steps and {seconds:.2f} s of "
            f"{handle.strategy}",
            query=handle.query,
            before=handle.before,
            after=handle.after,
            strategy=handle.strategy,
            steps=steps,
            seconds=round(seconds, 3),
            rows=rows,
            state_bytes=size,
            **_details(under_way.prediction),
        )
        run = opened.runner.context.run
        run.orders.note_migration(handle.query, handle.before, handle.after, run.clock())

    def go_on(self) -> None:
        """Call `advance`. An error is not raised: it ends the migration, and the handle raises it.

        An event tells of it, since nobody may wait for the handle.
        """
        try:
            self.advance()
        except Exception as error:
            handle = self.current
            self._fail(error)
            if handle is not None and self.host.opened.runner.can_change:
                problem = f"the migration from {handle.before} to {handle.after} has failed: {error}"
                self.host.events.add(EventKind.WARNING, f"{handle.query}: {problem}")

    def _fail(self, error: BaseException) -> None:
        """Go on without the shadow after an error, in the order that is in force."""
        host = self.host
        if self._under_way is not None:
            host.opened = after_failure(host.opened, host.questions, host.prepare)
        self.end(error)

    def cancel(self, handle: Migration) -> None:
        """Go on with the old order. Another thread may be ending the migration just now; then this waits for it."""
        with self.host.changing():
            self._cancel(handle)

    def _cancel(self, handle: Migration) -> None:
        under_way, host = self._under_way, self.host
        if under_way is None or under_way.handle is not handle:
            raise ConfigError(
                f"this migration of {handle.query!r} is {handle.phase} already, so it cannot be cancelled"
            )
        host.opened = drop_shadow(host.opened, host.questions(), host.prepare())
        self._under_way = None
        handle._end(Phase.CANCELLED)
        host.events.add(
            EventKind.MIGRATING,
            f"{handle.query}: joins stay {handle.before}; the migration to {handle.after} was cancelled",
            query=handle.query,
            before=handle.before,
            after=handle.before,
        )

    def end(self, failure: BaseException | None) -> None:
        """Fail the migration under way, since the run has ended."""
        if self._under_way is not None:
            handle, self._under_way = self._under_way.handle, None
            reason = f"the run has ended before {handle.query!r} could go on with {handle.after}; start it again"
            handle._end(Phase.FAILED, failure or MigrationError(reason))

    def _check_way(self, meanwhile: str) -> None:
        current = self.current
        if current is not None and meanwhile == REFUSE:
            raise ConfigError(
                f"{current.query!r} is migrating to {current.after} already ({current.share_done:.0%} done); wait for "
                "it, cancel() it, or say meanwhile='replace'"
            )

    def name_of(self, query: str | None) -> str:
        """The name of a query of the run; that of the only one if None."""
        names = list(self.host.questions())
        if query is None and len(names) == 1:
            return names[0]
        if query is None:
            raise ConfigError(f"there are several queries ({', '.join(names)}); say which one: query='{names[0]}'")
        if query not in names:
            raise ConfigError(f"there is no query {query!r} in this run; {did_you_mean(str(query), names)}")
        return query

    def _proposal(self, name: str, joins: str) -> MigrationProposal:
        host = self.host
        shape: Shape | None = read_shape(joins, _aliases(host.opened.plan, name))
        checkpoint = host.opened.runner.context.run.checkpoint
        try:
            return propose_migration(checkpoint, host.questions(), host.prepare(), name, shape, host.opened.plan)
        except UnconnectedError as error:
            aliases = _aliases(host.opened.plan, name)
            parts = " and ".join(", ".join(aliases[n] for n in sorted(part)) for part in error.parts)
            raise ConfigError(f"joins={joins!r}: nothing that {name!r} says is equal connects {parts}") from None

    def _strategy(self, proposal: MigrationProposal, strategy: str, wish: Wish) -> tuple[str, Prediction | None]:
        """The strategy to take, with its predicted cost: the best one if `strategy` is "auto".

        If nothing was measured yet, as before the first batch, little state is moved at once and much in pieces.
        """
        context = self.host.opened.runner.context
        if strategy == AUTO:
            measure_if_due(self.host)
        estimates = context.run.orders.estimates.get(proposal.query)
        if estimates is not None:
            cores = self.host.no_rows().sparkSession.sparkContext.defaultParallelism
            possible = predictions(context, proposal, estimates, cores)
            chosen = best_strategy(possible, wish, list(context.run.results)) if strategy == AUTO else strategy
            return chosen, next((prediction for name, prediction in possible.items() if name == chosen), None)
        is_little = sum(manifest.rows for manifest in context.manifests) <= AT_ONCE
        return (strategy, None) if strategy != AUTO else (MOVING_STATE if is_little else BACKGROUND, None)


def measure_if_due(host: Host) -> None:
    """Measure the costs of the orders of a run's joins, unless that was done not long ago."""
    runner = host.opened.runner
    run = runner.context.run
    if run.orders.is_due(runner.status.last_number, run.clock()):
        measure_orders(runner, host.no_rows())


def _details(prediction: Prediction | None) -> dict[str, float]:
    """The numbers of a prediction, as details of an event."""
    if prediction is None:
        return {}
    return {
        "predicted_seconds": round(prediction.seconds, 3),
        "predicted_silence": round(prediction.silence, 3),
        "predicted_rows": round(prediction.extra_rows),
    }


def _aliases(plan: PreparedPlan, name: str) -> tuple[str, ...]:
    query = next(request.query for request in plan.requests if request.name == name)
    return tuple(entry.alias for entry in query.inputs)


def _check_choice(what: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"there is no {what} {value!r}; {did_you_mean(str(value), choices)}")
