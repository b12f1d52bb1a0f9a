"""Several queries in one engine: each gets its own answer, whatever the others do."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import anabranch as ab
from anabranch.api.writer import Writer
from anabranch.cli.main import app
from anabranch.errors import ConfigError, ResumeMismatchError
from tests.api.conftest import QUERY, Pair
from tests.oracle.feed import written
from tests.oracle.referee import Stream, assert_same_rows, join

TEXTS = {
    "pairs": QUERY,
    "query": QUERY,
    "swapped": "SELECT b.v, a.v AS w, b.k + 1 AS k1 FROM B b, A a WHERE b.k = a.k AND a.v <> b.v",
    "self": "SELECT x.v, y.v AS w FROM A x, A y WHERE x.k = y.k",
}


def expected(pair: Pair, name: str, first: int = 0, last: int | None = None) -> pa.Table:
    """The answer to a query over the batches from one on."""
    a, b = (Stream(pa.concat_tables(feed.batches[first:last]), ["k"]) for feed in (pair.a, pair.b))
    if name == "self":
        return join({"x": a, "y": a}, ["x.v", "y.v AS w"])
    select = ["A.k", "A.v", "B.v AS w"] if name == "pairs" else ["B.v", "A.v AS w", "B.k + 1 AS k1"]
    return join({"A": a, "B": b}, select)


def writer(engine: ab.Engine, directory: Path, name: str) -> Writer:
    return engine.sql(TEXTS[name]).writeStream.queryName(name).option("path", str(directory / name))


def run_to_end(pair: Pair, *names: str, **options: str) -> ab.Run:
    engine = pair.engine()
    writers = [writer(engine, pair.directory, name).trigger(availableNow=True) for name in names]
    run = engine.start(writers, **options)
    run.awaitTermination()
    return run


def test_each_query_has_its_own_sink_and_answer_and_what_they_share_is_computed_once(pair: Pair) -> None:
    run = run_to_end(pair, "pairs", "swapped", "self")
    for name in ("pairs", "swapped", "self"):
        assert_same_rows(written(pair.directory / name), expected(pair, name))
    told = run.lastProgress["anabranch"]
    totals = {name: entry["results"] for name, entry in told["queries"].items()}
    assert totals == {name: len(expected(pair, name)) for name in ("pairs", "self")} | {
        "swapped": len(expected(pair, "swapped"))
    }
    assert len(run._live.plan.network.operators) == 2
    assert set(told["receivedRows"]) == {"A", "B", "x", "y"}, "A and B are read once for both queries"


def test_any_sink_may_stand_beside_any_other(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    engine, seen = pair.engine(), {}

    def take(rows: object, batch_id: int) -> None:
        seen[batch_id] = rows.toArrow()

    run = engine.start(
        [
            engine.sql(TEXTS["swapped"]).writeStream.foreachBatch(take).trigger(availableNow=True),
            engine.sql(TEXTS["pairs"]).writeStream.format("memory").queryName("in_memory"),
            engine.sql(TEXTS["pairs"]).writeStream.format("json").option("path", str(pair.directory / "json")),
            engine.sql(TEXTS["self"]).writeStream.format("console"),
        ]
    )
    run.awaitTermination()
    assert run.queries == ("query", "in_memory", "query 2", "query 3")
    assert_same_rows(pa.concat_tables(seen.values()), expected(pair, "swapped"))
    assert_same_rows(pair.spark.table("in_memory").toArrow(), expected(pair, "pairs"))
    assert_same_rows(written(pair.directory / "json", "**/*.json", "read_json"), expected(pair, "pairs"))
    assert "Batch: 1" in capsys.readouterr().out


def test_queries_are_added_and_removed_while_the_others_go_on(pair: Pair) -> None:
    engine = pair.engine()
    run = engine.start([writer(engine, pair.directory, "pairs")])
    try:
        run.processAllAvailable()
        run.add(writer(engine, pair.directory, "swapped"))
        pair.add(1, 1, 2)
        run.processAllAvailable()
        run.add(writer(engine, pair.directory, "self"))
        pair.add(2, 1, 1)
        run.processAllAvailable()
        run.remove("swapped")
        pair.add(3, 1, 2)
        run.processAllAvailable()
        assert run.queries == ("pairs", "self")
        assert run.name == run.lastProgress["name"] == "pairs, self"
        assert [event.kind for event in run.events] == ["add", "add", "remove"]
    finally:
        run.stop()
    assert_same_rows(written(pair.directory / "pairs"), expected(pair, "pairs"))
    assert_same_rows(written(pair.directory / "swapped"), expected(pair, "swapped", 2, 4))
    # A stream that is read already is read on from where it is.
    assert_same_rows(written(pair.directory / "self"), expected(pair, "self", 3))
    assert len(run.recentProgress) >= 5

    pair.add(1, 2, 3)
    told = r"it also answers the query 'self', which is not started. .* missing='remove'.* anabranch remove .*"
    with pytest.raises(ResumeMismatchError, match=told):
        run_to_end(pair, "pairs")
    run_to_end(pair, "self", "pairs")
    assert_same_rows(written(pair.directory / "pairs"), expected(pair, "pairs"))
    assert_same_rows(written(pair.directory / "self"), expected(pair, "self", 3))


def test_the_same_program_goes_on_without_queries_that_were_added_to_its_run(pair: Pair) -> None:
    """Removed from the command line, or by the program itself, which says what becomes of those that it lacks."""
    run_to_end(pair, "pairs", "swapped", "self")
    checkpoint = pair.directory / "checkpoint"
    refused = CliRunner().invoke(app, ["remove", str(checkpoint), "swaped"])
    assert refused.exit_code == 2
    assert "answers no query 'swaped'; did you mean 'swapped'?" in refused.stderr
    shown = CliRunner().invoke(app, ["remove", str(checkpoint), "swapped"])
    assert shown.exit_code == 0, shown.output
    assert shown.stdout == "'swapped' is answered no longer; what is left: 'pairs', 'self'\n"
    pair.add(1, 2, 3)
    with pytest.raises(ConfigError, match="missing is what becomes of queries that are not started, not 'drop'"):
        run_to_end(pair, "pairs", missing="drop")
    with pytest.raises(ResumeMismatchError, match="none of the queries that it answers is started"):
        run_to_end(pair, "swapped", missing="remove")
    run = run_to_end(pair, "pairs", missing="remove")
    assert run.queries == ("pairs",)
    assert [(event.kind, event.details.get("query")) for event in run.events_since()][1:] == [("remove", "self")]
    gone = [event.details["query"] for event in run.events if event.kind == "remove"]
    assert gone == ["swapped", "self"], "also what was removed while no run went on"
    assert_same_rows(written(pair.directory / "pairs"), expected(pair, "pairs"))
    assert_same_rows(written(pair.directory / "swapped"), expected(pair, "swapped", 0, 2))
    assert_same_rows(written(pair.directory / "self"), expected(pair, "self", 0, 2))
    only = CliRunner().invoke(app, ["remove", str(checkpoint), "pairs"])
    assert "is the only query that" in only.stderr
    # A query that was removed begins anew.
    pair.add(3, 1, 1)
    run_to_end(pair, "pairs", "self")
    assert_same_rows(written(pair.directory / "pairs"), expected(pair, "pairs"))
    anew = pa.concat_tables([expected(pair, "self", 0, 2), expected(pair, "self", 3)])
    assert_same_rows(written(pair.directory / "self"), anew)


def test_a_query_that_comes_back_begins_anew_whatever_happens_before_the_next_batch(pair: Pair) -> None:
    engine = pair.engine()
    run = engine.start([writer(engine, pair.directory, name) for name in ("swapped", "pairs")])
    try:
        run.processAllAvailable()
        run.remove("pairs")
        back = engine.sql(QUERY).writeStream.queryName("pairs").option("path", str(pair.directory / "again"))
        run.add(back)
        run.add(writer(engine, pair.directory, "self"))
        pair.add(1, 2, 3)
        run.processAllAvailable()
    finally:
        run.stop()
    assert run.exception() is None
    assert_same_rows(written(pair.directory / "pairs"), expected(pair, "pairs", 0, 2))
    assert_same_rows(written(pair.directory / "again"), expected(pair, "pairs", 2))
    assert_same_rows(written(pair.directory / "swapped"), expected(pair, "swapped"))


def test_a_query_that_shared_its_join_may_go(pair: Pair) -> None:
    engine = pair.engine()
    run = engine.start([writer(engine, pair.directory, name) for name in ("swapped", "pairs")])
    try:
        run.processAllAvailable()
        assert len(run._live.plan.network.operators) == 1
        run.remove("pairs")
        for _ in range(6):
            pair.add(1, 2, 2)
        run.processAllAvailable()
    finally:
        run.stop()
    assert run.exception() is None
    assert_same_rows(written(pair.directory / "swapped"), expected(pair, "swapped"))


def test_a_change_during_a_step_that_fails_is_refused_with_the_failure(pair: Pair) -> None:
    engine, begun, go_on = pair.engine(), threading.Event(), threading.Event()

    def fail(rows: object, batch_id: int) -> None:
        begun.set()
        go_on.wait(30)
        raise RuntimeError("out of order")

    run = engine.start([writer(engine, pair.directory, "pairs"), engine.sql(QUERY).writeStream.foreachBatch(fail)])
    begun.wait(60)
    threading.Timer(1, go_on.set).start()
    with pytest.raises(Exception, match="out of order"):
        run.add(writer(engine, pair.directory, "self"))
    with pytest.raises(Exception, match="out of order"):
        run.awaitTermination()
    run_to_end(pair, "pairs", "query")
    assert_same_rows(written(pair.directory / "pairs"), expected(pair, "pairs"))


def test_a_sink_cannot_change_the_queries_of_its_own_run(pair: Pair) -> None:
    engine, told = pair.engine(), []

    def change(rows: object, batch_id: int) -> None:
        with pytest.raises(ConfigError, match="use another thread") as refused:
            run.remove("pairs")
        told.append(refused)

    run = engine.start([writer(engine, pair.directory, "pairs"), engine.sql(QUERY).writeStream.foreachBatch(change)])
    try:
        run.processAllAvailable()
    finally:
        run.stop()
    assert told


def test_a_query_may_be_added_when_the_checkpoint_is_resumed(pair: Pair) -> None:
    run_to_end(pair, "pairs")
    pair.add(1, 2, 2)
    run_to_end(pair, "pairs", "swapped")
    assert_same_rows(written(pair.directory / "pairs"), expected(pair, "pairs"))
    assert_same_rows(written(pair.directory / "swapped"), expected(pair, "swapped", 2))


def test_a_stream_that_nobody_has_read_is_read_from_its_beginning(pair: Pair) -> None:
    engine = pair.engine()
    run = engine.start([writer(engine, pair.directory, "self")])
    try:
        run.processAllAvailable()
        run.add(writer(engine, pair.directory, "pairs"))
        pair.add(1, 2, 3)
        run.processAllAvailable()
    finally:
        run.stop()
    a, b = pa.concat_tables(pair.a.batches[2:]), pair.b.complete
    answer = join({"A": Stream(a, ["k"]), "B": Stream(b, ["k"])}, ["A.k", "A.v", "B.v AS w"])
    assert_same_rows(written(pair.directory / "pairs"), answer)
    assert_same_rows(written(pair.directory / "self"), expected(pair, "self"))


def test_a_query_that_cannot_be_added_leaves_the_others_as_they_were(pair: Pair) -> None:
    engine = pair.engine()
    run = engine.start([writer(engine, pair.directory, "pairs")])
    try:
        run.processAllAvailable()
        with pytest.raises(ConfigError, match="two queries are called 'pairs'"):
            run.add(writer(engine, pair.directory, "pairs"))
        with pytest.raises(ConfigError, match="needs a path"):
            run.add(engine.sql(QUERY).writeStream.queryName("nowhere"))
        with pytest.raises(ConfigError, match="one trigger"):
            run.add(writer(engine, pair.directory, "self").trigger(availableNow=True))
        with pytest.raises(ConfigError, match="query of this run's own engine"):
            run.add(writer(pair.engine("other"), pair.directory, "self"))
        with pytest.raises(ConfigError, match="no query 'pears' in this run; did you mean 'pairs'"):
            run.remove("pears")
        with pytest.raises(ConfigError, match="the only query of this run"):
            run.remove("pairs")
        pair.add(1, 2, 3)
        run.processAllAvailable()
    finally:
        run.stop()
    assert_same_rows(written(pair.directory / "pairs"), expected(pair, "pairs"))
    with pytest.raises(ConfigError, match="the run has ended"):
        run.add(writer(engine, pair.directory, "self"))


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (lambda engine, path: [], "no query to start"),
        (lambda engine, path: [engine.sql(QUERY)], "takes writers, query.writeStream..., not Query"),
        (lambda engine, path: engine.sql(QUERY).writeStream, "start.. takes a list of writers"),
        (lambda engine, path: [writer(engine, path, "self"), writer(engine, path, "self")], "called 'self'"),
        (
            lambda engine, path: [
                writer(engine, path, "self").trigger(availableNow=True),
                writer(engine, path, "pairs").trigger(processingTime="1 second"),
            ],
            "one trigger",
        ),
    ],
)
def test_what_cannot_start_together_is_refused(pair: Pair, chosen: object, message: str) -> None:
    engine = pair.engine()
    with pytest.raises(ConfigError, match=message):
        engine.start(chosen(engine, pair.directory))
    assert not (pair.directory / "checkpoint").exists()
