"""A running query: progress, waiting, stopping, and that nothing is left behind."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from anabranch.errors import CheckpointInUseError
from tests.api.conftest import Pair
from tests.oracle.feed import run_to_end, written
from tests.oracle.referee import assert_same_rows

pytestmark = pytest.mark.spark


@pytest.fixture
def stopped() -> Iterator[ExitStack]:
    """Runs to stop when a test ends, however it ends."""
    with ExitStack() as stack:
        yield stack


def test_a_run_that_goes_on(
    pair: Pair,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    stopped: ExitStack,
) -> None:
    """processingTime: input that arrives later is processed, a second run is refused meanwhile, stop ends it."""
    caplog.set_level(logging.INFO, logger="anabranch")
    engine = pair.engine(memory=1, policies=[])
    writer = engine.sql("SELECT A.k, A.v, B.v AS w FROM A, B WHERE A.k = B.k AND A.v <> B.v").writeStream
    run = writer.queryName("steady").trigger(processingTime="100 milliseconds").start(tmp_path / "out")
    stopped.callback(run.stop)
    run.processAllAvailable()
    assert run.isActive
    assert run.name == "steady"
    assert run.awaitTermination(1) is False
    with pytest.raises(CheckpointInUseError, match=r"in use by another run \(process \d+ on .*\); stop that run first"):
        pair.engine().sql(engine_text(run)).writeStream.start(tmp_path / "other")
    pair.add(1, 4)
    run.processAllAvailable()
    assert_same_rows(written(tmp_path / "out"), pair.expected())

    progress = run.recentProgress
    with_rows = [entry for entry in progress if entry["numInputRows"]]
    batches = [entry["batchId"] for entry in with_rows]  # the two files of the last arrival may meet a trigger each
    assert batches in ([0, 1, 2], [0, 1, 2, 3])
    assert {"id", "runId", "name", "timestamp", "batchId", "durationMs", "sources", "sink"} <= with_rows[0].keys()
    assert with_rows[0]["id"] == run.id
    assert with_rows[0]["runId"] == run.runId
    assert sum(entry["sink"]["numOutputRows"] for entry in with_rows) == len(pair.expected())
    ours = with_rows[-1]["anabranch"]
    assert ours["step"] == len(batches) + 1  # the first number is claimed when the run begins
    arrived = [entry["anabranch"]["receivedRows"] for entry in with_rows[2:]]
    assert {name: sum(rows[name] for rows in arrived) for name in ("A", "B")} == {"A": 2, "B": 2}
    assert ours["totals"]["received"] == {"A": 8, "B": 8}
    assert [processor["processor"] for processor in ours["processors"]] == [0, 1]
    assert sum(processor["activeRows"] for processor in ours["processors"]) == 16
    assert all({"activeBytes", "results", "busyMs"} <= processor.keys() for processor in ours["processors"])
    last = run.lastProgress
    assert last is not None
    assert last["batchId"] >= 2
    assert {event.kind for event in run.events} == {"memory"}
    assert "more than its budget" in str(run.events[0])

    run.explain()
    shown = capsys.readouterr().out
    assert "BinaryJoin on A.`k`=B.`k`" in shown
    assert "rows of active state" in shown

    assert repr(run).startswith("<Run of 'steady': active, step ")
    run.stop()
    assert not run.isActive
    assert f"ended, step {ours['step']}, checkpoint '{tmp_path}/checkpoint'>" in repr(run)
    logged = [record.getMessage() for record in caplog.records if record.name == "anabranch"]
    assert logged[0] == f"start: steady on 2 processors, checkpoint {tmp_path}/checkpoint"
    assert logged[-1] == f"stop: after step {ours['step']}, checkpoint {tmp_path}/checkpoint"
    assert {record.levelname for record in caplog.records if "more than its budget" in record.message} == {"WARNING"}
    assert run.exception() is None
    assert run.awaitTermination(10) is True
    assert_nothing_left(tmp_path)
    run_to_end(pair.engine().sql(engine_text(run)), tmp_path / "out")
    assert_same_rows(written(tmp_path / "out"), pair.expected())


def engine_text(run) -> str:
    return next(iter(run._live.writers.values()))._query._bound.text


def test_sql_functions_of_the_user_may_be_part_of_keys_conditions_and_answers(pair: Pair, tmp_path: Path) -> None:
    pair.spark.sql("CREATE OR REPLACE TEMPORARY FUNCTION halved(n BIGINT) RETURNS BIGINT RETURN n DIV 2")
    text = "SELECT halved(2 * A.k) AS k, A.v, B.v AS w FROM A, B WHERE halved(2 * A.k) = B.k AND halved(B.k) < 9"
    run_to_end(pair.engine().sql(text), tmp_path / "out")
    assert_same_rows(written(tmp_path / "out"), pair.expected())


def test_the_session_is_left_as_it_was(pair: Pair, tmp_path: Path) -> None:
    before = dict(pair.spark.sparkContext.getConf().getAll()), pair.spark.conf.getAll
    run = run_to_end(pair.query(), tmp_path / "out")
    assert run.lastProgress is not None
    assert (dict(pair.spark.sparkContext.getConf().getAll()), pair.spark.conf.getAll) == before
    assert_nothing_left(tmp_path)


def test_a_condition_that_is_never_true_gives_an_empty_answer(pair: Pair, tmp_path: Path) -> None:
    """Spark would like to skip the join altogether; the state has to be kept all the same."""
    run = run_to_end(pair.engine().sql("SELECT A.k FROM A, B WHERE A.k = B.k AND 1 = 0"), tmp_path / "out")
    assert run.lastProgress is not None
    assert run.lastProgress["anabranch"]["totals"]["received"] == {"A": 6, "B": 6}
    assert run.lastProgress["sink"]["numOutputRows"] == 0


def assert_nothing_left(directory: Path) -> None:
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("anabranch")] == []
    opened = [file.path for file in psutil.Process().open_files() if file.path.startswith(str(directory))]
    assert opened == []
    mapped = [entry.path for entry in psutil.Process().memory_maps() if entry.path.startswith(str(directory))]
    assert mapped == []
