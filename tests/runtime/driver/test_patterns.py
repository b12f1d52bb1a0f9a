"""Wherever a pattern puts operators the answer is the same, also from one pattern to the next."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from anabranch.manager.patterns import FewestRounds, Grouping, OperatorGraph, RoundRobin
from tests.oracle.referee import assert_same_rows, query
from tests.oracle.steps import Kind, Steps

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int32()), ("v", pa.int32()), ("ts", pa.int64())])
KINDS = {name: Kind(SCHEMA, "ts", 60_000_000) for name in "ABCD"}
TEXT = "SELECT A.v AS a, B.v AS b, C.v AS c, D.v AS d FROM A, B, C, D WHERE A.k = B.k AND B.k = C.k AND C.v = D.v"
JOINS = "((A B) C) D"
BATCHES = 5


class OnTheLastOfThem:
    """A pattern of a user's own: joins alternate between the last processor and all but the first."""

    def place(self, graph: OperatorGraph, processors: Sequence[int]) -> Mapping[int, int | tuple[int, ...]]:
        others = tuple(processors[1:])
        return {operator.number: others[-1] if operator.number % 2 else others for operator in graph.operators}


def rows(seed: int) -> pa.Table:
    chance = random.Random(seed)
    columns = [[chance.randrange(most) for _ in range(12 * BATCHES)] for most in (4, 5, 1000)]
    return pa.table(columns, schema=SCHEMA)


def test_patterns_follow_each_other_on_one_checkpoint_and_change_no_answer(spark: SparkSession, tmp_path: Path) -> None:
    complete = {name: rows(seed) for seed, name in enumerate("ABCD")}
    answers: list[pa.Table] = []
    rounds = []
    patterns = [RoundRobin(), OnTheLastOfThem(), "grouping", FewestRounds(), Grouping()]
    for n, pattern in enumerate(patterns):
        settings = {"placement": pattern}
        with Steps(
            spark, tmp_path / "checkpoint", TEXT, KINDS, 3, settings=settings, answers=answers, joins=JOINS
        ) as steps:
            rounds.append(max(steps.plan.layout.rounds) + 1)
            if n == len(patterns) - 1:
                steps.public.rescale(2)
                homes = [set(routing.placement) for routing in steps.runner.context.in_force.distribution.routings]
                assert homes == [{0}, {0}, {1}], "as the pattern has it on two"
            steps.feed({name: table.slice(12 * n, 12) for name, table in complete.items()})
            steps.check_owners()
    assert rounds == [3, 3, 3, 2, 3], "ours keeps the joins on one key together"
    assert_same_rows(pa.concat_tables(answers), query(TEXT, complete))
