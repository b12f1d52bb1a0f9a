"""A checkpoint that two drivers have at the same time, because locks do not exclude: every moment of the change-over.

The lock is let go by hand, as when a machine was cut off from a mount. What the other driver does is done at failpoints
of the first, so nothing depends on chance.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from anabranch.checkpoint.folder import directory as checkpoint
from anabranch.checkpoint.folder.directory import Checkpoint
from anabranch.errors import CheckpointInUseError
from anabranch.runtime.driver.step import commit, take_step
from tests.oracle.referee import Stream, assert_same_rows, join
from tests.oracle.steps import Kind, Steps

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
KINDS = {"A": Kind(SCHEMA), "B": Kind(SCHEMA)}
QUERY = "SELECT A.v, B.v AS w FROM A, B WHERE A.k = B.k"


def batch(number: int) -> dict[str, pa.Table]:
    rows = pa.table({"k": [n % 3 for n in range(6)], "v": [6 * number + n for n in range(6)]}, schema=SCHEMA)
    return {"A": rows, "B": rows}


def answer_to(batches: int) -> pa.Table:
    stream = Stream(pa.concat_tables([batch(number)["A"] for number in range(batches)]), ["k"])
    return join({"A": stream, "B": stream}, ["A.v", "B.v"])


class Meddler:
    """Does something once, when a failpoint is passed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: object) -> None:
        self._actions: dict[str, Callable[[], None]] = {}
        monkeypatch.setattr(module, "failpoint", self._pass)

    def at(self, name: str, action: Callable[[], None]) -> None:
        self._actions[name] = action

    def _pass(self, name: str) -> None:
        self._actions.pop(name, lambda: None)()


def test_a_driver_that_was_taken_over_while_its_processors_worked_gives_nothing_to_its_sink(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meddler, path = Meddler(monkeypatch, take_step), tmp_path / "checkpoint"
    with Steps(spark, path, QUERY, KINDS) as old:
        taken_over: list[Steps] = []

        def take_over() -> None:
            old.taken.release()
            taken_over.append(Steps(spark, path, QUERY, KINDS).__enter__())

        meddler.at("step.processed", take_over)
        with pytest.raises(CheckpointInUseError, match="taken over by a newer run"):
            old.feed(batch(0))
        (new,) = taken_over
        new.feed(batch(0))
        new.taken.release()
    assert old.answers == []
    assert_same_rows(new.answer, answer_to(1))


@pytest.mark.parametrize("before", [0, 1], ids=["the first step", "a later step"])
def test_a_step_that_was_checked_before_a_takeover_cannot_be_committed_after_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    meddler, path = Meddler(monkeypatch, checkpoint), tmp_path / "checkpoint"
    with Steps(spark, path, QUERY, KINDS) as old:
        for number in range(before):
            old.feed(batch(number))
        taken_over: list[Steps] = []

        def take_over() -> None:
            old.taken.release()
            taken_over.append(Steps(spark, path, QUERY, KINDS).__enter__())

        meddler.at("commit.checked", take_over)
        with pytest.raises(CheckpointInUseError, match="was written by another run"):
            old.feed(batch(before))
        (new,) = taken_over
        new.feed(batch(before))
        new.feed(batch(before + 1))
        new.taken.release()
    assert_same_rows(pa.concat_tables([*old.answers[:before], new.answer]), answer_to(before + 2))


def test_a_step_that_is_committed_while_a_run_begins_makes_that_run_begin_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Steps(spark, tmp_path / "checkpoint", QUERY, KINDS) as old:
        old.taken.release()
        new = Checkpoint(tmp_path / "checkpoint")
        # The epoch of the new run is not yet there when the old one looks for it.
        epochs = old.taken.path / "epochs"
        new.take(old.taken.identity())
        (epochs / f"{new.epoch:010d}.json").rename(tmp_path / "later")
        (epochs / f"{old.taken.epoch:010d}.json").touch()
        old.feed(batch(0))
        (tmp_path / "later").rename(epochs / f"{new.epoch:010d}.json")
        with pytest.raises(CheckpointInUseError, match="start the run again"):
            new.claim()
        new.release()
        with pytest.raises(CheckpointInUseError, match="taken over"):
            old.feed(batch(1))
    with Steps(spark, tmp_path / "checkpoint", QUERY, KINDS) as again:
        again.feed(batch(1))
    assert_same_rows(pa.concat_tables([old.answers[0], again.answer]), answer_to(2))


def test_an_old_driver_that_is_slow_after_its_commit_removes_nothing_of_the_new_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meddler, path = Meddler(monkeypatch, commit), tmp_path / "checkpoint"
    with Steps(spark, path, QUERY, KINDS) as old:
        old.feed(batch(0))
        taken_over: list[Steps] = []

        def take_over() -> None:
            old.taken.release()
            taken_over.append(Steps(spark, path, QUERY, KINDS, processors=3).__enter__())
            taken_over[0].feed(batch(2))

        meddler.at("step.after_commit", take_over)
        old.feed(batch(1))
        (new,) = taken_over
        new.feed(batch(3))
        new.taken.release()
    with Steps(spark, path, QUERY, KINDS, processors=3) as last:
        last.feed(batch(4))
        assert_same_rows(pa.concat_tables([old.answer, new.answer, last.answer]), answer_to(5))
