"""What happens between two rounds of a plan: every type travels, every key type joins, conditions fail with a story."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from anabranch.errors import BadRowError
from tests.oracle.referee import assert_same_rows, query
from tests.oracle.steps import Kind, Steps
from tests.runtime.rows.test_keys import SAME_TYPE
from tests.runtime.rows.test_types import CARRIED, NUMBERS, PAYLOAD

pytestmark = pytest.mark.spark

ROWS = pa.table({"k": [1, 2, 3], "i": [1, 2, 3]}, schema=NUMBERS)
CHAIN = "FROM L, M, R WHERE L.k = M.k AND M.i = R.i"


@pytest.fixture(autouse=True)
def _time_type(spark: SparkSession) -> None:
    """Spark 4.3 has TIME, but not by default."""
    spark.conf.set("spark.sql.timeType.enabled", "true")


def collected(spark: SparkSession, checkpoint: Path, text: str, kinds: dict[str, Kind], joins: str) -> list[Row]:
    """The answer when two rows of L meet M and wait in state for R, in another run, and R waits for the third."""
    found: list[Row] = []

    def sink(results: DataFrame, _: int) -> None:
        found.extend(results.collect())

    with Steps(spark, checkpoint, text, kinds, processors=2, sink=sink, joins=joins) as steps:
        steps.feed({"L": ROWS, "M": ROWS.slice(1), "R": ROWS.slice(0, 1)})
    with Steps(spark, checkpoint, text, kinds, processors=3, sink=sink, joins=joins) as steps:
        steps.feed({"R": ROWS.slice(1), "M": ROWS.slice(0, 1)})
    return found


def test_payload_of_every_type_survives_between_rounds(spark: SparkSession, tmp_path: Path) -> None:
    select = ("k", *(f"{expression} AS {name}" for name, expression in PAYLOAD.items()))
    kinds = {"L": Kind(NUMBERS, select=select), "M": Kind(NUMBERS), "R": Kind(NUMBERS)}
    found = collected(spark, tmp_path / "checkpoint", f"SELECT L.*, R.i {CHAIN}", kinds, "(L M) R")
    expected = spark.createDataFrame(ROWS).selectExpr(*select, "i").collect()
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def test_payload_that_arrow_cannot_carry_survives_between_rounds(spark: SparkSession, tmp_path: Path) -> None:
    select = ("k", *(f"{expression} AS {name}" for name, expression in CARRIED.items()))
    as_text = ", ".join(f"concat_ws(' ', typeof(L.{name}), CAST(L.{name} AS STRING)) AS {name}" for name in CARRIED)
    kinds = {"L": Kind(NUMBERS, select=select), "M": Kind(NUMBERS), "R": Kind(NUMBERS)}
    found = collected(spark, tmp_path / "checkpoint", f"SELECT L.k, {as_text} {CHAIN}", kinds, "(L M) R")
    spark.createDataFrame(ROWS).selectExpr(*select).createOrReplaceTempView("L")
    assert sorted(found) == sorted(spark.sql(f"SELECT L.k, {as_text} FROM L").collect())


def test_keys_of_every_type_join_after_they_have_travelled(spark: SparkSession, tmp_path: Path) -> None:
    """Row 3 of R differs from row 3 of M in the last column alone."""
    literals = {f"c{n}": (kind, next(iter(values))) for n, (kind, values) in enumerate(SAME_TYPE.items())}
    same = [f"CAST({literal} AS {kind}) AS {name}" for name, (kind, literal) in literals.items()]
    last, (kind, _) = list(literals.items())[-1]
    other = list(SAME_TYPE[kind])[-1]
    differs = [*same[:-1], f"CAST(IF(i = 3, {other}, {literals[last][1]}) AS {kind}) AS {last}"]
    kinds = {
        "L": Kind(NUMBERS),
        "M": Kind(NUMBERS, select=("k", "i", *same)),
        "R": Kind(NUMBERS, select=("k", "i", *differs)),
    }
    equal = " AND ".join(f"M.{name} = R.{name}" for name in literals)
    text = f"SELECT L.k, M.i, R.i AS j FROM L, M, R WHERE L.k = M.k AND {equal}"
    found = collected(spark, tmp_path / "checkpoint", text, kinds, "(L M) R")
    assert sorted(map(tuple, found)) == [(n, n, j) for n in (1, 2, 3) for j in (1, 2)]


def test_a_condition_that_fails_between_rounds_is_named_with_the_row(spark: SparkSession, tmp_path: Path) -> None:
    kinds = {name: Kind(NUMBERS) for name in "LMR"}
    text = f"SELECT L.k {CHAIN} AND 1 / (L.i - M.i) < 5"
    with Steps(spark, tmp_path / "checkpoint", text, kinds, joins="(L M) R") as steps:
        with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
            steps.feed({"L": ROWS, "M": ROWS})
        told = steps.runner.failure
    assert isinstance(told, BadRowError)
    assert "the condition 1 / (`L.i` - `M.i`) < 5 fails on a joined row: [DIVIDE_BY_ZERO]" in str(told)
    assert re.search(r"The row is L.k=(\d), L.i=\1, M.i=\1\.", str(told))


def test_a_grouping_by_the_key_of_the_join_needs_no_round_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    kinds = {name: Kind(NUMBERS, "i", 0) for name in "LMR"}
    windows = "FROM L [RANGE 2 MILLISECONDS], M [RANGE 1 MILLISECOND], R WHERE L.k = M.k"
    cases = [
        ("AND M.k = R.k", "M.k", 1),
        ("AND M.k = R.k", "M.k + 0", 2),
        ("AND M.k = R.k AND L.i <> R.i + 9", "M.k", 1),
        ("AND M.k = R.k AND L.i % 9 <> R.i + 9", "M.k", 2),
        ("AND M.i = R.i", "R.i", 2),
        ("AND M.i = R.i", "L.k", 3),
    ]
    selected = "count(*) AS n, sum(L.i) AS t, count(R.i) AS r"
    texts = [f"SELECT {by} AS g, {selected} {windows} {condition} GROUP BY {by}" for condition, by, _ in cases]
    others = {f"query {n}": text for n, text in enumerate(texts) if n}
    rows = pa.table({"k": [1, 1, 1, 2], "i": [1, 2, 3, 3]}, schema=NUMBERS)
    with Steps(spark, tmp_path, texts[0], kinds, others=others) as steps:
        steps.feed({"L": rows, "M": rows.slice(0, 2)})
        steps.feed({"M": rows.slice(2), "R": rows})
        steps.end()
    answers = [steps.answer, *(pa.concat_tables(steps.other_answers[name]) for name in others)]
    for text, answer, (condition, by, rounds) in zip(texts, answers, cases, strict=True):
        assert f"exchanged by key hash in {rounds} round" in steps.public.engine.sql(text).plan
        newest = "greatest(L.i, M.i, R.i)"
        joined = f"{condition} AND L.i >= {newest} - 2 AND M.i >= {newest} - 1"
        expected = f"""
            WITH j AS (
                SELECT {by} AS g, L.i AS l, R.i AS r, {newest} AS t, least(L.i + 2, M.i + 1) AS e,
                       row_number() OVER () AS n
                FROM x L, x M, x R WHERE L.k = M.k {joined}
            )
            SELECT a.g, count(*), sum(b.l), count(b.r) FROM j a JOIN j b ON a.g = b.g AND b.t <= a.t AND a.t <= b.e
            GROUP BY a.n, a.g
        """
        assert_same_rows(answer, query(expected, {"x": rows}))


def test_a_program_that_says_another_order_goes_on_with_the_one_in_force(spark: SparkSession, tmp_path: Path) -> None:
    kinds = {name: Kind(NUMBERS) for name in "LMR"}
    with Steps(spark, tmp_path / "checkpoint", f"SELECT L.k {CHAIN}", kinds, joins="(L M) R") as steps:
        steps.feed({"L": ROWS})
        step = steps.taken.last_step()
        assert step is not None
        assert (step.processors, len(step.reports)) == (2, 4)
    with Steps(spark, tmp_path / "checkpoint", f"SELECT L.k {CHAIN}", kinds, joins="L (M R)") as steps:
        assert steps.order() == "(L M) R"
        steps.feed({"M": ROWS, "R": ROWS})
        assert sorted(steps.answer["k"].to_pylist()) == [1, 2, 3]


def test_odd_names_and_joined_rows_without_any_time_among_rows_that_have_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    """`ts` as an alias and `0` as a column look like what joined rows carry beside their columns."""
    timeless = Kind(NUMBERS, select=("k", "i", "k AS `0`", "i AS `a.b`"))
    timed = Kind(NUMBERS, "i", 0, select=("k", "i", "k AS `0`"))
    kinds = {"ts": timeless, "M": timeless, "R": timed, "S": timed}
    text = (
        "SELECT ts.`0`, M.`a.b`, R.`0` AS r, S.i FROM ts, M, R [RANGE 1 MILLISECOND], S [RANGE 1 MILLISECOND] "
        "WHERE ts.k = M.k AND M.i = R.i AND R.`0` = S.`0`"
    )
    for number, joins in enumerate(["auto", "((ts M) R) S", "(ts M) (R S)", "ts (M (R S))"]):
        with Steps(spark, tmp_path / str(number), text, kinds, joins=joins) as steps:
            steps.feed({"ts": ROWS, "M": ROWS.slice(1)})
            steps.feed({"R": ROWS, "M": ROWS.slice(0, 1), "S": ROWS})
            assert sorted(map(tuple, (row.values() for row in steps.answer.to_pylist()))) == [
                (n,) * 4 for n in (1, 2, 3)
            ]
