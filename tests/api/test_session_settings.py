"""Settings of the session that decide what a query means are those of its first start, while its checkpoint lives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import anabranch as ab
from anabranch.checkpoint.folder.directory import Checkpoint
from anabranch.checkpoint.settings import NAMES
from anabranch.cli.main import app
from anabranch.errors import ConfigError, ResumeMismatchError
from anabranch.manager.actions import SpillGroups
from anabranch.manager.snapshot import Snapshot
from anabranch.runtime.spark.query_settings import settings_in_force
from anabranch.state.store import encode_document
from tests.api.conftest import QUERY, Pair
from tests.oracle.feed import Feed, run_to_end, written
from tests.oracle.referee import assert_same_rows

pytestmark = pytest.mark.spark

ANSI = "spark.sql.ansi.enabled"


@dataclass(frozen=True)
class PushAll:
    """Push everything to disk after every step, so that results are owed."""

    def decide(self, snapshot: Snapshot) -> Iterator[SpillGroups]:
        for processor in snapshot.processors:
            for seen in processor.operators:
                groups = tuple(seen.statistics.groups[seen.statistics.bytes > 0].tolist())
                if groups:
                    yield SpillGroups(processor.processor, seen.operator, groups, 0, "all goes")


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.unset(name) if before is None else spark.conf.set(name, before)


def test_spark_has_all_settings_that_are_on_record(spark: SparkSession) -> None:
    assert settings_in_force(spark).keys() == set(NAMES)


def test_a_checkpoint_is_not_resumed_under_settings_that_change_what_its_query_means(
    spark: SparkSession, pair: Pair
) -> None:
    run_to_end(pair.query(), pair.directory / "out")
    others = {
        ANSI: "false",
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
        "spark.sql.session.timeZone": "Asia/Tokyo",
        "spark.sql.caseSensitive": "true",
        "spark.sql.decimalOperations.allowPrecisionLoss": "false",
        "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
        "spark.sql.parser.escapedStringLiterals": "true",
        "spark.sql.legacy.timeParserPolicy": "LEGACY",
        "spark.sql.legacy.nullInEmptyListBehavior": "true",
    }
    for name, value in others.items():
        told = "session time zone" if name == "spark.sql.session.timeZone" else name
        before = spark.conf.get(name)
        with (
            setting(spark, name, value),
            pytest.raises(ResumeMismatchError, match=f"{told} was {before!r} and is now {value!r}"),
        ):
            pair.query().writeStream.start(pair.directory / "out")
    run_to_end(pair.query(), pair.directory / "out")
    assert_same_rows(written(pair.directory / "out"), pair.expected())


def test_settings_that_an_older_checkpoint_does_not_have_on_record_are_not_compared(
    spark: SparkSession, pair: Pair
) -> None:
    run_to_end(pair.query(), pair.directory / "out")
    identity = Checkpoint(pair.directory / "checkpoint").identity()
    del identity["settings"]
    (pair.directory / "checkpoint" / "anabranch.json").write_bytes(encode_document(identity))
    with setting(spark, ANSI, "false"):
        run_to_end(pair.query(), pair.directory / "out")


def test_a_query_that_was_made_under_other_settings_is_not_started(spark: SparkSession, pair: Pair) -> None:
    query = pair.query()
    with (
        setting(spark, ANSI, "false"),
        pytest.raises(ConfigError, match=f"{ANSI} was 'true' and is now 'false'.*again with engine.sql"),
    ):
        query.writeStream.start(pair.directory / "out")
    assert not (pair.directory / "checkpoint").exists()


def test_a_sub_query_has_the_settings_of_the_query_that_it_is_in(spark: SparkSession, pair: Pair) -> None:
    """What was made of a stream under other settings is not used again: a cast that fails there gives null here."""
    engine = pair.engine()
    text = "SELECT s.i, B.k FROM (SELECT k, CAST(v AS INT) AS i FROM A) AS s, B WHERE s.k = B.k"
    engine.sql(text)
    with setting(spark, ANSI, "false"):
        run_to_end(engine.sql(text), pair.directory / "out")
    answer = written(pair.directory / "out")
    assert len(answer) == len(pair.expected())
    assert answer.column("i").null_count == len(answer)


def test_a_run_keeps_its_settings_and_is_not_changed_under_others(spark: SparkSession, pair: Pair) -> None:
    engine = pair.engine(memory=1_000, policies=[PushAll()])
    text = "SELECT A.k, CAST(A.v AS INT) AS i FROM A, B WHERE A.k = B.k AND A.k < 3"
    with setting(spark, ANSI, "false"):
        run = engine.sql(text).writeStream.queryName("one").start(pair.directory / "out")
        second = engine.sql(QUERY)
        run.processAllAvailable()
        added = second.writeStream.queryName("two").option("path", str(pair.directory / "two"))
        with setting(spark, ANSI, "true"):
            with pytest.raises(ConfigError, match=f"since the run began: {ANSI} was 'false' and is now 'true'"):
                run.add(added)
            run.clean_up()  # what is delivered without a batch is computed as in the batches
        run.add(added)
        run.stop()
    answer = written(pair.directory / "out")
    assert answer.column("i").null_count == len(answer) > 0


@pytest.mark.parametrize("name", ["spark.sql.ansi.doubleQuotedIdentifiers", "spark.sql.parser.quotedRegexColumnNames"])
def test_settings_under_which_spark_reads_names_in_another_way_are_refused(
    spark: SparkSession, pair: Pair, name: str
) -> None:
    with setting(spark, name, "true"), pytest.raises(ConfigError, match=f"{name} is true"):
        pair.query()


def test_large_arrow_types_change_neither_answer_nor_state(spark: SparkSession, pair: Pair) -> None:
    with setting(spark, "spark.sql.execution.arrow.useLargeVarTypes", "true"):
        run_to_end(pair.query(), pair.directory / "out")
    assert_same_rows(written(pair.directory / "out"), pair.expected())
    files = list((pair.directory / "checkpoint" / "state").glob("*.arrow"))
    schemas = [pa.ipc.open_file(path).schema for path in files]
    assert files
    assert not any(pa.types.is_large_string(field.type) for schema in schemas for field in schema)


def test_clean_up_of_a_stopped_run_has_all_its_settings(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session of the command has the defaults, under which the query would fail and name other times."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
    feeds = {name: Feed(tmp_path / name, schema) for name in "AB"}
    for batch in range(4):
        for feed in feeds.values():
            feed.add(k=[batch % 2, 1], v=["x", str(batch)])
    settings = {ANSI: "false", "spark.sql.session.timeZone": "Asia/Tokyo", "spark.sql.caseSensitive": "true"}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        engine = ab.Engine(spark, tmp_path / "checkpoint", 2, groups=16, memory=1_000, policies=[PushAll()])
        for name, feed in feeds.items():
            engine.register(name, feed.stream(spark))
        text = """SELECT CAST(A.v AS INT) AS i, CAST(timestamp_micros(A.k) AS STRING) AS t, B.v
            FROM A, B WHERE A.k = B.k"""
        run = engine.sql(text).writeStream.start(tmp_path / "out")
        run.processAllAvailable()
        run.stop()
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)

    @contextmanager
    def ours(**_: object) -> Iterator[SparkSession]:
        yield spark.newSession()

    monkeypatch.setattr(import_module("anabranch.cli.clean_up"), "embedded_spark", ours)
    shown = CliRunner().invoke(app, ["clean-up", str(tmp_path / "checkpoint"), "--json"])
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.output)["results"] > 0
    answer = written(tmp_path / "out")
    counts = {key: sum(batch.count(key) for batch in ([b % 2, 1] for b in range(4))) for key in (0, 1)}
    assert len(answer) == sum(count**2 for count in counts.values())
    assert {text[:16] for text in answer.column("t").to_pylist()} == {"1970-01-01 09:00"}
    assert 0 < answer.column("i").null_count < len(answer)
    assert {name: spark.conf.get(name) for name in settings} == before
