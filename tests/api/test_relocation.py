"""Moving state as a user sees it: while a run goes on, told, and refused where it makes no sense."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

import anabranch as ab
from anabranch.cli.main import app
from anabranch.errors import ConfigError
from anabranch.manager.actions import HoldGroups
from anabranch.manager.snapshot import Snapshot
from tests.faults.driver import Rig
from tests.oracle.feed import written
from tests.oracle.referee import Stream, assert_same_rows, join

pytestmark = pytest.mark.spark

UNBOUNDED = "SELECT A.k, A.v, B.v AS w, C.v AS x FROM A, B, C WHERE A.k = B.k AND B.k = C.k"


class Waits:
    """Lets all rows of some groups wait, always."""

    def decide(self, snapshot: Snapshot) -> Iterator[HoldGroups]:
        yield HoldGroups(0, 0, tuple(range(8)), "they are told to")


def clean_up_with(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, checkpoint: Path) -> str:
    """What `anabranch clean-up` tells, with the tests' own Spark instead of one of its own."""

    @contextmanager
    def ours(**_: Any) -> Iterator[SparkSession]:
        yield spark.newSession()

    monkeypatch.setattr(import_module("anabranch.cli.clean_up"), "embedded_spark", ours)
    shown = CliRunner().invoke(app, ["clean-up", str(checkpoint)])
    assert shown.exit_code == 0, shown.output
    return shown.stdout


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path / "rig")
    rig.add(3)
    return rig


def engine(spark: SparkSession, rig: Rig, **settings: Any) -> ab.Engine:
    made = ab.Engine(spark, rig.checkpoint, processors=3, groups=16, **settings)
    for name, feed in rig.feeds.items():
        made.register(name, feed.stream(spark), time="at", lateness="1 minute")
    return made


def everything(rig: Rig) -> pa.Table:
    streams = {name: Stream(feed.complete, ["k"], "at", None) for name, feed in rig.feeds.items()}
    return join(streams, ["A.k", "A.v", "B.v AS w", "C.v AS x"])


def test_a_run_moves_state_and_is_rescaled_while_it_goes_on(spark: SparkSession, rig: Rig) -> None:
    made = engine(spark, rig, initial_placement=[4, 1, 1])
    run = made.sql(UNBOUNDED).writeStream.trigger(processingTime="100 milliseconds").start(rig.output)
    try:
        run.processAllAvailable()
        seen = run.lastProgress["anabranch"]["processors"]
        assert run._live.runner.status.placements[0].count(0) == 11, "two thirds of the groups"
        assert {"busyMs", "idleMs", "heldRows"} <= seen[0].keys()
        run.relocate(np.arange(6), to=1)
        run.relocate(7, to=2, pace="1k")
        rig.add(1)
        run.processAllAvailable()
        assert_same_rows(written(rig.output), everything(rig))
        run.rescale(processors=5)
        rig.add(1)
        run.processAllAvailable()
        assert len(run.lastProgress["anabranch"]["processors"]) == 5
        assert_same_rows(written(rig.output), everything(rig))
        run.explain()
        moves = [event for event in run.events if event.kind == "relocate"]
        assert {"groups", "sender", "receiver", "bytes", "seconds", "steps"} <= moves[0].details.keys()
        assert "since it was asked for" in moves[0].reason
        assert "rescale" in [event.kind for event in run.events]
        for call, told in (
            (lambda: run.relocate([99], to=1), "from 0 to 15"),
            (lambda: run.relocate([], to=1), "no group"),
            (lambda: run.relocate([1], to=9), "from 0 to 4"),
            (lambda: run.relocate([1], to=1, operator="jion of A, B, C"), "did you mean 'join of A, B, C'"),
            (lambda: run.rescale(processors=0), "positive whole number"),
            (lambda: run.set_memory("5m", processor=7), "from 0 to 4"),
        ):
            with pytest.raises(ConfigError, match=told):
                call()
    finally:
        run.stop()
    with pytest.raises(ConfigError, match="has ended"):
        run.relocate([1], to=1)
    looked = CliRunner().invoke(app, ["inspect", str(rig.checkpoint)])
    assert looked.exit_code == 0, looked.output
    assert "5 processors" in looked.stdout


