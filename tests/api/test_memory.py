"""Memory as a user sees it: state stays within its budget, postponed results come, and everything is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

import anabranch as ab
from anabranch.cli.main import app
from anabranch.errors import ConfigError
from anabranch.manager.actions import SpillGroups
from anabranch.manager.snapshot import Snapshot
from tests.faults.driver import Rig
from tests.oracle.chance import ChanceSpill
from tests.oracle.feed import written
from tests.oracle.referee import Stream, assert_same_rows, join

pytestmark = pytest.mark.spark

UNBOUNDED = "SELECT A.k, A.v, B.v AS w, C.v AS x FROM A, B, C WHERE A.k = B.k AND B.k = C.k"
MEMORY = 3_000


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path / "rig")
    rig.add(6)
    return rig


def engine(spark: SparkSession, rig: Rig, **settings: Any) -> ab.Engine:
    made = ab.Engine(spark, rig.checkpoint, processors=2, groups=16, **settings)
    for name, feed in rig.feeds.items():
        made.register(name, feed.stream(spark), time="at", lateness="1 minute")
    return made


def everything(rig: Rig) -> pa.Table:
    """The answer to all that was added."""
    streams = {name: Stream(feed.complete, ["k"], "at", None) for name, feed in rig.feeds.items()}
    return join(streams, ["A.k", "A.v", "B.v AS w", "C.v AS x"])


@pytest.mark.parametrize("order", ["least-productive", "random", "largest"])
def test_active_state_stays_within_memory_and_the_answer_is_complete(spark: SparkSession, rig: Rig, order: str) -> None:
    made = engine(spark, rig, memory=MEMORY, policies=[ab.Spill(order=order)])
    run = made.sql(UNBOUNDED).writeStream.trigger(availableNow=True).start(rig.output)
    run.awaitTermination()
    assert_same_rows(written(rig.output), everything(rig))
    seen = [entry for progress in run.recentProgress for entry in progress["anabranch"]["processors"]]
    assert all(entry["activeBytes"] <= MEMORY for entry in seen)
    assert any(entry["owingGroups"] for entry in seen)
    assert any(entry["owedResults"] for entry in seen)
    last = run.lastProgress["anabranch"]["processors"]
    assert sum(entry["owingGroups"] for entry in last) == 0, "all is delivered"
    assert not any("groups" in entry for entry in last), "hundreds of them would fill screens"
    assert sum(entry["spilledRows"] for entry in last) > 0
    groups = run.groups()
    assert {group["operator"] for group in groups} == {"join of A, B, C"}
    spilled = sum(entry["spilledBytes"] for entry in last)
    # Shares of files, each rounded.
    assert sum(group["spilledBytes"] for group in groups) == pytest.approx(spilled, rel=0.01)
    assert spilled > 0
    spills = [event for event in run.events if event.kind == "spill"]
    cleaned = [event for event in run.events if event.kind == "clean-up"]
    assert {"processor", "operator", "groups", "bytes"} <= spills[0].details.keys()
    assert "more than 100% of" in spills[0].reason
    assert sum(event.details["results"] for event in cleaned) > 0
    results = sum(progress["sink"]["numOutputRows"] for progress in run.recentProgress)
    assert results + sum(event.details["results"] for event in cleaned) == len(everything(rig))


def test_without_a_policy_going_over_memory_is_told_once(spark: SparkSession, rig: Rig) -> None:
    made = engine(spark, rig, memory=MEMORY, policies=[])
    run = made.sql(UNBOUNDED).writeStream.trigger(availableNow=True).start(rig.output)
    run.awaitTermination()
    kinds = [event.kind for event in run.events]
    assert kinds.count("memory") == 2, "one per processor"
    assert "spill" not in kinds


def wait_for_owing(run: ab.Run) -> None:
    run.processAllAvailable()
    assert sum(entry["owingGroups"] for entry in run.lastProgress["anabranch"]["processors"]) > 0


def test_a_run_that_goes_on_is_cleaned_up_on_request(spark: SparkSession, rig: Rig) -> None:
    made = engine(spark, rig, memory=MEMORY)
    run = made.sql(UNBOUNDED).writeStream.trigger(processingTime="100 milliseconds").start(rig.output)
    try:
        wait_for_owing(run)
        run.clean_up()
        assert_same_rows(written(rig.output), everything(rig))
        rig.add(2)
        run.processAllAvailable()
        run.clean_up()
        assert_same_rows(written(rig.output), everything(rig))
    finally:
        run.stop()
    with pytest.raises(ConfigError, match="has ended"):
        run.clean_up()


def test_a_stopped_run_is_cleaned_up_from_the_command_line(
    spark: SparkSession, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = engine(spark, rig, memory=MEMORY)
    run = made.sql(UNBOUNDED).writeStream.trigger(processingTime="100 milliseconds").start(rig.output)
    wait_for_owing(run)
    run.stop()
    missing = len(everything(rig)) - len(written(rig.output))
    assert missing > 0
    looked = CliRunner().invoke(app, ["inspect", str(rig.checkpoint), "--groups"])
    assert looked.exit_code == 0, looked.output
    assert "spilled of" in looked.stdout
    assert "about" in looked.stdout
    document = json.loads(CliRunner().invoke(app, ["inspect", str(rig.checkpoint), "--json"]).stdout)
    assert sum(entry["owing"] for entry in document["spilled"]) > 0
    assert sum(group["spilled_bytes"] for group in document["groups"]) > 0
    assert max(group["generations"] for group in document["groups"]) > 1
    shown = _with_this_session(spark, monkeypatch, ["clean-up", str(rig.checkpoint), "--json"])
    assert shown.exit_code == 0, shown.output
    assert f'"results": {missing}' in shown.stdout
    assert_same_rows(written(rig.output), everything(rig))
    again = _with_this_session(spark, monkeypatch, ["clean-up", str(rig.checkpoint)])
    assert "nothing was owed" in again.stdout
    # The run itself goes on where it was.
    rig.add(1)
    run = engine(spark, rig, memory=MEMORY).sql(UNBOUNDED).writeStream.trigger(availableNow=True).start(rig.output)
    run.awaitTermination()
    assert_same_rows(written(rig.output), everything(rig))


def test_results_that_go_to_a_function_are_left_to_its_program(
    spark: SparkSession, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = engine(spark, rig, memory=MEMORY)
    writer = made.sql(UNBOUNDED).writeStream.foreachBatch(lambda rows, _: rows.count())
    run = writer.trigger(processingTime="100 milliseconds").start()
    wait_for_owing(run)
    run.stop()
    shown = _with_this_session(spark, monkeypatch, ["clean-up", str(rig.checkpoint)])
    assert shown.exit_code == 1
    assert "goes where only its program can write" in shown.stderr


def _with_this_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> Any:
    """The command, with the tests' own Spark instead of one of its own."""

    @contextmanager
    def ours(**_: Any) -> Iterator[SparkSession]:
        yield spark.newSession()

    monkeypatch.setattr(import_module("anabranch.cli.clean_up"), "embedded_spark", ours)
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"push": 1.5}, "from 0 to 1"),
        ({"push": True}, "from 0 to 1"),
        ({"threshold": 0}, "above 0"),
        ({"order": "least-produktive"}, "did you mean 'least-productive'"),
        ({"productivity": "now"}, "productivity"),
        ({"idle": "5 parsecs"}, "idle: unknown unit"),
        ({"idle": 5}, "length of time"),
        ({"order": ["random"]}, "order"),
        ({"seed": -1}, "seed"),
    ],
)
def test_a_spill_that_makes_no_sense_is_refused_at_once(settings: dict, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ab.Spill(**settings)


def test_policies_that_cannot_work_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="set memory="):
        ab.Engine(spark, tmp_path, policies=[ab.Spill()])
    for wrong, says in ((["spill"], "write ab.Spill"), (5, "policies must be"), ("spill", "policies must be")):
        with pytest.raises(ConfigError, match=says):
            ab.Engine(spark, tmp_path, memory="1m", policies=wrong)


