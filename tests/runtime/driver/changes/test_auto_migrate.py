"""A run whose selectivities turn goes on in the order that is cheaper then, with the same answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.manager.actions import MigrateQuery
from anabranch.quantities.clock import Clock
from tests.oracle.referee import assert_same_rows
from tests.oracle.steps import Kind, Steps

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("t", pa.int64()), ("v", pa.int64())])
KINDS = {name: Kind(SCHEMA, "t", 0) for name in "ABC"}
WINDOWS = "A [RANGE 20 SECONDS], B [RANGE 20 SECONDS], C [RANGE 20 SECONDS]"
CHAIN = f"SELECT A.v AS a, B.v AS b, C.v AS c FROM {WINDOWS} WHERE A.k = B.k AND B.j = C.j"
FEW, MANY = 10, 500
ROWS = 100
# Time between two batches, in which orders may be measured again.
BETWEEN = 1_000


def batch(chance: np.random.Generator, number: int, k: int, j: int) -> dict[str, pa.Table]:
    """Rows of ten seconds, with so many different values of each key."""

    def column(distinct: int) -> np.ndarray:
        return chance.integers(0, distinct, ROWS)

    times = number * 10_000 + np.sort(chance.integers(0, 10_000, ROWS))
    return {
        name: pa.table([pa.array(values) for values in (column(k), column(j), times, column(9))], schema=SCHEMA)
        for name in KINDS
    }


def intermediate_rows(steps: Steps) -> int:
    """The rows that the operators made in the last batch of which no answer was made."""
    result = [result for result in steps.public._run.results if result.batch_id >= 0][-1]
    made = dict.fromkeys(result.operators, 0)
    for report in result.reports:
        for name, produced in zip(result.operators, report.produced, strict=True):
            made[name] += produced
    return sum(produced for name, produced in made.items() if name != "join of A, B, C" and name.count(",") == 1)


def migrated(steps: Steps) -> list[str]:
    return [event.details["after"] for event in steps.public.events if event.kind == "migrate"]


def test_after_a_turn_of_selectivity_there_are_at_most_a_third_of_the_intermediate_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    chance, clock = np.random.default_rng(6), Clock()
    settings = {"clock": clock, "policies": [ab.AutoMigrate()]}
    fed = [batch(chance, number, *((MANY, FEW) if number < 4 else (FEW, MANY))) for number in range(12)]
    made = []
    with Steps(spark, tmp_path / "c", CHAIN, KINDS, joins="(A B) C", settings=settings) as steps:
        for one in fed:
            steps.feed(one)
            made.append(intermediate_rows(steps))
            clock.advance(BETWEEN)
        steps.end()
        assert migrated(steps) == ["A (B C)"]
        told = next(event for event in steps.public.events if event.kind == "migrate")
        assert {"predicted_seconds", "predicted_rows", "seconds", "rows"} <= told.details.keys()
        begun = next(event for event in steps.public.events if event.kind == "migrating")
        assert "rows of work per second are to be expected" in begun.reason
        answer = steps.answer
    assert max(made[:4]) * 3 < max(made[4:8])
    assert max(made[-2:]) * 3 <= max(made[4:8])
    with Steps(spark, tmp_path / "same", CHAIN, KINDS, joins="(A B) C", processors=1) as steps:
        steps.feed({name: pa.concat_tables([one[name] for one in fed]) for name in KINDS})
        steps.end()
        assert_same_rows(answer, steps.answer)


def test_selectivities_that_turn_all_the_time_are_not_followed(spark: SparkSession, tmp_path: Path) -> None:
    chance, clock = np.random.default_rng(7), Clock()
    settings = {"clock": clock, "policies": [ab.AutoMigrate(gain=2.5)]}
    with Steps(spark, tmp_path / "c", CHAIN, KINDS, joins="(A B) C", settings=settings) as steps:
        for number in range(12):
            steps.feed(batch(chance, number, *((MANY, FEW) if number // 2 % 2 else (FEW, MANY))))
            clock.advance(BETWEEN)
        assert steps.runner.context.run.orders.measured >= 8
        assert len(migrated(steps)) <= 1


def test_what_cannot_be_done_for_a_moment_or_at_all_does_not_end_adapting(spark: SparkSession, tmp_path: Path) -> None:
    """The run cannot be looked at while a query is added and Spark's query is started anew for that; and an order that
    nobody can read is refused."""
    chance, clock = np.random.default_rng(8), Clock()
    settings = {"clock": clock, "policies": [ab.AutoMigrate()]}
    with Steps(spark, tmp_path / "c", CHAIN, KINDS, joins="(A B) C", settings=settings) as steps:
        orders = steps.runner.context.run.orders
        steps.runner.context.run.migrations.append(MigrateQuery("query", "(A", "a test wants it"))
        for number in range(2):
            steps.feed(batch(chance, number, FEW, MANY))
            clock.advance(BETWEEN)
            assert orders.measured == number + 1
            steps.public.relocate(0, to=number)  # a step, after which there is something new to measure
            steps.runner.gate.closed = True
            steps.public._run._by_policy.measure()
            steps.runner.gate.closed = False
        assert [event.reason[:32] for event in steps.public.events if event.kind == "warning"] == [
            "query does not migrate to (A: jo"
        ]
