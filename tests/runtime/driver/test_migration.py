"""A query goes on in another order of its joins, and nothing is lost or there twice, whatever the strategy."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.oracle.referee import assert_same_rows, query
from tests.oracle.steps import Kind, Steps

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("v", pa.int64())])
KINDS = {name: Kind(SCHEMA) for name in "ABCD"}
CHAIN = (
    "SELECT A.v AS a, B.v AS b, C.v AS c, D.v AS d FROM A, B, C, D "
    "WHERE A.k = B.k AND B.j = C.j AND C.k = D.j AND A.v <> D.v"
)
STAR = "SELECT A.v AS a, B.v AS b, C.v AS c FROM A, B, C WHERE A.k = B.k AND B.k = C.k"


def rows(chance: random.Random, many: int = 14) -> dict[str, pa.Table]:
    return {
        name: pa.table([[chance.choice([*range(4), None]) for _ in range(many)] for _ in SCHEMA.names], schema=SCHEMA)
        for name in KINDS
    }


def complete(fed: list[dict[str, pa.Table]]) -> dict[str, pa.Table]:
    return {name: pa.concat_tables([batch[name] for batch in fed]) for name in KINDS}


@pytest.mark.parametrize(
    ("text", "first", "shapes"),
    [
        (CHAIN, "((A B) C) D", ["A (B (C D))", "(A B) (C D)", "A ((B C) D)"]),
        (STAR, "A B C", ["(A B) C", "A (B C)", "multiway"]),
    ],
)
def test_state_moves_from_order_to_order(
    spark: SparkSession, tmp_path: Path, text: str, first: str, shapes: list[str]
) -> None:
    chance, fed = random.Random(1), []
    with Steps(spark, tmp_path / "c", text, KINDS, joins=first, processors=3) as steps:
        for shape in [None, *shapes]:
            if shape is not None:
                steps.public.migrate(shape, "moving-state")
            for _ in range(2):
                fed.append(rows(chance))
                steps.feed(fed[-1])
        answer = steps.answer
    assert_same_rows(answer, query(text, complete(fed)))


def test_a_background_migration_goes_on_in_pieces_while_the_old_plan_answers(
    spark: SparkSession, tmp_path: Path
) -> None:
    chance, fed = random.Random(2), []
    with Steps(spark, tmp_path / "c", CHAIN, KINDS, joins="((A B) C) D", processors=2) as steps:
        for _ in range(3):
            fed.append(rows(chance))
            steps.feed(fed[-1])
        migration = steps.public.migrate("A (B (C D))", "background", pace=10)
        shares = []
        while migration.phase == "filling":
            shares.append(migration.share_done)
            fed.append(rows(chance, 5))
            steps.feed(fed[-1])
        assert len(shares) > 3
        assert shares == sorted(shares)
        assert migration.await_done(0)
        fed.append(rows(chance))
        steps.feed(fed[-1])
        answer = steps.answer
    assert_same_rows(answer, query(CHAIN, complete(fed)))