class Fails:
    """A function for batches that keeps what it is given by id, and fails once when it is told to."""

    def __init__(self) -> None:
        self.rows: dict[int, pa.Table] = {}
        self.seen: list[tuple[int, pa.Table]] = []
        self.fails = False

    def __call__(self, results: DataFrame, batch_id: int) -> None:
        rows = results.toArrow()
        self.seen.append((batch_id, rows))
        self.rows[batch_id] = rows
        if self.fails:
            self.fails = False
            raise RuntimeError("the sink fails once")

    @property
    def answer(self) -> pa.Table:
        return pa.concat_tables(self.rows.values())

    def check_ids(self) -> None:
        """An id always comes with the same rows."""
        for batch_id, rows in self.seen:
            assert_same_rows(rows, self.rows[batch_id])


@pytest.mark.parametrize("changed", [False, True])
def test_a_clean_up_that_fails_ends_the_run_and_is_done_again_by_the_next(
    spark: SparkSession, rig: Rig, changed: bool
) -> None:
    sink = Fails()
    made = engine(spark, rig, memory=MEMORY)
    function = made.sql(UNBOUNDED).writeStream.queryName("function").foreachBatch(sink)
    files = made.sql(UNBOUNDED).writeStream.queryName("files").option("path", str(rig.output))
    run = made.start([function.trigger(processingTime="100 milliseconds"), files])
    wait_for_owing(run)
    sink.fails = True
    with pytest.raises(Exception, match="the sink fails once"):
        run.clean_up()
    assert not run.isActive
    with pytest.raises(Exception, match="the sink fails once"):
        run.clean_up()
    rig.add(1)
    # Another query before the others gives operators other numbers.
    made = engine(spark, rig, memory=MEMORY)
    other = made.sql("SELECT C.v FROM C, B WHERE C.v = B.v").writeStream.queryName("a new one").format("noop")
    function = made.sql(UNBOUNDED).writeStream.queryName("function").foreachBatch(sink)
    files = made.sql(UNBOUNDED).writeStream.queryName("files").option("path", str(rig.output))
    writers = [*([other] if changed else []), function, files]
    made.start([writers[0].trigger(availableNow=True), *writers[1:]]).awaitTermination()
    assert_same_rows(written(rig.output), everything(rig))
    assert_same_rows(sink.answer, everything(rig))
    sink.check_ids()


