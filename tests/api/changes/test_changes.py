"""Queries come and go while Spark's query goes on as it is; it is started anew only for what it does not read yet."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.api.writer import Writer
from tests.oracle.feed import Feed, written
from tests.oracle.referee import assert_same_rows, query

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("v", pa.int64())])
CHAIN = "SELECT A.v AS a, B.v AS b, C.v AS c FROM A, B, C WHERE A.k = B.k AND B.j = C.j"
# By name: the text, and the join order if it is not the first query's.
OVER_WHAT_IS_READ = {
    "other order": (CHAIN, "A (B C)"),
    "all at once": ("SELECT A.v AS a, B.v AS b, C.v AS c FROM A, B, C WHERE A.k = B.k AND B.k = C.v", "A B C"),
    "filtered": (f"{CHAIN} AND A.v > 2 AND B.j <> 1", "(A B) C"),
    "between operators": (f"{CHAIN} AND abs(A.v - B.v) < 3", "(A B) C"),
    "other key": ("SELECT A.k, B.v AS b FROM A, B WHERE A.v = B.j", "auto"),
    "itself": ("SELECT x.v AS x, y.v AS y FROM B x, B y WHERE x.k = y.j AND x.v < y.v", "auto"),
    "computed": (
        "SELECT A.v + 1 AS a, upper(C.v || 'x') AS c FROM A, C WHERE coalesce(A.k, 7) = C.j",
        "auto",
    ),
}
# On a row that it fails on, such as the greatest number there is, the note has to name the whole row.
CAN_FAIL = "SELECT A.v AS a, C.v AS c FROM A, C WHERE A.k + 1 = C.j"
ONE_COLUMN_MORE = "SELECT A.v AS a, C.k AS c FROM A, C WHERE A.k = C.j"


class Streams:
    """Three feeds with few keys, an engine over them, and what queries should answer."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark, self.directory = spark, directory
        self.feeds = {name: Feed(directory / name, SCHEMA) for name in "ABC"}
        self._chance = random.Random(7)

    def add(self) -> None:
        """One more batch of every stream."""
        for feed in self.feeds.values():
            feed.add(**{name: [self._chance.choice([*range(5), None]) for _ in range(12)] for name in SCHEMA.names})

    def engine(self, placement: str = "spread") -> ab.Engine:
        engine = ab.Engine(self.spark, self.directory / "checkpoint", 2, groups=16, placement=placement)
        for name, feed in self.feeds.items():
            engine.register(name, feed.stream(self.spark))
        return engine

    def writer(self, engine: ab.Engine, name: str, text: str, joins: str = "auto") -> Writer:
        written_to = engine.sql(text, joins=joins).writeStream.queryName(name)
        return written_to.option("path", str(self.directory / "out" / name))

    def check(self, name: str, text: str, first: int = 0, last: int | None = None) -> None:
        """A query has answered the batches from one on, up to another."""
        rows = {stream: pa.concat_tables(feed.batches[first:last]) for stream, feed in self.feeds.items()}
        assert_same_rows(written(self.directory / "out" / name), query(text, rows))


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> Streams:
    return Streams(spark, tmp_path)


def test_what_is_read_already_answers_any_query_without_a_restart(streams: Streams) -> None:
    engine = streams.engine()
    streams.add()
    run = engine.start([streams.writer(engine, "chain", CHAIN, "(A B) C")])
    began: dict[str, int] = {}
    try:
        run.processAllAvailable()
        started = run.runId
        for number, (name, (text, joins)) in enumerate(OVER_WHAT_IS_READ.items()):
            began[name] = len(streams.feeds["A"].batches)
            run.add(streams.writer(engine, name, text, joins))
            assert run.runId == started, name
            if name == "filtered":
                run.relocate(range(8), to=1)
            if number % 2 or number == len(OVER_WHAT_IS_READ) - 1:
                streams.add()
                run.processAllAvailable()
        run.remove("other order")
        run.remove("itself")
        ended = len(streams.feeds["A"].batches)
        streams.add()
        run.processAllAvailable()
        run.add(streams.writer(engine, "can fail", CAN_FAIL))
        assert run.runId != started
        run.remove("can fail")
        started = run.runId
        run.add(streams.writer(engine, "column", ONE_COLUMN_MORE))
        assert run.runId != started
        streams.add()
        run.processAllAvailable()
        restarted = run.runId
        run.remove("column")
        run.add(streams.writer(engine, "column", ONE_COLUMN_MORE))
        assert run.runId == restarted, "it is read as long as Spark's query goes on"
        streams.add()
        run.processAllAvailable()
    finally:
        run.stop()
    streams.check("chain", CHAIN)
    for name, (text, _) in OVER_WHAT_IS_READ.items():
        streams.check(name, text, began[name], ended if name in ("other order", "itself") else None)


def test_operators_stay_where_they_have_gone_when_queries_come_for_which_more_is_read(streams: Streams) -> None:
    """Also if the pattern would place them otherwise beside those of the new query."""
    engine = streams.engine(placement="grouping")
    streams.add()
    run = engine.start([streams.writer(engine, "chain", CHAIN, "(A B) C")])
    try:
        run.processAllAvailable()
        started = run.runId
        assert [operator.processors for operator in run.distribution()] == [(0,), (1,)]
        run.reallocate([operator.operator for operator in run.distribution()], to=1)
        run.add(streams.writer(engine, "column", ONE_COLUMN_MORE))
        assert run.runId != started
        assert {run.distribution()[name].processors for name in ("join of A, B", "join of C, A, B")} == {(1,)}
        streams.add()
        run.processAllAvailable()
    finally:
        run.stop()
    streams.check("chain", CHAIN)
    streams.check("column", ONE_COLUMN_MORE, 1)


def test_a_crash_after_a_change_finds_the_change_or_what_was_before(
    streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing counts before the first step with it is committed; a program that starts it again gets its answer."""
    text, joins = OVER_WHAT_IS_READ["other key"]
    streams.add()
    for number, failpoint in enumerate(["step.before_sink", "step.before_commit", "step.after_commit"]):
        engine = streams.engine()
        queries = [streams.writer(engine, "chain", CHAIN)]
        run = engine.start(queries if number == 0 else [*queries, streams.writer(engine, "other", text, joins)])
        try:
            run.processAllAvailable()
            if number == 0:
                run.add(streams.writer(engine, "other", text, joins))
            else:
                run.remove("other")
                run.add(streams.writer(engine, "other", text, joins))
            monkeypatch.setenv("ANABRANCH_FAILPOINT", f"{failpoint}=raise@once:{tmp_path / failpoint}")
            began = len(streams.feeds["A"].batches)
            streams.add()
            with pytest.raises(Exception, match=f"failpoint {failpoint}"):
                run.processAllAvailable()
        finally:
            run.stop()
        engine = streams.engine()
        writers = [streams.writer(engine, "chain", CHAIN), streams.writer(engine, "other", text, joins)]
        engine.start([writer.trigger(availableNow=True) for writer in writers]).awaitTermination()
        streams.check("chain", CHAIN)
        answered = query(text, {name: pa.concat_tables(f.batches[began:]) for name, f in streams.feeds.items()})
        assert len(answered)
    streams.check("chain", CHAIN)
