"""State that was made under one plan means the same under another: other queries, another order, other placements."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from anabranch.manager.patterns.named import PATTERNS
from anabranch.manager.patterns.operator_graph import OperatorGraph
from anabranch.manager.patterns.pattern import placements_of
from anabranch.plan.placement import Placement
from tests.oracle.referee import assert_same_rows, query
from tests.oracle.steps import Kind, Steps

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int32()), ("j", pa.int64()), ("v", pa.int32()), ("w", pa.string()), ("ts", pa.int64())])
KINDS = {name: Kind(SCHEMA, "ts", 60_000_000) for name in "ABC"}
CHAIN = "SELECT A.v AS a, B.v AS b, C.v AS c FROM A, B, C WHERE A.k = B.k AND B.j = C.j"


def rows(seed: int, count: int = 60) -> pa.Table:
    chance = random.Random(seed)
    numbers = [[chance.randrange(4) for _ in range(count)] for _ in range(3)]
    words = [chance.choice(["1", "2", "x", None]) for _ in range(count)]
    return pa.table([*numbers, words, [chance.randrange(1000) for _ in range(count)]], schema=SCHEMA)


COMPLETE = {name: rows(seed) for seed, name in enumerate("ABC")}


def halves(first: bool) -> dict[str, pa.Table]:
    return {name: table.slice(0, 30) if first else table.slice(30) for name, table in COMPLETE.items()}


def test_queries_in_another_order_find_their_state(spark: SparkSession, tmp_path: Path) -> None:
    texts = {"one": CHAIN, "two": CHAIN.replace("A.v AS a, B.v AS b", "A.w AS a, B.w AS b")}
    answers: dict[str, list[pa.Table]] = {name: [] for name in texts}
    for first, second in (("one", "two"), ("two", "one")):
        with Steps(
            spark,
            tmp_path / "checkpoint",
            texts[first],
            KINDS,
            answers=answers[first],
            name=first,
            others={second: texts[second]},
            other_answers={second: answers[second]},
        ) as steps:
            steps.feed(halves(first == "one"))
    for name, text in texts.items():
        assert_same_rows(pa.concat_tables(answers[name]), query(text, COMPLETE))


@pytest.mark.parametrize(
    ("keys", "equal"),
    [("A.k, B.v", "A.k = B.k AND A.v = B.v"), ("A.k", "A.k = B.j"), ("B.v, A.k", "A.k = B.k AND A.v = B.v")],
)
def test_groups_stay_whole_wherever_they_are_placed(keys: str, equal: str, spark: SparkSession, tmp_path: Path) -> None:
    """What is grouped by the key it is joined on has that join's hash, with its operator beside the join or not."""
    text = (
        f"SELECT {keys}, count(*) AS n, sum(A.v + B.v) AS s FROM A [RANGE 1 MINUTE], B [RANGE 1 MINUTE] "
        f"WHERE {equal} GROUP BY {keys}"
    )
    answers: list[pa.Table] = []
    for first, pattern in ((True, "spread"), (False, "round-robin")):

        def placed(graph: OperatorGraph, pattern: str = pattern) -> tuple[Placement, ...]:
            return placements_of(PATTERNS[pattern], graph, 16, 2)

        with Steps(spark, tmp_path / "checkpoint", text, KINDS, answers=answers, place=placed) as steps:
            steps.feed(halves(first))
            if not first:
                steps.end()
    plain = ", ".join(f"{key} AS g{n}" for n, key in enumerate(keys.split(", ")))
    names = ", ".join(f"g{n}" for n in range(len(keys.split(", "))))
    statement = (
        f"SELECT {names}, count(*) OVER w, sum(x) OVER w "
        f"FROM (SELECT {plain}, A.v + B.v AS x, greatest(A.ts, B.ts) AS t FROM A, B WHERE {equal}) "
        f"WINDOW w AS (PARTITION BY {names} ORDER BY t RANGE BETWEEN 60000 PRECEDING AND CURRENT ROW)"
    )
    assert_same_rows(pa.concat_tables(answers), query(statement, COMPLETE))


def test_queries_that_differ_only_by_case_or_fail_on_each_others_rows_live_together(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each is computed of its own rows only: a CAST that one of them asks for fails on rows of another."""
    numbers = "SELECT a.v, c.v AS c FROM A a, B b, C c WHERE a.k = b.k AND a.w <> 'x' AND CAST(a.w AS INT) = c.v"
    words = "SELECT A.w, C.v AS c FROM A, B, C WHERE A.j = B.j AND A.w = C.w"
    with Steps(spark, tmp_path / "checkpoint", numbers, KINDS, others={"words": words}) as steps:
        steps.feed(COMPLETE)
    assert_same_rows(steps.answer, query(numbers, COMPLETE))
    assert_same_rows(
        pa.concat_tables(steps.other_answers["words"]), query(words.replace("concat(A.w, B.w)", "A.w || B.w"), COMPLETE)
    )
