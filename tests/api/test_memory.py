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
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import anabranch as ab
from anabranch.cli.main import app
from anabranch.errors import ConfigError
from tests.faults.driver import Rig
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
    groups = [group for entry in last for operator in entry["groups"].values() for group in operator.values()]
    assert sum(group["spilledBytes"] for group in groups) > 0
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
    ],
)
def test_a_spill_that_makes_no_sense_is_refused_at_once(settings: dict, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ab.Spill(**settings)


def test_policies_that_cannot_work_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="set memory="):
        ab.Engine(spark, tmp_path, policies=[ab.Spill()])
    with pytest.raises(ConfigError, match="such as ab.Spill"):
        ab.Engine(spark, tmp_path, memory="1m", policies=["spill"])