def test_rows_that_are_held_back_do_not_wait_for_a_batch_that_never_comes(spark: SparkSession, rig: Rig) -> None:
    run = engine(spark, rig).sql(UNBOUNDED).writeStream.trigger(processingTime="100 milliseconds").start(rig.output)
    try:
        run.processAllAvailable()
        run.relocate([3], to=2, pace=1)
        rig.add(1)
        until = time.monotonic() + 60
        while len(written(rig.output)) < len(everything(rig)) and time.monotonic() < until:
            time.sleep(0.2)
        assert_same_rows(written(rig.output), everything(rig))
    finally:
        run.stop()


def test_a_function_that_a_batch_is_given_to_cannot_move_state(spark: SparkSession, rig: Rig) -> None:
    told: list[str] = []
    ready = threading.Event()

    def move(results: DataFrame, batch_id: int) -> None:
        ready.wait(60)
        for call in (lambda: run.relocate([1], to=1), lambda: run.rescale(2), lambda: run.set_memory("1m")):
            with pytest.raises(ConfigError) as caught:
                call()
            told.append(str(caught.value))

    writer = engine(spark, rig).sql(UNBOUNDED).writeStream.foreachBatch(move).trigger(processingTime="1 second")
    run = writer.start()
    ready.set()
    try:
        run.processAllAvailable()
    finally:
        run.stop()
    assert len(told) >= 3
    assert all("use another thread" in text for text in told)


def test_a_run_that_was_stopped_during_a_move_is_complete_when_it_has_ended(spark: SparkSession, rig: Rig) -> None:
    run = engine(spark, rig).sql(UNBOUNDED).writeStream.trigger(processingTime="100 milliseconds").start(rig.output)
    try:
        run.processAllAvailable()
        run.relocate(range(16), to=2, pace=1)
    finally:
        run.stop()
    rig.add(1)
    run = engine(spark, rig).sql(UNBOUNDED).writeStream.trigger(availableNow=True).start(rig.output)
    run.awaitTermination()
    assert_same_rows(written(rig.output), everything(rig))


def test_rows_that_wait_in_a_stopped_run_are_joined_by_clean_up(
    spark: SparkSession, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.add(1)
    made = engine(spark, rig, policies=[Waits()])
    writer = made.sql(UNBOUNDED).writeStream.trigger(availableNow=True).option("path", str(rig.output))
    run = writer.start()
    run.leave_open()
    run.awaitTermination()
    missing = len(everything(rig)) - len(written(rig.output))
    assert missing > 0
    shown = clean_up_with(spark, monkeypatch, rig.checkpoint)
    assert f"{missing:,} postponed results are delivered" in shown
    assert_same_rows(written(rig.output), everything(rig))
    assert "nothing was owed" in clean_up_with(spark, monkeypatch, rig.checkpoint)


def test_a_query_that_is_added_goes_where_the_processors_are(spark: SparkSession, rig: Rig) -> None:
    made = engine(spark, rig, memory="10m")
    other = made.sql("SELECT A.v, B.v AS w FROM A, B WHERE A.v = B.v").writeStream.queryName("other").format("noop")
    first = made.sql(UNBOUNDED).writeStream.queryName("first").option("path", str(rig.output))
    run = made.start([first.trigger(processingTime="100 milliseconds")])
    try:
        run.processAllAvailable()
        run.rescale(processors=2)
        run.relocate(range(3), to=1)
        run.set_memory("1k", processor=0)
        placement = run._live.runner.status.placements[0]
        run.add(other)
        assert run._live.runner.status.processors == 2
        assert run._live.runner.status.placements[0] == placement, "what has moved stays where it is"
        assert set(run._live.runner.status.placements[1]) == {0, 1}
        rig.add(1)
        run.processAllAvailable()
        assert {event.details["processor"] for event in run.events if event.kind == "spill"} == {0}, "memory stays cut"
        run.relocate(range(16), to=0)
        run.clean_up()
        assert_same_rows(written(rig.output), everything(rig))
    finally:
        run.stop()


def test_memory_can_be_cut_while_a_run_goes_on(spark: SparkSession, rig: Rig) -> None:
    made = engine(spark, rig, memory="10m")
    run = made.sql(UNBOUNDED).writeStream.trigger(processingTime="100 milliseconds").start(rig.output)
    try:
        run.processAllAvailable()
        assert "spill" not in [event.kind for event in run.events]
        run.set_memory("1k", processor=0)
        rig.add(1)
        run.processAllAvailable()
        assert {event.details["processor"] for event in run.events if event.kind == "spill"} == {0}
    finally:
        run.stop()
