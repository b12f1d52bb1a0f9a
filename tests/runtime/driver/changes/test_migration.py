"""A query goes on in another order of its joins, and nothing is lost or there twice, whatever the strategy."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from anabranch.errors import ConfigError, MigrationError, QueryError
from anabranch.state.failpoints import VARIABLE
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
GROUPS = "SELECT A.j, count(*) AS n, max(C.v) AS most FROM {} WHERE A.k = B.k AND B.j = C.j GROUP BY A.j"

TIMED_SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("t", pa.int64()), ("v", pa.int64())])
TIMED = {name: Kind(TIMED_SCHEMA, "t", 10_000) for name in "ABC"}
WINDOWS = "A [RANGE 50 MILLISECONDS], B [RANGE 40 MILLISECONDS], C [RANGE 30 MILLISECONDS]"
TIMED_CHAIN = f"SELECT A.v AS a, B.v AS b, C.v AS c FROM {WINDOWS} WHERE A.k = B.k AND B.j = C.j"


def rows(chance: random.Random, many: int = 14) -> dict[str, pa.Table]:
    return {
        name: pa.table([[chance.choice([*range(4), None]) for _ in range(many)] for _ in SCHEMA.names], schema=SCHEMA)
        for name in KINDS
    }


def timed_rows(chance: random.Random, now: int) -> dict[str, pa.Table]:
    """Rows of the last ten milliseconds before a time, which is not late under a lateness of ten."""

    def row() -> tuple[int, ...]:
        return chance.randrange(3), chance.randrange(3), now - chance.randrange(10), chance.randrange(100)

    return {
        name: pa.table([list(column) for column in zip(*(row() for _ in range(8)), strict=True)], schema=TIMED_SCHEMA)
        for name in TIMED
    }


def together(fed: list[dict[str, pa.Table]]) -> dict[str, pa.Table]:
    return {name: pa.concat_tables([batch[name] for batch in fed]) for name in fed[0]}


def unmigrated(spark: SparkSession, checkpoint: Path, text: str, fed: list[dict[str, pa.Table]]) -> pa.Table:
    """The answer of a query that stays as it is, to all rows at once, none of which is late.

    With random plans DuckDB is the referee of windows, too.
    """
    with Steps(spark, checkpoint, text, TIMED, joins="A (B C)", processors=1) as steps:
        steps.feed(together(fed))
        steps.end()
        return steps.answer


@pytest.mark.parametrize(
    ("text", "first", "orders"),
    [
        (CHAIN, "((A B) C) D", ["A (B (C D))", "(A B) (C D)", "A ((B C) D)"]),
        (STAR, "A B C", ["(A B) C", "A (B C)", "multiway"]),
    ],
)
def test_state_moves_from_order_to_order(
    spark: SparkSession, tmp_path: Path, text: str, first: str, orders: list[str]
) -> None:
    chance, fed = random.Random(1), []
    with Steps(spark, tmp_path / "c", text, KINDS, joins=first, processors=3) as steps:
        for order in [None, *orders]:
            if order is not None:
                assert steps.public.migrate(order, "moving-state").await_done(0)
            fed.append(rows(chance))
            steps.feed(fed[-1])
            steps.check_owners()
        answer = steps.answer
    assert_same_rows(answer, query(text, together(fed)))


def test_a_migration_in_the_background_goes_on_in_pieces_while_the_old_order_answers(
    spark: SparkSession, tmp_path: Path
) -> None:
    chance, fed = random.Random(2), []
    with Steps(spark, tmp_path / "c", CHAIN, KINDS, joins="((A B) C) D", processors=2) as steps:
        for _ in range(2):
            fed.append(rows(chance))
            steps.feed(fed[-1])
        migration = steps.public.migrate("A (B (C D))", "background", pace=4)
        shares = []
        while migration.phase == "filling":
            shares.append(migration.share_done)
            fed.append(rows(chance, 5))
            steps.feed(fed[-1])
            assert_same_rows(steps.answer, query(CHAIN, together(fed)))
        assert len(shares) > 3
        assert shares == sorted(shares)
        assert migration.await_done(0)
        fed.append(rows(chance))
        steps.feed(fed[-1])
        begun, done = (e for e in steps.events.all() if e.kind in ("migrating", "migrate"))
        answer = steps.answer
    assert "((A B) C) D to A (B (C D)) by background" in begun.reason
    assert done.details["steps"] >= len(shares)
    assert_same_rows(answer, query(CHAIN, together(fed)))


def test_a_parallel_track_ends_when_all_that_had_come_before_is_dead(spark: SparkSession, tmp_path: Path) -> None:
    """Windows of 50 ms at most and a lateness of 10: rows up to time 100 are dead when the slowest watermark is past
    150."""
    chance, fed = random.Random(3), []
    with Steps(spark, tmp_path / "c", TIMED_CHAIN, TIMED, joins="(A B) C", processors=2) as steps:
        for now in range(20, 101, 20):
            fed.append(timed_rows(chance, now))
            steps.feed(fed[-1])
        newest = max(max(table["t"].to_pylist()) for batch in fed for table in batch.values())
        migration = steps.public.migrate("A (B C)", "parallel-track")
        now, ended = 100, None
        while now < 200:
            now += 10
            fed.append(timed_rows(chance, now))
            steps.feed(fed[-1])
            if migration.phase == "done" and ended is None:
                ended = now
        answer = steps.answer
    assert ended is not None
    assert newest + 50 < ended <= newest + 50 + 10 + 3 * 10, "W plus lateness, and a batch or two"
    assert_same_rows(answer, unmigrated(spark, tmp_path / "d", TIMED_CHAIN, fed))


def test_windows_and_groups_above_see_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    chance, fed, text = random.Random(4), [], GROUPS.format(WINDOWS)
    with Steps(spark, tmp_path / "c", text, TIMED, joins="(A B) C", processors=2) as steps:
        for nth, now in enumerate(range(20, 111, 10)):
            if nth in (2, 5):
                strategy = "moving-state" if nth == 2 else "background"
                migration = steps.public.migrate("A (B C)" if nth == 2 else "(A B) C", strategy, pace=15)
            fed.append(timed_rows(chance, now))
            steps.feed(fed[-1])
        assert migration.await_done(0)
        steps.end()
        answer = steps.answer
    assert_same_rows(answer, unmigrated(spark, tmp_path / "d", text, fed))


def test_spilled_state_and_rows_that_wait_migrate_too(spark: SparkSession, tmp_path: Path) -> None:
    chance, fed = random.Random(5), []
    with Steps(spark, tmp_path / "c", CHAIN, KINDS, joins="((A B) C) D", processors=2) as steps:
        for order in (None, "A (B (C D))", "(A B) (C D)"):
            if order is not None:
                steps.public.spill()
                fed.append(rows(chance))
                steps.feed(fed[-1])
                steps.public.relocate([0, 3, 7], to=1, pace=1)
                assert steps.public.migrate(order, "moving-state").await_done(0)
                steps.public.rescale(3 if order.startswith("A") else 1)
            fed.append(rows(chance))
            steps.feed(fed[-1])
            steps.check_owners()
        steps.end()
        answer = steps.answer
    assert_same_rows(answer, query(CHAIN, together(fed)))


@pytest.mark.parametrize("place", ["begun", "replayed", "settled", "adopted", "ended"])
def test_after_an_error_or_a_crash_the_old_order_is_in_force_or_the_new_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    chance, fed, answers = random.Random(6), [], []
    with Steps(spark, tmp_path / "c", CHAIN, KINDS, joins="((A B) C) D", answers=answers) as steps:
        fed.append(rows(chance))
        steps.feed(fed[-1])
        monkeypatch.setenv(VARIABLE, f"migration.{place}=raise@once:{tmp_path / 'marker'}")
        with pytest.raises(Exception, match=f"failpoint migration.{place}"):
            steps.public.migrate("A (B (C D))", "moving-state")
        now = "A (B (C D))" if place == "ended" else "((A B) C) D"
        if place != "begun":  # where a step that shares no plan with the run is committed
            assert steps.order() == now
            fed.append(rows(chance))
            steps.feed(fed[-1])
            steps.check_owners()
            assert not any(steps.plan.network.is_shadow(n) for n in range(len(steps.plan.network.operators)))
    with Steps(spark, tmp_path / "c", CHAIN, KINDS, joins="((A B) C) D", answers=answers) as steps:
        assert steps.order() == now
        fed.append(rows(chance))
        steps.feed(fed[-1])
    assert_same_rows(pa.concat_tables(answers), query(CHAIN, together(fed)))


def test_a_migration_is_cancelled_replaced_or_comes_to_nothing_when_the_run_ends(
    spark: SparkSession, tmp_path: Path
) -> None:
    chance, fed = random.Random(7), []
    with Steps(spark, tmp_path / "c", CHAIN, KINDS, joins="((A B) C) D") as steps:
        fed.append(rows(chance))
        steps.feed(fed[-1])
        cancelled = steps.public.migrate("A (B (C D))", "background", pace=1)
        with pytest.raises(ConfigError, match="is migrating to A"):
            steps.public.migrate("(A B) (C D)")
        cancelled.cancel()
        with pytest.raises(MigrationError, match="was cancelled"):
            cancelled.await_done()
        with pytest.raises(ConfigError, match="cancelled already"):
            cancelled.cancel()
        fed.append(rows(chance))
        steps.feed(fed[-1])
        assert steps.order() == "((A B) C) D"
        left = steps.public.migrate("A (B (C D))", "background", pace=1)
        assert not left.await_done(0)
        for order, strategy, reason in [
            ("(A C) (B D)", "background", "nothing that 'query' says is equal connects A and C"),
            ("((A B) C) D", "background", "in this order already"),
            ("(A B) (C D)", "parallel-track", "never ends here"),
        ]:
            with pytest.raises(ConfigError, match=reason):
                steps.public.migrate(order, strategy, meanwhile="replace")
            assert left.phase == "filling", "the first goes on as long as nothing can take its place"
        replacing = steps.public.migrate("(A B) (C D)", "background", pace=1, meanwhile="replace")
        assert left.phase == "cancelled"
        for _ in range(4):
            fed.append(rows(chance, 3))
            steps.feed(fed[-1])
        moved = steps.public.migrate("A (B (C D))", "moving-state", meanwhile="replace")
        assert replacing.phase == "cancelled" or replacing.await_done(0)
        assert moved.await_done(0)
        fed.append(rows(chance))
        steps.feed(fed[-1])
        assert "pushed to disk" not in steps.public.events[-2].reason
        steps.public.set_memory("1g")
        left = steps.public.migrate("A ((B C) D)", "background", pace=1)
        assert not left.await_done(0)
        begun = steps.public.events[-1]
        assert "what the new order stores cannot be pushed to disk before it is in force" in begun.reason
        assert begun.details["state_bytes"] > 0
        plans = [len(steps.taken.plans())]
        for _ in range(3):
            fed.append(rows(chance, 3))
            steps.feed(fed[-1])
            plans.append(len(steps.taken.plans()))
        assert min(plans) == plans[-1] == 1, "plans that no step needs are gone"
        assert len(list((steps.taken.path / "spark").iterdir())) == 1
        assert left.phase == "filling"
        answer = steps.answer
    with pytest.raises(MigrationError, match="the run has ended before"):
        left.await_done()
    assert_same_rows(answer, query(CHAIN, together(fed)))


def test_what_makes_no_sense_is_refused_and_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    chance, fed = random.Random(8), []
    with Steps(spark, tmp_path / "c", CHAIN, KINDS, joins="((A B) C) D") as steps:
        with pytest.raises(ConfigError, match="not answered anything yet"):
            steps.public.migrate("A (B (C D))")
        fed.append(rows(chance))
        steps.feed(fed[-1])
        plan = steps.taken.plan_number
        for order, strategy, error, reason in [
            ("A (B (C X))", "auto", QueryError, "there is no 'X' in FROM"),
            ("(A C) (B D)", "auto", ConfigError, "nothing that 'query' says is equal connects A and C"),
            ("((A B) C) D", "auto", ConfigError, "in this order already"),
            ("A (B (C D))", "parallel-track", ConfigError, "never ends here: rows of"),
            ("A (B (C D))", "teleport", ConfigError, "there is no strategy 'teleport'"),
        ]:
            with pytest.raises(error, match=reason):
                steps.public.migrate(order, strategy)
        with pytest.raises(ConfigError, match="there is no query 'other'"):
            steps.public.migrate("A (B (C D))", query="other")
        for pace in (0, -1, 2.5, True):
            with pytest.raises(ConfigError, match="pace must be a positive whole number of rows per step"):
                steps.public.migrate("A (B (C D))", "background", pace=pace)
        with pytest.raises(ConfigError, match="there is no meanwhile 'wait'"):
            steps.public.migrate("A (B (C D))", meanwhile="wait")
        assert steps.taken.plan_number == plan
        fed.append(rows(chance))
        steps.feed(fed[-1])
        answer = steps.answer
    assert_same_rows(answer, query(CHAIN, together(fed)))


def test_state_is_not_taken_from_a_query_that_has_forgotten_some_of_it(spark: SparkSession, tmp_path: Path) -> None:
    """D is far ahead of C, so a query that joins A and B with D has forgotten rows that C can still meet."""
    kinds = {name: Kind(TIMED_SCHEMA, "t", 10_000) for name in "ABCD"}
    text = (
        "SELECT A.v AS a, B.v AS b, {0}.v AS c FROM A [RANGE 50 MILLISECONDS], B [RANGE 50 MILLISECONDS], "
        "{0} [RANGE 50 MILLISECONDS] WHERE A.k = B.k AND B.j = {0}.j"
    )

    def row(*values: int) -> pa.Table:
        return pa.table([[value] for value in values], schema=TIMED_SCHEMA)

    others = {"other": text.format("D")}
    with Steps(spark, tmp_path / "c", text.format("C"), kinds, joins="A (B C)", others=others) as steps:
        steps.feed({"A": row(1, 0, 10, 1), "B": row(1, 1, 10, 2), "C": row(0, 99, 10, 3), "D": row(0, 98, 10, 3)})
        for now in (10_000, 10_001, 10_002):
            steps.feed({"A": row(7, 0, now, 1), "B": row(8, 8, now, 2), "D": row(0, 98, now, 3)})
        assert steps.public.migrate("(A B) C", "moving-state", query="query").await_done(0)
        steps.feed({"C": row(0, 1, 12, 5)})
        assert steps.answer.to_pylist() == [{"a": 1, "b": 2, "c": 5}]


TRIO = "SELECT A.v AS a, B.v AS b, {0}.v AS c FROM A, B, {0} WHERE A.k = B.k AND B.j = {0}.j"


@pytest.mark.parametrize("how", ["held", "spilled"])
def test_what_a_join_owes_that_another_query_shares_is_not_lost(spark: SparkSession, tmp_path: Path, how: str) -> None:
    chance, fed, others = random.Random(9), [], {"other": TRIO.format("D")}
    with Steps(spark, tmp_path / "c", TRIO.format("C"), KINDS, joins="(A B) C", others=others) as steps:
        fed.append(rows(chance))
        steps.feed(fed[-1])
        shared = steps.runner.context.shape.operators[0].name
        assert shared == "join of A, B"
        if how == "held":
            steps.public.relocate(range(8), to=1, operator=shared, pace=1)
        else:
            steps.public.spill(operator=shared)
        fed.append(rows(chance))
        steps.feed(fed[-1])
        assert steps.public.migrate("A (B C)", "moving-state", query="query").await_done(0)
        fed.append(rows(chance))
        steps.feed(fed[-1])
        steps.end()
        answer, other = steps.answer, pa.concat_tables(steps.other_answers["other"])
    assert_same_rows(answer, query(TRIO.format("C"), together(fed)))
    assert_same_rows(other, query(TRIO.format("D"), together(fed)))


def test_rows_that_wait_for_the_new_order_are_not_answered_again(spark: SparkSession, tmp_path: Path) -> None:
    chance, fed, text = random.Random(1), [], TRIO.format("C")
    with Steps(spark, tmp_path / "c", text, KINDS, joins="(A B) C") as steps:
        fed.append(rows(chance, 40))
        steps.feed(fed[-1])
        migration = steps.public.migrate("A (B C)", "background", pace=1)
        steps.public.relocate(range(8), to=1, operator="join of :A, :B, :C", pace=1)
        while migration.phase == "filling":
            fed.append(rows(chance, 6))
            steps.feed(fed[-1])
        fed.append(rows(chance))
        steps.feed(fed[-1])
        steps.end()
        answer = steps.answer
    assert_same_rows(answer, query(text, together(fed)))


def test_a_batch_that_is_repeated_after_a_crash_gives_the_same_rows_before_a_query_migrates(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, attempts = random.Random(10), []

    def sink(results: DataFrame, batch_id: int) -> None:
        attempts.append((batch_id, results.toArrow()))

    fed = [rows(chance), rows(chance)]
    with Steps(spark, tmp_path / "c", CHAIN, KINDS, joins="((A B) C) D", sink=sink) as steps:
        steps.feed(fed[0])
        steps.public.relocate(range(8), to=1, pace=1)
        monkeypatch.setenv(VARIABLE, f"step.after_sink=raise@once:{tmp_path / 'marker'}")
        with pytest.raises(Exception, match=r"failpoint step\.after_sink"):
            steps.feed(fed[1])
    with Steps(spark, tmp_path / "c", CHAIN, KINDS, joins="((A B) C) D", sink=sink) as steps:
        begin = steps.public._run.migrator.begin
        with pytest.raises(ConfigError, match="the next batch is one that was begun before a restart"):
            begin("A (B (C D))", "moving-state")
        steps.feed(fed[1])
        (_, first), (_, again) = ((number, answer) for number, answer in attempts if number == 1)
        assert_same_rows(again, first)
        assert begin("A (B (C D))", "moving-state").await_done(0)
        fed.append(rows(chance))
        steps.feed(fed[-1])
        steps.end()
    answer = dict(attempts)
    assert_same_rows(pa.concat_tables(answer.values()), query(CHAIN, together(fed)))


def test_columns_of_any_name_are_hashed_anew(spark: SparkSession, tmp_path: Path) -> None:
    chance, fed = random.Random(11), []
    kinds = {name: Kind(SCHEMA, select=("k", "j AS `a.j`", "v AS `a:j`", "k + v AS `a``v`")) for name in "ABC"}
    text = "SELECT A.`a:j` AS a, B.`a:j` AS b, B.`a``v` AS c FROM A, B, C WHERE A.k = B.k AND B.`a.j` = C.`a.j`"
    plain = "SELECT A.v AS a, B.v AS b, B.k + B.v AS c FROM A, B, C WHERE A.k = B.k AND B.j = C.j"
    with Steps(spark, tmp_path / "c", text, kinds, joins="(A B) C") as steps:
        for order in (None, "A (B C)", "(A B) C"):
            assert order is None or steps.public.migrate(order, "moving-state").await_done(0)
            fed.append({name: table for name, table in rows(chance).items() if name in kinds})
            steps.feed(fed[-1])
        answer = steps.answer
    assert_same_rows(answer, query(plain, together(fed)))
