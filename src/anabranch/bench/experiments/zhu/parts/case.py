"""A case of an experiment: one run of the query in a setting, with a migration or without.

Batches are fed one after the other, without a trigger and without a clock. The first batch may be a long one that
brings state (`fill`); all others have the length of the setting. The migration begins after the batch that ends at
`begins`. The number of answers is compared with the number that follows from the input.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from pyspark.sql import SparkSession

from anabranch.api.changes.migration import Migration, Phase
from anabranch.api.testing.steps import Steps
from anabranch.bench.experiments.zhu.parts.setting import NEW, OLD, STREAMS, Setting, expected_answers
from anabranch.bench.experiments.zhu.parts.trace import MigrationTrace, StepCounts, step_counts
from anabranch.errors import BenchmarkError
from anabranch.observe.events import EventKind
from anabranch.quantities.clock import Clock
from anabranch.runtime.sinks.formats import Discard

GROUPS = 16
# Batches after the first, long one and before a migration: by then rows of the long batch are purged as any others.
FULL_BATCHES = 2


@dataclass(frozen=True, slots=True)
class Case:
    """A run: its name, the setting, the first order of its joins, and the strategy of its migration, if it has one.

    Without `until` it ends a batch after the migration. `pace` is that of a migration in the background, in rows per
    batch. Times are in milliseconds.
    """

    name: str
    setting: Setting
    strategy: str | None
    begins: int
    fill: int = 0
    until: int | None = None
    joins: str = OLD
    pace: int | None = None

    def edges(self) -> list[int]:
        """The ends of batches, up to the longest that the run may last; the first number is 0."""
        setting = self.setting
        end = self.begins + 2 * setting.window + setting.lateness + 4 * setting.batch
        until = end if self.until is None else self.until
        filling = [0] if self.fill else []
        return [*filling, *range(self.fill, until + 1, setting.batch)]


def with_full_state(name: str, setting: Setting, strategy: str | None) -> Case:
    """A case that migrates as soon as state is full: with the rows of a window, and of some batches more."""
    begins = setting.window + FULL_BATCHES * setting.batch
    return Case(name, setting, strategy, begins, fill=setting.window)


def run_case(spark: SparkSession, folder: Path, case: Case) -> MigrationTrace:
    """Run a case; its state is in a folder of its own."""
    setting, edges = case.setting, case.edges()
    streams = setting.streams(edges[-1])
    with Steps(spark, folder, processors=1, groups=GROUPS, clock=Clock()) as steps:
        for name in STREAMS:
            steps.stream(name, setting.schema(name), time="ts", lateness=f"{setting.lateness} milliseconds")
        steps.query(setting.query, joins=case.joins, sink=Discard())
        made: list[StepCounts] = []
        migration: Migration | None = None
        ended: int | None = None
        last = 0
        for start, stop in pairwise(edges):
            steps.feed({name: stream.between(start, stop) for name, stream in streams.items()})
            made += _new_steps(steps, last, stop)
            last = _last_step(steps)
            if ended is not None and case.until is None:
                break
            if stop == case.begins and case.strategy is not None:
                steps.plans()  # measures what a prediction goes by
                migration = steps.migrate(NEW, case.strategy, pace=case.pace)
                made += _new_steps(steps, last, None)
                last = _last_step(steps)
            if migration is not None and migration.phase == Phase.DONE and ended is None:
                ended = stop
        trace = MigrationTrace(case.name, setting, tuple(made))
        if migration is not None:
            trace = _with_migration(trace, migration, case.begins, ended, steps)
    expected = expected_answers(streams, setting.window, stop)
    answered = sum(step.answers for step in made)
    if answered != expected:
        raise BenchmarkError(f"{case.name}: {answered:,} answers instead of {expected:,}")
    return trace


def _last_step(steps: Steps) -> int:
    progress = steps.progress
    return 0 if progress is None else int(progress["step"])


def _new_steps(steps: Steps, last: int, arrived: int | None) -> Iterator[StepCounts]:
    """The steps after number `last`: that of a batch, if one has `arrived`, and those without a batch after it."""
    for progress in steps.progress_since(last):
        yield step_counts(progress, arrived)
        arrived = None


def _with_migration(
    trace: MigrationTrace, migration: Migration, began: int, ended: int | None, steps: Steps
) -> MigrationTrace:
    if ended is None:
        raise BenchmarkError(f"{trace.name}: the migration has not ended by the last batch; {migration}")
    begun = next(event for event in steps.events if event.kind == EventKind.MIGRATING)
    done = next(event for event in steps.events if event.kind == EventKind.MIGRATE)
    return replace(
        trace,
        strategy=migration.strategy,
        began=began,
        ended=ended,
        listed_rows=begun.details["listed_rows"],
        rehashed_rows=begun.details["rehashed_rows"],
        predicted_rows=done.details.get("predicted_rows"),
    )
