"""`Run.migrate`: a running query goes on in another order of its joins, and so does a program that starts it again."""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import anabranch as ab
from anabranch.errors import ConfigError
from anabranch.state.failpoints import VARIABLE, FailpointError
from tests.oracle.feed import Feed, written
from tests.oracle.referee import assert_same_rows, query

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("v", pa.int64())])
CHAIN = "SELECT A.v AS a, B.v AS b, C.v AS c FROM A, B, C WHERE A.k = B.k AND B.j = C.j"
PAIRS = "SELECT A.v AS a, B.v AS b FROM A, B WHERE A.k = B.k"


def test_a_running_query_migrates_beside_another_and_a_program_that_knows_nothing_of_it_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
        monkeypatch.setenv(VARIABLE, f"migration.settled=raise@once:{tmp_path / 'marker'}")
        failing = run.migrate("A (B C)", "background", "chain", pace=3)
        with pytest.raises(FailpointError):
            failing.await_done(60)
        monkeypatch.delenv(VARIABLE)
        assert failing.phase == "failed"
        told = "chain: the migration from (A B) C to A (B C) has failed: failpoint migration.settled"
        assert told in [event.reason for event in run.events if event.kind == "warning"]
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
    assert [event.kind for event in run.events if event.kind.startswith("migrat")] == ["migrating"] * 2 + ["migrate"]
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


def test_a_migration_is_not_cancelled_while_it_is_brought_to_its_end_nor_by_a_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Cancelling puts the old order in force: after the end its operators would be empty."""
    feeds = {name: Feed(tmp_path / name, SCHEMA) for name in "ABC"}
    engine, refused, migrations = ab.Engine(spark, tmp_path / "checkpoint", 2, groups=16), [], []
    for name, feed in feeds.items():
        engine.register(name, feed.stream(spark))
        feed.add(k=[*range(20)], j=[*range(20)], v=[*range(20)])

    def sink(results: DataFrame, batch: int) -> None:
        for migration in migrations[:1]:
            with pytest.raises(ConfigError) as refusal:
                migration.cancel()
            refused.append(str(refusal.value))
        results.count()

    def cancel() -> None:
        with suppress(ConfigError):  # it may be done by then
            migrations[0].cancel()

    run = engine.sql(CHAIN, joins="(A B) C").writeStream.foreachBatch(sink).start()
    try:
        run.processAllAvailable()
        zone = spark.conf.get("spark.sql.session.timeZone")
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        with pytest.raises(ConfigError, match="the session's settings have changed since the run began"):
            run.migrate("A (B C)")
        spark.conf.set("spark.sql.session.timeZone", zone)
        with run._live.lock:
            migrations.append(run.migrate("A (B C)", "background", pace=1))
            cancelling = threading.Thread(target=cancel)
            cancelling.start()
            cancelling.join(1)
            assert cancelling.is_alive()
            assert migrations[0].phase == "filling"
        cancelling.join()
        assert migrations[0].phase in ("cancelled", "done")
        feeds["A"].add(k=[1], j=[1], v=[1])
        run.processAllAvailable()
        assert "by a function that a batch is given to; use another thread" in refused[0]
    finally:
        run.stop()
