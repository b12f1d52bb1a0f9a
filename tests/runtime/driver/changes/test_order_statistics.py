"""What orders of joins would cost, measured in a run: against the truth, and not too often."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from anabranch.checkpoint.folder.directory import Checkpoint
from anabranch.errors import ConfigError
from anabranch.manager.order_costs import OrderCosts
from anabranch.quantities.clock import Clock
from anabranch.runtime.driver.changes import measure_orders
from anabranch.runtime.driver.changes.measure_orders import measure_orders as measure
from tests.oracle.referee import query
from tests.oracle.steps import Kind, Steps

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.string()), ("v", pa.int64())])
KINDS = {name: Kind(SCHEMA) for name in "ABC"}
STAR = "SELECT A.v AS a, B.v AS b, C.v AS c FROM A, B, C WHERE A.k = B.k AND B.k = C.k"
CHAIN = "SELECT A.v AS a, B.v AS b, C.v AS c FROM A, B, C WHERE A.k = B.k AND B.j = C.j"
PAIRS = {"AB": "A.k = B.k", "BC": "B.{0} = C.{0}"}


def rows(chance: np.random.Generator, many: int, keys: int, other: int) -> pa.Table:
    j = chance.integers(0, other, many)
    columns = [chance.integers(0, keys, many), [f"j{n}" for n in j], np.arange(many)]
    return pa.table([pa.array(column) for column in columns], schema=SCHEMA)


@pytest.mark.parametrize(("text", "column"), [(STAR, "k"), (CHAIN, "j")])
def test_joins_that_nobody_makes_are_estimated_within_a_factor_of_two(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, column: str
) -> None:
    monkeypatch.setattr(measure_orders, "KEPT_ROWS", 1_000)  # of 8,000, so that samples are samples
    chance = np.random.default_rng(3)
    settings = {"memory": 2_000_000}
    with Steps(spark, tmp_path / "c", text, KINDS, joins="(A B) C", settings=settings, processors=2) as steps:
        fed = [
            {
                "A": rows(chance, 4_000, 1_000, 900),
                "B": rows(chance, 2_000, 2_000, 700),
                "C": rows(chance, 1_000, 1_500, 700),
            }
            for _ in range(2)
        ]
        steps.feed(fed[0])
        steps.public.spill(range(5))
        steps.feed(fed[1])
        costs = measure(steps.runner, steps.public._run.no_rows())
        estimates = steps.runner.context.run.orders.estimates["query"]
        stored = costs.queries["query"].stored
    complete = {name: pa.concat_tables([batch[name] for batch in fed]) for name in "ABC"}
    assert stored == {name: len(table) for name, table in complete.items()}
    for names, inputs in (("AB", {0, 1}), ("BC", {1, 2})):
        first, second = names
        (truth,) = (
            query(f"SELECT count(*) AS n FROM {first}, {second} WHERE {PAIRS[names].format(column)}", complete)
            .column("n")
            .to_pylist()
        )
        assert truth / 2 <= estimates.rows(frozenset(inputs)) <= 2 * truth, names


def test_orders_are_listed_with_their_costs_and_what_is_listed_can_be_migrated_to(
    spark: SparkSession, tmp_path: Path
) -> None:
    chance, clock = np.random.default_rng(4), Clock()
    few, many = (lambda n: rows(chance, n, 50, 2)), (lambda n: rows(chance, n, 50, 500))
    with Steps(spark, tmp_path / "c", CHAIN, KINDS, joins="A (B C)", settings={"clock": clock}) as steps:
        with pytest.raises(ConfigError, match="nothing has been measured of 'query' yet; ask while the run goes on"):
            steps.public.plans()
        steps.feed({"A": many(40), "B": few(100), "C": few(100)})
        clock.advance("10 seconds")
        steps.feed({"A": many(40), "B": few(100), "C": few(100)})
        plans = steps.public.plans()
        assert [plan.joins for plan in plans if plan.in_force] == ["A (B C)"]
        best = plans[0]
        assert best.joins == "(A B) C"
        assert plans == sorted(plans, key=lambda plan: plan.work)
        assert best.intermediate_rate < plans[-1].intermediate_rate
        now = plans[-1]
        rates = steps.runner.context.run.orders.latest.queries["query"].rates
        assert rates == {"A": 4.0, "B": 10.0, "C": 10.0}
        assert steps.public.plans() == plans, "nothing new has come"
        migration = steps.public.migrate(best.joins)
        assert migration.await_done(0)
        after = steps.public.plans()
        assert [plan.joins for plan in after if plan.in_force] == ["(A B) C"]
        done = next(event for event in steps.public.events if event.kind == "migrate").details
        assert done["predicted_rows"] == round(best.migration_rows)
        assert done["predicted_rows"] / 3 <= done["rows"] <= 3 * done["predicted_rows"]
        assert done["predicted_seconds"] >= 0
        assert now.joins == "A (B C)"
    recorded = Checkpoint(tmp_path / "c").records.orders()
    assert recorded is not None
    kept = OrderCosts.from_json(recorded).queries["query"]
    assert kept.in_force.joins == "A (B C)"
    assert kept.stored == {"A": 80, "B": 200, "C": 200}


def test_measuring_takes_less_than_a_fiftieth_of_the_time(spark: SparkSession, tmp_path: Path) -> None:
    chance, clock = np.random.default_rng(5), Clock()
    with Steps(spark, tmp_path / "c", STAR, KINDS, settings={"clock": clock}) as steps:
        for _ in range(2):
            steps.feed({name: rows(chance, 100, 50, 2) for name in "ABC"})
            clock.advance("1 second")
            steps.public.plans()
        orders = steps.runner.context.run.orders
        assert orders.measured == 1
        clock.advance(orders.latest.seconds / 0.02)
        steps.public.plans()
        assert orders.measured == 2
        clock.advance("1 hour")
        steps.public.plans()
        assert orders.measured == 2, "there was no other step"


def test_inputs_are_found_under_the_names_that_another_query_has_given_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    chance = np.random.default_rng(6)
    others = {
        "same": "SELECT z.v AS c, x.v AS a FROM C z, A x, B y WHERE y.j = z.j AND x.k = y.k",
        "derived": "SELECT x.v AS a, z.v AS c FROM (SELECT k, v FROM A WHERE v > 10) x, B y, C z "
        "WHERE x.k = y.k AND y.j = z.j AND y.k = z.k",
        "pair": "SELECT A.v FROM A, B WHERE A.k = B.k",
        "nested": "SELECT x.w, z.v AS c FROM (SELECT A.k, B.v AS w FROM A, B WHERE A.k = B.k) x, B y, C z "
        "WHERE x.k = y.k AND y.j = z.j",
    }
    with Steps(spark, tmp_path / "c", CHAIN, KINDS, others=others) as steps:
        steps.feed({"A": rows(chance, 50, 9, 9), "B": rows(chance, 60, 9, 9), "C": rows(chance, 70, 9, 9)})
        queries = measure(steps.runner, steps.public._run.no_rows()).queries
        estimates = steps.runner.context.run.orders.estimates
        assert dict(queries["query"].stored) == {"A": 50, "B": 60, "C": 70}
        assert dict(queries["same"].stored) == {"x": 50, "y": 60, "z": 70}
        assert dict(queries["derived"].stored) == {"x": 39, "y": 60, "z": 70}
        assert estimates["same"].rows(frozenset({1, 2})) == estimates["query"].rows(frozenset({0, 1}))
        assert len(queries["pair"].plans) == 1
        nested = queries["nested"]
        assert nested.stored["x"] > 100
        assert nested.rates["x"] / nested.rates["y"] == pytest.approx(nested.stored["x"] / 60)
        with pytest.raises(ConfigError, match="there are several queries"):
            steps.public.plans()
        assert len(steps.public.plans("derived")) > 1
