"""One run of a plan on Spark: batches are fed one after the other, without a trigger, and their counts kept.

The answer is compared with that of the input, row by row.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from anabranch.api.testing.steps import Steps
from anabranch.bench.experiments.dcape.plan import GROUPS, PlacedPlan, PlacementCosts, ThesisPlan
from anabranch.bench.experiments.dcape.stateless import GIVES
from anabranch.bench.experiments.dcape.trace import BatchCounts, Moved, PlacementTrace
from anabranch.errors import BenchmarkError
from anabranch.manager.allocation.table import DistributionTable
from anabranch.manager.patterns.named import PATTERNS
from anabranch.manager.policies.degradation import Degradation
from anabranch.observe.events import Event, EventKind
from anabranch.plan.placement import Placement, even_placement
from anabranch.quantities.clock import Clock

DEGRADATION = "degradation"
BY_HAND = "hand"
ROWS, BATCHES = 64, 2


@dataclass(frozen=True, slots=True)
class Turn:
    """The operator of this number goes to a processor before a batch."""

    batch: int
    operator: int
    to: int


@dataclass(frozen=True, slots=True)
class Case:
    """A run: a plan, the name of a pattern, and processors; so many batches of `rows` rows per stream.

    Keys live for `life` batches, so it takes that many until state is full. Operators move by a policy (`degrades`), or
    by hand (`turns`).
    """

    plan: ThesisPlan
    pattern: str
    processors: int
    batches: int = BATCHES
    life: int = 1
    rows: int = ROWS
    degrades: bool = False
    turns: tuple[Turn, ...] = ()

    @property
    def moved_by(self) -> str:
        """What moves operators, "" if nothing does."""
        if self.turns:
            return BY_HAND
        return DEGRADATION if self.degrades else ""

    @property
    def name(self) -> str:
        """Its name for people."""
        name = f"{self.plan.name}, {self.pattern} on {self.processors}"
        if self.moved_by:
            return f"{name}, moved {len(self.turns)}x" if self.turns else f"{name}, {self.moved_by}"
        if self.rows != ROWS:
            return f"{name}, {self.rows:,} rows"
        return name if self.batches == BATCHES else f"{name}, {self.batches} batches"


def run_case(spark: SparkSession, folder: Path, case: Case) -> PlacementTrace:
    """Run a case; its state is in a folder of its own."""
    placed = PlacedPlan.of(case.plan)
    given = case.plan.input(case.rows, case.life)
    made = placed.made(given, case.batches)
    placements: Sequence[Placement] = placed.place(PATTERNS[case.pattern], case.processors)
    batches: list[BatchCounts] = []
    moves: list[Moved] = []
    with _steps(spark, folder, case) as steps:
        for number in range(case.batches):
            known = len(steps.events)
            for turn in (turn for turn in case.turns if turn.batch == number):
                operator = list(steps.distribution())[turn.operator].operator
                steps.reallocate(operator, to=turn.to)
                placements = _placements(steps.distribution(), case.processors)
            seconds = _feed(steps, {name: given.batch(number, nth) for nth, name in enumerate(case.plan.streams)})
            batches.append(_counts(steps, placed.costs(placements, made[number]), seconds))
            placements = _placements(steps.distribution(), case.processors)
            moves += _moves(steps.events[known:], number)
        _check(case, steps.answer(), given.answer(case.batches))
        state = _state_rows(steps)
    return PlacementTrace(
        case.name, case.plan.name, case.pattern, case.processors, case.moved_by, tuple(batches), tuple(moves), state
    )


def _feed(steps: Steps, tables: Mapping[str, pa.Table]) -> float:
    """Deliver a batch; the seconds that it took."""
    begun = time.perf_counter()
    steps.feed(tables)
    return time.perf_counter() - begun


def _counts(steps: Steps, costs: PlacementCosts, seconds: float) -> BatchCounts:
    """The counts of the batch that was fed last."""
    progress = steps.progress
    assert progress is not None, "a batch has been fed"
    return BatchCounts(
        rounds=len(progress["exchangedRows"]),
        exchanged=sum(progress["exchangedRows"][1:]),
        costs=costs,
        answers=sum(query["numOutputRows"] for query in progress["queries"].values()),
        seconds=seconds,
        manager_seconds=progress["manager"]["cpuMs"] / 1000,
        report_bytes=progress["manager"]["reportBytes"],
        manager_bytes=progress["manager"]["memoryBytes"],
    )


def _state_rows(steps: Steps) -> tuple[int, ...]:
    progress = steps.progress
    assert progress is not None, "a batch has been fed"
    return tuple(processor["activeRows"] for processor in progress["processors"])


def _moves(events: Sequence[Event], batch: int) -> Iterator[Moved]:
    for event in events:
        if event.kind == EventKind.REALLOCATE:
            yield Moved(batch, tuple(event.details["operators"]), ", ".join(sorted({*event.details["after"]})))


def _steps(spark: SparkSession, folder: Path, case: Case) -> Steps:
    steps = Steps(
        spark,
        folder,
        processors=case.processors,
        clock=Clock(),
        groups=GROUPS,
        placement=case.pattern,
        policies=[Degradation()] if case.degrades else [],
    )
    for name in case.plan.streams:
        steps.stream(name, "k BIGINT, v BIGINT")
    for one in case.plan.applied:
        steps.engine.operator(one.name, one.operator, over=one.over, key="k", columns=["v"], gives=GIVES)
    steps.query(case.plan.query, joins=case.plan.joins)
    return steps


def _placements(table: DistributionTable, processors: int) -> list[Placement]:
    """Where operators are: whole on one processor, or spread over all of them."""
    return [
        (entry.processors[0],) * GROUPS if len(entry.processors) == 1 else even_placement(GROUPS, processors)
        for entry in table
    ]


def _check(case: Case, answer: pa.Table, expected: pa.Table) -> None:
    """Refuse an answer that is not that of the input."""
    names = expected.column_names
    order = [(name, "ascending") for name in names]
    found, wanted = answer.select(names).sort_by(order), expected.sort_by(order)
    if not all(found[name].equals(wanted[name]) for name in names):
        raise BenchmarkError(
            f"{case.name}: the answer is not that of the input: {answer.num_rows:,} rows, and {expected.num_rows:,} "
            "are expected"
        )
