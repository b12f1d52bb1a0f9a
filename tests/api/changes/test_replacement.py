"""`Run.change`: a running query is replaced by another one, beside others and with what its sink can take."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import anabranch as ab
from anabranch.errors import ConfigError, ResumeMismatchError
from tests.oracle.feed import Feed, written
from tests.oracle.referee import assert_same_rows, difference, query

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("v", pa.int64())])
CHAIN = "SELECT A.v AS a, B.v AS b, C.v + C.j AS c FROM A, B, C WHERE A.k = B.k AND B.j = C.j"
FOUR = "SELECT A.v AS a, B.v AS b, D.v AS d, C.j AS j FROM A, B, C, D WHERE A.k = B.k AND B.j = C.j AND C.j = D.k"
PAIRS = "SELECT A.v AS a, B.v AS b FROM A, B WHERE A.k = B.k"
SOME_PAIRS = PAIRS + " AND A.v <> B.v"


def test_queries_of_a_run_are_replaced_whether_or_not_more_has_to_be_read(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(1)
    feeds = {name: Feed(tmp_path / name, SCHEMA) for name in "ABCD"}
    answered: list[pa.Table] = []

    def add(names: str) -> None:
        for name in names:
            feeds[name].add(**{column: [chance.randrange(4) for _ in range(10)] for column in SCHEMA.names})

    def collect(results: DataFrame, _: int) -> None:
        answered.append(results.toArrow())

    def queries(engine: ab.Engine, pairs: str, chain: str) -> ab.Run:
        for name, feed in feeds.items():
            engine.register(name, feed.stream(spark))
        to_files = engine.sql(pairs).writeStream.queryName("pairs").option("path", str(tmp_path / "out"))
        return engine.start([to_files, engine.sql(chain).writeStream.queryName("chain").foreachBatch(collect)])

    def complete(batches: int | None = None) -> dict[str, pa.Table]:
        return {name: feed.first(batches) for name, feed in feeds.items()}

    add("ABC")
    engine = ab.Engine(spark, tmp_path / "checkpoint", 2, groups=16)
    run = queries(engine, PAIRS, CHAIN)
    try:
        run.processAllAvailable()
        started = run.runId
        with pytest.raises(ConfigError, match="goes to the parquet sink as struct<a:bigint,b:bigint>, and would be"):
            run.change("pairs", engine.sql("SELECT A.v AS a FROM A, B WHERE A.k = B.k"))
        assert "A         kept" in str(run.preview("pairs", engine.sql(SOME_PAIRS)))
        run.change("pairs", engine.sql(SOME_PAIRS))
        assert run.runId == started, "Spark's query goes on as it is"
        add("ABC")
        run.processAllAvailable()
        preview = run.change("chain", engine.sql(FOUR))
        assert preview.reads_anew
        assert run.runId != started
        assert run.isActive
        add("ABCD")
        run.processAllAvailable()
        told = [event for event in run.events if event.kind == "change"]
        assert [event.details["query"] for event in told] == ["pairs", "chain"]
        assert told[1].details["states"]["D"] == ["begins empty", 0]
    finally:
        run.stop()
    again = ab.Engine(spark, tmp_path / "checkpoint", 2, groups=16)
    with pytest.raises(
        ResumeMismatchError, match=r"'chain' was changed while it ran \(run.change\).*as it is now: SEL"
    ):
        queries(again, SOME_PAIRS, CHAIN)
    run = queries(ab.Engine(spark, tmp_path / "checkpoint", 2, groups=16), SOME_PAIRS, FOUR)
    try:
        add("ABCD")
        run.processAllAvailable()
    finally:
        run.stop()

    first, second = complete(1), complete(2)
    pairs = [query(PAIRS, first), difference(query(SOME_PAIRS, first), query(SOME_PAIRS, complete()))[0]]
    assert_same_rows(written(tmp_path / "out"), pa.concat_tables(pairs))
    chain = [table for table in answered if table.schema.names == ["a", "b", "c"]]
    assert_same_rows(pa.concat_tables(chain), query(CHAIN, second))
    four = [table for table in answered if table.schema.names == ["a", "b", "d", "j"]]
    assert_same_rows(pa.concat_tables(four), query(FOUR, complete()))
