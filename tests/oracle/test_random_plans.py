"""Random plans: joins over different keys in any shape, and what groups them, with restarts, against DuckDB.

The answer has to be that of DuckDB on the rows that are on time by SPEC section 0, whatever the shape, the number of
groups, processors and batches, wherever operators are placed, and whatever other queries are answered beside it. A few
seeds here; `make soak` draws others for as long as it is told.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.manager.snapshot import Policy
from tests.oracle.chance import ChanceDiffusion, ChanceMoves, ChanceSpill
from tests.oracle.lives import Hardships, Life
from tests.oracle.plans import Plan, draw, draw_grouped, draw_others

pytestmark = pytest.mark.spark


def check(
    spark: SparkSession,
    directory: Path,
    plan: Plan,
    seed: int,
    *policies: Policy,
    others: dict[str, Plan] | None = None,
) -> None:
    life = Life(spark, directory, plan, random.Random(seed), others, Hardships(policies))
    life.live()
    life.check()


@pytest.mark.parametrize("seed", [18])
def test_a_random_plan_answers_as_duckdb_does(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    check(spark, tmp_path, draw(seed), seed)


@pytest.mark.parametrize("seed", [4, 8])
def test_a_random_plan_with_groups_answers_as_duckdb_does(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    check(spark, tmp_path, draw_grouped(seed), seed)


@pytest.mark.parametrize("seed", [31])
def test_spilling_by_chance_changes_no_answer(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    check(spark, tmp_path, draw(seed), seed, ChanceSpill(seed))


@pytest.mark.parametrize("seed", [2, 6])
def test_spilling_by_chance_changes_no_groups(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    check(spark, tmp_path, draw_grouped(seed), seed, ChanceSpill(seed))


@pytest.mark.parametrize("seed", [5])
def test_moving_state_by_chance_changes_no_answer(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    check(spark, tmp_path, draw(seed), seed, ChanceMoves(seed), ChanceSpill(seed))


@pytest.mark.parametrize("seed", [12, 14])
def test_moving_state_by_chance_changes_no_groups(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    check(spark, tmp_path, draw_grouped(seed), seed, ChanceSpill(seed), ChanceMoves(seed))


@pytest.mark.parametrize("seed", [3])
def test_adapting_by_itself_changes_no_answer(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    hardships = Hardships((ab.Adaptive(), ChanceMoves(seed)), memory=2_000, migrations=0.5)
    life = Life(spark, tmp_path, draw(seed, 3), random.Random(seed), hardships=hardships)
    life.live()
    life.check()


@pytest.mark.parametrize("seed", [33, 46])
def test_diffusing_groups_by_chance_changes_no_answer(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """By a policy and by hand, with other masters and hosts, among spills, moves, rescales and crashes."""
    plan, policies = draw(seed, 3, wild=True), (ChanceDiffusion(seed), ChanceSpill(seed), ChanceMoves(seed))
    hardships = Hardships(policies, crashes=0.5 if seed % 2 else 0.0, diffusions=0.8)
    life = Life(spark, tmp_path, plan, random.Random(seed), hardships=hardships)
    life.live()
    life.check()
    assert "diffuse" in life.done


@pytest.mark.parametrize("seed", [7, 8, 15])
def test_migrating_by_chance_changes_no_answer(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """From any order to any other, several times, with spills, moves, rescales and crashes in between."""
    plan, policies = draw(seed, 3 + seed % 3, wild=seed % 4 == 0), (ChanceSpill(seed), ChanceMoves(seed))
    hardships = Hardships(policies, crashes=0.5 if seed % 2 else 0.0, migrations=0.8)
    life = Life(spark, tmp_path, plan, random.Random(seed), hardships=hardships)
    life.live()
    life.check()


@pytest.mark.parametrize("seed", [2, 5])
def test_reallocating_by_chance_changes_no_answer(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Operators and sub-plans go anywhere, with spills, moves, rescales, migrations and crashes in between."""
    plan, policies = draw_grouped(seed) if seed % 2 else draw(seed, 4), (ChanceSpill(seed), ChanceMoves(seed))
    hardships = Hardships(policies, crashes=0.4, migrations=0.2, diffusions=0.2, reallocations=0.8)
    life = Life(spark, tmp_path, plan, random.Random(seed), hardships=hardships)
    life.live()
    life.check()


@pytest.mark.parametrize("seed", [22])
def test_sending_queries_to_other_clusters_by_chance_changes_no_answer(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """With other clusters in each session, and spills, moves, migrations, reallocations and crashes in between."""
    plan = draw(seed, 3)
    hardships = Hardships(
        (ChanceSpill(seed), ChanceMoves(seed)), crashes=0.4, migrations=0.3, reallocations=0.3, changes=True, tiers=True
    )
    life = Life(spark, tmp_path, plan, random.Random(seed), draw_others(seed, plan), hardships)
    life.live()
    life.check()
    assert any("sent to" in done for done in life.done)


@pytest.mark.parametrize("seed", [10])
def test_migrating_by_chance_changes_no_groups(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    policies = (ChanceSpill(seed), ChanceMoves(seed))
    life = Life(spark, tmp_path, draw_grouped(seed), random.Random(seed), hardships=Hardships(policies, migrations=0.8))
    life.live()
    life.check()


@pytest.mark.parametrize("seed", [6])
def test_random_plans_in_one_engine_each_answer_as_duckdb_does(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    plan = draw_grouped(seed) if seed % 3 == 0 else draw(seed, 3)
    others = draw_others(seed, plan) if len(plan.names) > 1 else {"same": plan}
    check(spark, tmp_path, plan, seed, others=others)


@pytest.mark.parametrize("seed", [3, 9])
def test_crashes_and_changes_of_plan_by_chance_change_no_answer(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    plan = draw(seed, 3, wild=True)
    others = draw_others(seed, plan, wild=True)
    policies = (ChanceSpill(seed), ChanceMoves(seed))
    life = Life(spark, tmp_path, plan, random.Random(seed), others, Hardships(policies, crashes=0.5, changes=True))
    life.live()
    life.check()
