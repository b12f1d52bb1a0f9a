"""`ab.Adaptive` on Spark: whatever happens is answered by what fits, with the same answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.manager.actions import Action
from anabranch.manager.actions.sentence import Sentence
from anabranch.manager.snapshot import Snapshot
from anabranch.observe.events import Event
from anabranch.quantities.clock import Clock
from tests.oracle.referee import assert_same_rows, query
from tests.oracle.steps import Kind, Steps

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("t", pa.int64()), ("v", pa.int64())])
WINDOW = 20  # milliseconds; a batch is ten
KINDS = {name: Kind(SCHEMA, "t", 0) for name in "ABC"}
WINDOWS = ", ".join(f"{name} [RANGE {WINDOW} MILLISECONDS]" for name in "ABC")
CHAIN = f"SELECT A.v AS a, B.v AS b, C.v AS c FROM {WINDOWS} WHERE A.k = B.k AND B.j = C.j"
FEW, MANY = 20, 400
ROWS = 60
HOT = 7
WITHIN = 10


@dataclass
class ByCount:
    """The policy on processors for which a row or a result takes a second, or longer on those that are `slow`.

    So a test does not depend on how long anything takes on the machine that it runs on.
    """

    policy: ab.Adaptive = field(default_factory=ab.Adaptive)
    spans_plans: bool = True
    compares_orders: bool = True

    def decide(self, snapshot: Snapshot) -> Iterator[Action]:
        views = []
        for view in snapshot.processors:
            pace = SLOW.get(view.processor, 1.0)
            operators = tuple(replace(one, cpu=pace * (one.rows + one.results)) for one in view.operators)
            seconds = 1.0 + sum(one.cpu for one in operators)
            views.append(replace(view, operators=operators, cpu=seconds, busy=seconds))
        LONGEST.append(max(view.busy for view in views))
        return self.policy.decide(replace(snapshot, processors=tuple(views)))

    def tell(self, done: Sequence[Action]) -> Iterator[Sentence]:
        return self.policy.tell(done)


# What the run's own copies of the policy go by, and what they have measured.
SLOW: dict[int, float] = {}
LONGEST: list[float] = []


@dataclass
class Scenario:
    """A run that is fed until something happens."""

    steps: Steps
    clock: Clock
    chance: np.random.Generator
    number: int = 0
    distinct: tuple[int, int] = (MANY, FEW)
    hot: int = 0
    fed: dict[str, list[pa.Table]] = field(default_factory=lambda: {name: [] for name in KINDS})

    def rows(self) -> pa.Table:
        """The rows of a stream in a batch; so many of them have the hot key."""

        def column(distinct: int) -> np.ndarray:
            return self.chance.integers(0, distinct, ROWS)

        k, j = (100 * distinct + column(distinct) for distinct in self.distinct)
        k[: self.hot] = HOT
        j[: self.hot] = self.chance.integers(0, 10_000, self.hot)
        times = self.number * 10 + np.sort(column(10))
        return pa.table([pa.array(values) for values in (k, j, times, column(9))], schema=SCHEMA)

    def feed(self) -> None:
        batch = {name: self.rows() for name in KINDS}
        for name, rows in batch.items():
            self.fed[name].append(rows)
        self.number += 1
        self.steps.feed(batch)
        self.steps.check_owners()
        self.clock.advance(LONGEST[-1])

    def until(self, *kinds: str, of: int | None = None) -> Event:
        """Feed until one of these adaptations is decided on, of a processor if it matters which one."""
        last = self.steps.events.all()[-1].number if self.steps.events.all() else 0
        for _ in range(WITHIN):
            self.feed()
            for event in self.steps.events.since(last):
                fits = event.kind == "adapt" and event.details["adaptation"] in kinds
                if fits and (of is None or of in event.details["processors"]):
                    return event
        raise AssertionError(f"nothing of {kinds} within {WITHIN} batches: {self.steps.events.since(last)}")


def test_skew_slowness_a_hot_key_a_turn_of_selectivity_and_a_memory_cut_are_each_answered_by_what_fits(
    spark: SparkSession, tmp_path: Path
) -> None:
    SLOW.clear()
    clock = Clock()
    settings = {"clock": clock, "policies": [ByCount()], "initial_placement": [6, 1, 1]}
    with Steps(
        spark, tmp_path / "c", CHAIN, KINDS, processors=3, groups=32, joins="(A B) C", settings=settings
    ) as steps:
        scenario = Scenario(steps, clock, np.random.default_rng(6))
        scenario.until("relocation", "load_balancing", of=0)
        SLOW[1] = 6.0
        scenario.until("relocation", "load_balancing", of=1)
        SLOW.clear()
        scenario.hot = ROWS // 4
        scenario.until("diffusion")
        scenario.hot = 0
        scenario.distinct = (FEW, MANY)
        scenario.until("migration")
        steps.public.set_memory(4_000, processor=0)
        scenario.until("spill", "relocation", of=0)
        progress = steps.public.progress
        steps.end()
        events, answer = steps.public.events, steps.answer
    decided = [event for event in events if event.kind == "adapt"]
    assert len(decided) <= 12
    assert all(
        {"before", "after", "lasting", "once", "costs"} == event.details["predicted"].keys() for event in decided
    )
    told = {event.details["adaptation"] for event in events if event.kind == "outcome"}
    assert {"load_balancing", "diffusion"} <= told, "what was followed for long enough has an outcome"
    # A few numbers per operator and group, whatever comes: two operators with 32 groups on three processors.
    assert progress is not None
    assert 0 < progress["manager"]["reportBytes"] < 3 * (2 * 32 * 200 + 20_000)
    assert 0 < progress["manager"]["memoryBytes"] < 1 << 20
    fed = {name: pa.concat_tables(tables) for name, tables in scenario.fed.items()}
    newest = "greatest(A.t, B.t, C.t)"
    inside = " AND ".join(f"{name}.t >= {newest} - {WINDOW}" for name in KINDS)
    assert_same_rows(
        answer, query(f"SELECT A.v, B.v, C.v FROM A, B, C WHERE A.k = B.k AND B.j = C.j AND {inside}", fed)
    )
