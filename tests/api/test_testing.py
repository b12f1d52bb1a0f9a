"""`anabranch.testing`, as somebody uses it who tests queries of their own."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import anabranch as ab
from anabranch.errors import BadRowError, CheckpointError, ConfigError
from anabranch.testing import Clock, Steps
from tests.oracle.referee import assert_same_rows

pytestmark = pytest.mark.spark

WINDOWED = """
    SELECT A.k, A.v, B.v AS w FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS] WHERE A.k = B.k
"""
JOIN = "SELECT A.v, B.v AS w FROM A, B WHERE A.k = B.k"


@pytest.fixture
def steps(spark: SparkSession, tmp_path: Path) -> Iterator[Steps]:
    """Two streams with times, and no query yet."""
    with Steps(spark, tmp_path / "checkpoint", groups=16) as made:
        for name in "AB":
            made.stream(name, "k BIGINT, ts TIMESTAMP, v STRING", time="ts", lateness="10 seconds")
        yield made


@pytest.fixture
def join(spark: SparkSession, tmp_path: Path) -> Iterator[Steps]:
    """A join of two streams without windows."""
    with unbounded(spark, tmp_path / "join") as made:
        yield made


def unbounded(spark: SparkSession, checkpoint: Path, **settings: object) -> Steps:
    made = Steps(spark, checkpoint, groups=16, **settings)
    for name in "AB":
        made.stream(name, "k BIGINT, v BIGINT")
    made.query(JOIN)
    return made


def batch(number: int, keys: int = 20) -> list[tuple[int, int]]:
    return [(n % keys, 1_000 * number + n) for n in range(60)]


def pairs(*numbers: int, keys: int = 20) -> pa.Table:
    """The answer to these batches on both sides."""
    rows = [row for number in numbers for row in batch(number, keys)]
    met = [{"v": v, "w": w} for k, v in rows for other, w in rows if k == other]
    return pa.Table.from_pylist(met)


def at(second: int) -> str:
    return f"2026-01-01 00:00:{second:02d}"


def test_the_module_is_there_by_its_name_and_as_a_part_of_the_package() -> None:
    import anabranch.testing

    assert ab.testing is anabranch.testing
    assert ab.testing.Steps is Steps


def test_a_batch_of_tuples_dicts_or_arrow_is_one_step(steps: Steps) -> None:
    steps.query(WINDOWED)
    steps.feed(A=[(1, at(0), "a"), (2, at(1), None)])
    assert steps.answer().num_rows == 0
    assert steps.answer().column_names == ["k", "v", "w"]
    steps.feed(B=[{"k": 1, "ts": datetime(2026, 1, 1, 0, 0, 5), "v": "b"}, {"ts": at(5), "v": "null key"}])
    assert steps.answer().to_pylist() == [{"k": 1, "v": "a", "w": "b"}]
    seconds = pa.array([int(datetime(2026, 1, 1, 0, 0, 6).timestamp())], pa.timestamp("s", "UTC"))
    steps.feed({"B": pa.table({"v": ["c"], "k": pa.array([2], pa.int32()), "ts": seconds})})
    assert steps.last_answer().to_pylist() == [{"k": 2, "v": None, "w": "c"}]
    steps.feed()
    assert steps.last_answer().num_rows == 0
    assert steps.answer().num_rows == 2
    assert steps.progress is not None
    assert steps.progress["totals"]["received"] == {"A": 2, "B": 2}, "a row without a key meets nothing"


def test_the_counts_of_all_steps_are_there_also_of_those_without_a_batch(join: Steps) -> None:
    assert join.progress_since() == []
    join.feed(A=batch(0))
    join.spill()
    join.feed(B=batch(0))
    join.clean_up()
    steps = join.progress_since()
    numbers = [step["step"] for step in steps]
    assert numbers == sorted(set(numbers))
    assert [step["receivedRows"] for step in steps[:2]] == [{"A": 60, "B": 0}, {"A": 0, "B": 60}]
    assert sum(step["queries"]["query"]["numOutputRows"] for step in steps[2:]) == pairs(0).num_rows
    assert join.progress_since(numbers[1]) == steps[2:]
    assert join.progress_since(numbers[-1]) == []


def test_texts_become_times_dates_and_decimals_and_times_without_a_zone_are_in_that_of_the_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        with Steps(spark, tmp_path / "checkpoint") as steps:
            steps.stream("A", "k INT, ts TIMESTAMP, ntz TIMESTAMP_NTZ, d DATE, n DECIMAL(9, 2)")
            steps.stream("B", pa.schema([("k", pa.int64())]))
            steps.query("SELECT unix_micros(ts) AS ts, CAST(ntz AS STRING) AS ntz, d, n FROM A, B WHERE A.k = B.k")
            moments = ["2026-01-01 00:00:00", "2026-01-01T00:00:00+09:00", "2025-12-31T15:00:00Z"]
            steps.feed(A=[(1, text, "2026-01-01 00:00:00", "2026-01-01", "1.50") for text in moments], B=[(1,)])
            rows = steps.answer().to_pylist()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert {row["ts"] for row in rows} == {1_767_193_200_000_000}
    assert {(row["ntz"], str(row["d"]), row["n"]) for row in rows} == {
        ("2026-01-01 00:00:00", "2026-01-01", Decimal("1.50"))
    }


def test_rows_go_through_what_the_program_does_with_them_first(spark: SparkSession, tmp_path: Path) -> None:
    def cleaned(rows: DataFrame) -> DataFrame:
        return rows.where("v > 0").selectExpr("k", "v * 2 AS v")

    with Steps(spark, tmp_path / "checkpoint") as steps:
        steps.stream("A", "k BIGINT, v BIGINT", through=cleaned)
        steps.stream("B", "k BIGINT, v BIGINT")
        steps.query(steps.engine.sql(JOIN))
        steps.feed(A=[(1, 5), (1, -5)], B=[(1, 0)])
        assert steps.answer().to_pylist() == [{"v": 10, "w": 0}]


def test_late_rows_are_counted_and_meet_nothing(steps: Steps) -> None:
    steps.query(WINDOWED)
    steps.feed(A=[(1, at(30), "new")])
    steps.feed(A=[(1, at(5), "late"), (1, at(25), "on time")], B=[(1, at(31), "b")])
    assert steps.progress is not None
    assert steps.progress["lateRows"] == {"A": 1, "B": 0}
    assert {row["v"] for row in steps.answer().to_pylist()} == {"new", "on time"}


def test_state_is_told_by_group_and_what_a_window_has_left_behind_is_gone(steps: Steps) -> None:
    assert steps.state() == []
    steps.query(WINDOWED)
    steps.feed(A=[(k, at(0), "a") for k in range(20)], B=[(0, at(0), "b")])
    state = steps.state()
    assert {entry["operator"] for entry in state} == {"join of A, B"}
    assert {entry["processor"] for entry in state} == {0, 1}
    assert sum(entry["activeRows"] for entry in state) == 21
    assert not any(entry["spilledRows"] or entry["heldRows"] for entry in state)
    for second in (40, 41, 42):
        steps.feed(A=[(99, at(second), "a")], B=[(98, at(second), "b")])
    assert sum(entry["activeRows"] for entry in steps.state()) == 6


def test_a_forced_spill_and_its_clean_up_do_not_change_the_answer(join: Steps) -> None:
    join.feed(A=batch(0), B=batch(0))
    join.spill()
    assert sum(entry["activeRows"] for entry in join.state()) == 0
    assert sum(entry["spilledRows"] for entry in join.state()) == 120
    assert {event.kind for event in join.events} == {"spill"}
    join.feed(A=batch(1), B=batch(1))
    join.spill(range(4), operator="join of A, B")
    missing = pairs(0, 1).num_rows - join.answer().num_rows
    assert missing > 0, "what spilling has postponed"
    join.clean_up()
    assert join.last_answer().num_rows == missing
    assert_same_rows(join.answer(), pairs(0, 1))
    join.feed(A=batch(2), B=batch(2))
    join.end()
    assert_same_rows(join.answer(), pairs(0, 1, 2))


def test_groups_move_processors_come_and_memory_changes_between_two_steps(join: Steps) -> None:
    join.feed(A=batch(0), B=batch(0))
    join.relocate(range(16), to=1)
    assert {entry["processor"] for entry in join.state()} == {1}
    join.rescale(4)
    join.set_memory("1m", processor=3)
    join.relocate(3, to=0, pace="1k")
    join.feed(A=batch(1), B=batch(1))
    assert [event.kind for event in join.events if event.kind != "relocating"][:2] == ["relocate", "rescale"]
    while join.let_go_on():
        pass
    join.end()
    assert_same_rows(join.answer(), pairs(0, 1))


@pytest.mark.parametrize("place", ["before_sink", "after_sink", "before_commit", "after_commit"])
def test_a_crash_loses_and_doubles_nothing(join: Steps, place: str) -> None:
    join.feed(A=batch(0), B=batch(0))
    join.spill(range(8))
    join.crash_and_resume(A=batch(1), B=batch(1), at=place)
    assert "resume" in [event.kind for event in join.events]
    join.resume()
    join.feed(A=batch(2), B=batch(2))
    join.end()
    assert_same_rows(join.answer(), pairs(0, 1, 2))


def test_a_batch_that_failed_has_to_come_again_before_anything_else(spark: SparkSession, tmp_path: Path) -> None:
    given: list[int] = []

    def sink(results: DataFrame, batch_id: int) -> None:
        given.append(results.count())
        if len(given) == 2:
            raise ZeroDivisionError

    with Steps(spark, tmp_path / "checkpoint") as steps:
        for name in "AB":
            steps.stream(name, "k BIGINT, v BIGINT")
        steps.query(JOIN, sink=sink)
        steps.feed(A=[(1, 1)], B=[(1, 1)])
        with pytest.raises(ZeroDivisionError):
            steps.feed(A=[(1, 2)])
        steps.resume()
        with pytest.raises(CheckpointError, match="feed it again"):
            steps.clean_up()
        with pytest.raises(ConfigError, match="come again"):
            steps.spill()
        steps.feed(A=[(1, 2)])
        steps.clean_up()
    assert given == [1, 1, 1]


def test_a_fake_clock_lets_the_span_of_lazy_disk_elapse(spark: SparkSession, tmp_path: Path) -> None:
    clock = Clock()
    policy = ab.LazyDisk(span="45 seconds")
    with unbounded(
        spark, tmp_path / "checkpoint", clock=clock, policies=[policy], memory="1m", initial_placement=[1, 0]
    ) as steps:

        def moved(number: int, seconds: float) -> int:
            """How often groups have moved so far, once all are on one processor and the clock has gone on."""
            clock.advance(seconds)
            steps.relocate(range(16), to=0)
            by_hand = len(steps.events)
            steps.feed(A=batch(number), B=batch(number))
            return len(steps.events) - by_hand

        assert [moved(0, 0), moved(1, 44.9), moved(2, 0.1), moved(3, 44), moved(4, 1)] == [1, 0, 1, 0, 1]
        assert steps.events[-1].time == clock.now()
        assert_same_rows(steps.answer(), pairs(*range(5)))


def test_the_session_stays_as_it_was(join: Steps, spark: SparkSession) -> None:
    before = spark.sql("SET").collect()
    join.feed(A=batch(0), B=batch(0))
    join.end()
    assert spark.sql("SET").collect() == before
    active = SparkSession.getActiveSession()
    assert active is not None
    assert active._jsparkSession.equals(spark._jsparkSession)


def test_queries_come_and_go_between_steps_each_with_its_answer(join: Steps) -> None:
    join.feed(A=[(1, 1)], B=[(1, 2)])
    join.query("SELECT B.v FROM A, B WHERE A.k = B.k AND A.v > 1", name="some")
    with pytest.raises(ConfigError, match="several queries; name one of query, some"):
        join.answer()
    join.feed(A=[(1, 3)], B=[(1, 4)])
    assert {row["v"] for row in join.answer("some").to_pylist()} == {4}
    assert join.answer("query").num_rows == 4
    join.remove("query")
    join.feed(B=[(1, 5)])
    assert {row["v"] for row in join.answer().to_pylist()} == {4, 5}
    with pytest.raises(ConfigError, match="the only query"):
        join.remove("some")


def test_what_makes_no_sense_is_refused_with_what_to_do(steps: Steps) -> None:
    with pytest.raises(ConfigError, match=r"no query to answer yet; ask one with query\(...\)"):
        steps.feed(A=[])
    with pytest.raises(ConfigError, match="a schema is a text"):
        steps.stream("C", 5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="stream 'C'"):
        steps.stream("C", "k BOGUS")
    with pytest.raises(ConfigError, match="registered already"):
        steps.stream("A", "k BIGINT")
    steps.query(WINDOWED)
    with pytest.raises(ConfigError, match="a query 'query' already"):
        steps.query(WINDOWED)
    with pytest.raises(ConfigError, match="no stream 'a' to feed; did you mean 'A'"):
        steps.feed(a=[])
    with pytest.raises(ConfigError, match="no operator 'join'; known: join of A, B"):
        steps.spill(operator="join")
    with pytest.raises(ConfigError, match="numbers from 0 to 15"):
        steps.spill(16)
    with pytest.raises(ConfigError, match="cannot crash at 'commit'"):
        steps.crash_and_resume(at="commit")
    with pytest.raises(ConfigError, match="no query 'quarry'; did you mean 'query'"):
        steps.answer("quarry")


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (
            [(1, at(0), "a"), (1, at(0))],
            r"stream 'A', row 1 has 2 values, but the stream has 3 columns: k, ts, v; give",
        ),
        ([{"k": 1, "w": "a"}], "row 0: there is no column 'w'"),
        ([(1, at(0), "a"), ("one", at(0), "a")], "row 1: 'one' is no value of the column 'k', which is int64"),
        ([(1, "yesterday", "a")], "row 0: 'yesterday' is no value of the column 'ts'"),
        ([5], "row 0: a row is a tuple of k, ts, v, or a dict, not 5"),
        ("rows", "give a list of rows"),
        (pa.table({"k": [1]}), "has the columns k, ts, v; the table has k"),
    ],
)
def test_rows_that_do_not_fit_are_named(steps: Steps, rows: object, told: str) -> None:
    steps.query(WINDOWED)
    with pytest.raises(BadRowError, match=told):
        steps.feed(A=rows)  # type: ignore[arg-type]
    steps.feed(A=[(1, at(0), "a")], B=[(1, at(0), "b")])
    assert steps.answer().num_rows == 1, "nothing was done"