def test_what_was_spilled_is_cleaned_up_at_the_end_with_or_without_a_budget(spark: SparkSession, rig: Rig) -> None:
    for settings in ({"memory": MEMORY}, {}, {"policies": [ChanceSpill(3)]}):
        run = engine(spark, rig, **settings).sql(UNBOUNDED).writeStream.trigger(availableNow=True).start(rig.output)
        run.awaitTermination()
        assert_same_rows(written(rig.output), everything(rig))
        rig.add(2)


def test_a_function_that_results_are_given_to_cannot_clean_up(spark: SparkSession, rig: Rig) -> None:
    refused: list[str] = []

    def sink(rows: DataFrame, _: int) -> None:
        rows.count()
        if len(run_of) == 1:
            with pytest.raises(ConfigError, match="use another thread") as caught:
                run_of[0].clean_up()
            refused.append(str(caught.value))

    run_of: list[ab.Run] = []
    writer = engine(spark, rig, memory=MEMORY).sql(UNBOUNDED).writeStream.foreachBatch(sink)
    run = writer.trigger(processingTime="100 milliseconds").start()
    try:
        wait_for_owing(run)
        run_of.append(run)
        run.clean_up()
    finally:
        run.stop()
    assert refused


def test_streams_with_state_of_their_own_in_spark_can_be_cleaned_up(spark: SparkSession, rig: Rig) -> None:
    made = ab.Engine(spark, rig.checkpoint, processors=2, groups=16, memory=MEMORY)
    for name, feed in rig.feeds.items():
        made.register(name, feed.stream(spark).dropDuplicates())
    run = made.sql(UNBOUNDED).writeStream.trigger(processingTime="100 milliseconds").start(rig.output)
    try:
        wait_for_owing(run)
        run.clean_up()
        assert_same_rows(written(rig.output), everything(rig))
    finally:
        run.stop()


