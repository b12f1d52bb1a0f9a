"""`Run.migrate`: a running query goes on in another order of its joins, and so does a program that starts it again."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.errors import ConfigError
from tests.oracle.feed import Feed, written
from tests.oracle.referee import assert_same_rows, query

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("v", pa.int64())])
CHAIN = "SELECT A.v AS a, B.v AS b, C.v AS c FROM A, B, C WHERE A.k = B.k AND B.j = C.j"
PAIRS = "SELECT A.v AS a, B.v AS b FROM A, B WHERE A.k = B.k"


def test_a_running_query_migrates_beside_another_and_a_program_that_knows_nothing_of_it_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    chance = random.Random(1)
    feeds = {name: Feed(tmp_path / name, SCHEMA) for name in "ABC"}

    def add(many: int = 12) -> None:
        for feed in feeds.values():
            feed.add(**{name: [chance.choice([*range(4), None]) for _ in range(many)] for name in SCHEMA.names})

    def start() -> ab.Run:
        engine = ab.Engine(spark, tmp_path / "checkpoint", 2, groups=16)
        for name, feed in feeds.items():
            engine.register(name, feed.stream(spark))
        asked = {"chain": engine.sql(CHAIN, joins="(A B) C"), "pairs": engine.sql(PAIRS)}
        return engine.start(
            [q.writeStream.queryName(name).option("path", str(tmp_path / "out" / name)) for name, q in asked.items()]
        )

    add()
    run = start()
    try:
        run.processAllAvailable()
        started, inputs = run.runId, set(run.lastProgress["anabranch"]["receivedRows"])
        with pytest.raises(ConfigError, match=r"there are several queries \(chain, pairs\)"):
            run.migrate("A (B C)")
        with pytest.raises(ConfigError, match="there is no query 'chian' in this run; did you mean 'chain'"):
            run.migrate("A (B C)", query="chian")
        migration = run.migrate("A (B C)", "background", "chain", pace=3)
        assert "from (A B) C to A (B C), background" in repr(migration)
        with pytest.raises(ConfigError, match="no query can be removed while 'chain' migrates"):
            run.remove("pairs")
        assert set(run.lastProgress["anabranch"]["receivedRows"]) == inputs
        until = time.monotonic() + 60
        while not migration.await_done(0) and time.monotonic() < until:
            add(4)
            run.processAllAvailable()
            assert set(run.lastProgress["anabranch"]["receivedRows"]) == inputs
        assert migration.await_done(0)
        add()
        run.processAllAvailable()
        assert run.runId == started, "Spark's query goes on as it is"
        totals = run.lastProgress["anabranch"]["totals"]["received"]
        with_key = len(feeds["A"].complete) - feeds["A"].complete["k"].null_count
        assert totals["A"] == with_key, "the rows of an input are counted once, from the beginning"
        run.remove("pairs")
    finally:
        run.stop()
    assert [event.kind for event in run.events if event.kind.startswith("migrat")] == ["migrating", "migrate"]
    with pytest.raises(ConfigError, match="the run has ended, so no query can be migrated"):
        run.migrate("(A B) C", query="chain")
    removed = len(feeds["A"].batches)
    add()
    run = start()
    try:
        run.processAllAvailable()
        told = [event.reason for event in run.events_since() if event.kind == "resume"]
        assert "chain: joins go on as A (B C), which they have come to, and not as (A B) C, as the program says" in told
    finally:
        run.stop()
    complete = {name: feed.complete for name, feed in feeds.items()}
    assert_same_rows(written(tmp_path / "out" / "chain"), query(CHAIN, complete))
    assert removed < len(feeds["A"].batches)
