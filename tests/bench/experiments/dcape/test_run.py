"""Runs of placed plans on Spark: exact, and with the rounds and exchanged rows that were counted without it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from anabranch.bench.experiments.dcape.plan import ThesisPlan
from anabranch.bench.experiments.dcape.run import Case, Turn, run_case

pytestmark = pytest.mark.spark

# Two joins, and operators over operators below them: 0 to 2 above the first stream, 3 above the second.
PLAN = ThesisPlan("small", (2, 1, 0))
LOWER, UPPER = 3, 4


def test_a_plan_of_operators_over_operators_and_joins_exchanges_what_its_placement_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    trace = run_case(spark, tmp_path / "a", Case(PLAN, "round-robin", 2, rows=16))
    assert trace.as_placed, "and its answer has been compared"
    assert (trace.last.rounds, trace.last.costs.crossing) == (4, 3)
    assert trace.last.answers == trace.batches[0].answers > 0
    assert sum(trace.state_rows) > 0


def test_an_operator_that_moves_adds_its_round_and_no_row_beyond_it(spark: SparkSession, tmp_path: Path) -> None:
    turns = (Turn(1, UPPER, 0), Turn(2, UPPER, 1))
    moved = run_case(spark, tmp_path / "a", Case(PLAN, "fewest-rounds", 2, 4, rows=16, turns=turns))
    assert moved.as_placed, "and its answer has been compared"
    assert [batch.rounds for batch in moved.batches] == [3, 4, 4, 4]
    added = [batch.exchanged - moved.batches[0].exchanged for batch in moved.batches]
    lower = Case(PLAN, "fewest-rounds", 2, rows=16).plan.input(16).joined(1)[0, LOWER - 3]
    assert added == [0, lower, lower, lower]
    assert [move.batch for move in moved.moves] == [1, 2]