@pytest.mark.parametrize("removed", [False, True])
def test_a_run_with_a_query_that_was_just_added_is_cleaned_up_from_the_command_line(
    spark: SparkSession, rig: Rig, monkeypatch: pytest.MonkeyPatch, removed: bool
) -> None:
    made = engine(spark, rig, memory=MEMORY)
    writer = made.sql(UNBOUNDED).writeStream.queryName("first").option("path", str(rig.output / "1"))
    run = made.start([writer.trigger(processingTime="100 milliseconds")])
    wait_for_owing(run)
    run.add(
        made.sql("SELECT A.v FROM A, B WHERE A.k = B.k")
        .writeStream.queryName("second")
        .option("path", str(rig.output / "2"))
    )
    run.stop()
    if removed:
        assert CliRunner().invoke(app, ["remove", str(rig.checkpoint), "second"]).exit_code == 0
    shown = _with_this_session(spark, monkeypatch, ["clean-up", str(rig.checkpoint)])
    assert shown.exit_code == 0, shown.output
    assert_same_rows(written(rig.output / "1"), everything(rig))


def test_groups_that_are_answered_once_per_batch_are_not_pushed_to_disk(spark: SparkSession, rig: Rig) -> None:
    text = "SELECT A.k, count(*) AS n FROM A [RANGE 3 SECONDS] GROUP BY A.k"
    made = engine(spark, rig, memory=1)
    run = made.sql(text, emit="batch").writeStream.trigger(availableNow=True).start(rig.output)
    run.awaitTermination()
    assert "spill" not in [event.kind for event in run.events]
    assert "memory" in [event.kind for event in run.events]


def test_a_policy_that_decides_on_what_is_not_there_is_named(spark: SparkSession, rig: Rig) -> None:
    class Wrong:
        def decide(self, snapshot: Snapshot) -> Iterator[SpillGroups]:
            yield SpillGroups(0, 0, (99,), 0, "no reason")

    run = engine(spark, rig, policies=[Wrong()]).sql(UNBOUNDED).writeStream.trigger(availableNow=True).start(rig.output)
    with pytest.raises(ConfigError, match="Wrong.*it is not there"):
        run.awaitTermination()


def test_a_budget_that_groups_fill_by_themselves_is_told_and_leaves_the_join_its_share(
    spark: SparkSession, rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    """emit="batch" cannot be spilled: it once had every group of the join pushed after every batch."""
    text = "SELECT A.k, count(*) AS n FROM A [RANGE 1 HOUR], B [RANGE 1 HOUR] WHERE A.k = B.k GROUP BY A.k"
    made = engine(spark, rig)
    writer = made.sql(text, emit="batch").writeStream
    run = writer.trigger(processingTime="100 milliseconds").start(rig.output)
    try:
        run.processAllAvailable()
        assert [event.kind for event in run.events] == []
        before = run.lastProgress["anabranch"]["processors"]
        fixed = max(entry["unspillableBytes"] for entry in before)
        budget = fixed + 1
        assert all(entry["activeBytes"] - entry["unspillableBytes"] > budget / 2 for entry in before)
        run.set_memory(budget)
        rig.add(2)
        run.processAllAvailable()
        entries = run.lastProgress["anabranch"]["processors"]
        for entry in entries:
            assert 0 < entry["activeBytes"] - entry["unspillableBytes"] <= budget / 2
        assert {entry["owedResultsAre"] for entry in entries if entry["owingGroups"]} == {"at most"}
        assert sum(entry["owedResults"] for entry in entries) > 0
        told = [event for event in run.events if event.kind == "memory"]
        assert {event.details["processor"] for event in told} == {0, 1}
        assert "cannot be pushed to disk (groups of A, B)" in told[0].reason
        assert "would hold all its state as it is now" in told[0].reason
        assert "spill" in [event.kind for event in run.events], "a budget given to a run that had none is kept to"
        run.explain()
        assert "cannot be pushed to disk: groups of A, B" in capsys.readouterr().out
    finally:
        run.stop()
