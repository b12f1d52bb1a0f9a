"""What an engine refuses, and how it says so; nothing here processes any data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import anabranch as ab
from anabranch.errors import CheckpointError, ConfigError, QueryError, UnsupportedError
from tests.oracle.feed import Feed

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("day", pa.date32()), ("v", pa.string())])


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> DataFrame:
    return Feed(tmp_path / "feed", SCHEMA).stream(spark)


@pytest.fixture
def engine(spark: SparkSession, tmp_path: Path, stream: DataFrame) -> ab.Engine:
    made = ab.Engine(spark, checkpoint=tmp_path / "checkpoint", processors=2)
    made.register("A", stream, time="at", lateness="1 second")
    made.register("B", stream)
    return made


@pytest.fixture
def functions(spark: SparkSession) -> None:
    """Functions of a user, in which the language sees no more than their names."""
    spark.udf.register("dice", F.udf(lambda value: value, "bigint").asNondeterministic())
    spark.udf.register("total", F.pandas_udf(_total, "bigint"))
    spark.sql("CREATE OR REPLACE TEMPORARY FUNCTION this_day() RETURNS DATE RETURN current_date()")
    spark.sql("CREATE OR REPLACE TEMPORARY FUNCTION newest() RETURNS BIGINT RETURN (SELECT max(id) FROM range(3))")
    spark.sql("CREATE OR REPLACE TEMPORARY FUNCTION twice(n BIGINT) RETURNS BIGINT RETURN 2 * n")


def _total(values: pd.Series) -> int:
    return int(values.sum())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"processors": 0}, "processors must be a positive whole number, not 0"),
        ({"processors": True}, "processors must be"),
        ({"processors": "2"}, "processors must be"),
        ({"processors": 300}, "300 processors need at least as many partition groups, not 256"),
        ({"groups": 100}, "power of two from 1 to 65536, not 100"),
        ({"groups": 0}, "power of two"),
        ({"memory": "lots"}, "lots"),
        ({"memory": -1}, "-1"),
        ({"checkpoint": "s3://bucket/checkpoint"}, "s3: storage is not supported"),
        ({"checkpoint": "file://elsewhere/checkpoint"}, "must not name a host"),
        ({"spark": "local[2]"}, "spark must be a SparkSession, .*not 'local"),
        ({"checkpoint": 3}, "a directory must be a path, such as 'state', not 3"),
        ({"policies": "adaptve"}, "policies must be .adaptive. or a list, such as"),
        ({"policies": [ab.Diffusion]}, "write Diffusion\\(\\) instead of Diffusion"),
        ({"policies": ["lazy-disk"]}, "write ab.LazyDisk\\(\\) instead of 'lazy-disk'"),
        ({"policies": ab.Diffusion()}, "policies are a list: write policies=\\[Diffusion"),
        ({"placement": ab.Grouping}, "write Grouping\\(\\) instead of Grouping"),
        ({"placement": {"eu": [0, 1]}}, "write ab.Tier\\({'eu': \\[0, 1\\]}\\)"),
    ],
)
def test_unusable_settings_are_refused_at_once(spark: SparkSession, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ab.Engine(**{"spark": spark, "checkpoint": "unused", **settings})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": ""}, "non-empty string"),
        ({"name": "a"}, "'a' is registered already"),
        ({"stream": "df"}, "must be a Spark DataFrame, not str"),
        ({"time": "att"}, "no column 'att'; did you mean 'at'"),
        ({"time": "day"}, "is date; it must be TIMESTAMP, TIMESTAMP_NTZ or BIGINT milliseconds"),
        ({"lateness": "1 second"}, "has a lateness but no time column"),
        ({"time": "at", "lateness": 10}, "10 is not a length of time; write a number and a unit"),
        ({"time": "at", "lateness": "1 fortnight"}, "unknown unit of time 'fortnight'"),
        ({"time": "at", "lateness": "-1 seconds"}, "not a length of time"),
    ],
)
def test_unusable_streams_are_refused_at_once(
    engine: ab.Engine, stream: DataFrame, arguments: dict[str, Any], message: str
) -> None:
    given = {"name": "C", "stream": stream, **arguments}
    with pytest.raises(ab.AnabranchError, match=message):
        engine.register(given.pop("name"), given.pop("stream"), **given)
    assert set(engine.streams) == {"A", "B"}


def test_a_table_is_not_a_stream(spark: SparkSession, engine: ab.Engine) -> None:
    with pytest.raises(ConfigError, match="not a streaming DataFrame; read it with spark.readStream"):
        engine.register("C", spark.range(3).toDF("k"))


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("SELECT A.v FROM A, B [RANGE 1 SECOND] WHERE A.k = B.k", QueryError, "B"),
        ("SELECT A.v FROM A, C WHERE A.k = C.k", QueryError, "C"),
        ("SELECT A.w FROM A, B WHERE A.k = B.k", QueryError, "unknown column 'w'"),
        ("SELECT A.v FROM A, B WHERE A.k = B.v", QueryError, "different types"),
        (
            "SELECT A.v FROM A, B, A AS C WHERE double(A.at) = B.at AND B.at = C.at",
            QueryError,
            r"C: `at` is bigint.*values of bigint that differ can be equal as double",
        ),
        ("SELECT length(A.k, 1) AS n FROM A, B WHERE A.k = B.k", QueryError, "Spark cannot analyse the query"),
        ("SELECT A.v FROM A, B WHERE A.k = B.k AND A.v + array(1) > 0", QueryError, "Spark cannot analyse"),
        ("SELECT count(*) AS n FROM A, B WHERE A.k = B.k", QueryError, "is grouped but has no event time"),
        ("SELECT nosuch(A.v) AS n FROM A, B WHERE A.k = B.k", QueryError, "nosuch"),
        ("SELECT A.v FROM A, B WHERE A.k = B.k AND nosuch(A.v)", QueryError, "nosuch"),
        ("SELECT A.v FROM A, B WHERE nosuch(A.k) = B.k", QueryError, "nosuch"),
        # Conditions that are no conditions, also where Spark would cast a string that stands beside others.
        ("SELECT A.v FROM A, B WHERE A.k = B.k AND A.at", QueryError, r"the condition `at` \(on A\) is bigint, not"),
        ("SELECT A.v FROM A, B WHERE A.k = B.k AND A.v AND A.v <> 'x'", QueryError, "`v` .* is string, not boolean"),
        ("SELECT A.v FROM A, B WHERE A.k = B.k AND A.at + B.at", QueryError, "`A.at` . `B.at` is bigint, not"),
        # Constants that Spark cannot cast to what they are compared with.
        ("SELECT A.v FROM A, B WHERE A.k = B.k AND A.at < 'soon'", QueryError, "'soon' .* cannot be cast to .BIGINT"),
        ("SELECT A.v FROM A, B WHERE A.k = B.k AND A.day = '2026-02-30'", QueryError, "'2026-02-30' .* .DATE"),
        ("SELECT A.v FROM A, B WHERE A.k = B.k AND A.at + B.at > 'many'", QueryError, "'many' .* cannot be cast"),
        ("SELECT A.at + 'x' AS n FROM A, B WHERE A.k = B.k", QueryError, "'x' .* cannot be cast to .BIGINT"),
        # Moments that move, where only Spark sees that a string is one.
        ("SELECT A.v FROM A, B WHERE A.k = B.k AND A.day < 'today'", UnsupportedError, "moving moment"),
        ("SELECT A.v FROM A, B WHERE A.k = B.k AND A.day IN ('tomorrow UTC')", UnsupportedError, "moving moment"),
        ("SELECT A.v FROM A, B WHERE A.k = B.k AND A.day < concat('to', 'day')", UnsupportedError, "moving moment"),
        ("SELECT datediff(A.day, 'now') AS n FROM A, B WHERE A.k = B.k", UnsupportedError, "moving moment"),
        # Functions of the user that give another value each time, or another number of rows.
        ("SELECT A.v FROM A, B WHERE dice(A.k) = B.k", UnsupportedError, "not deterministic, and a batch that is rep"),
        ("SELECT A.v FROM A, B WHERE A.k = B.k AND dice(A.at) = 1", UnsupportedError, r"dice\(`at`\) = 1 \(on A\)"),
        ("SELECT A.v FROM A, B WHERE A.k = B.k AND dice(A.at) < B.at", UnsupportedError, "not deterministic"),
        ("SELECT dice(A.at) AS n FROM A, B WHERE A.k = B.k", UnsupportedError, r"dice\(`A.at`\) is not supported"),
        ("SELECT total(A.at) AS n FROM A, B WHERE A.k = B.k", UnsupportedError, "an aggregate function in total"),
        ("SELECT A.v FROM A, B WHERE A.k = B.k AND total(A.at) > 1", UnsupportedError, "an aggregate function in"),
        ("SELECT A.v FROM A, B WHERE A.k = B.k AND A.day < this_day()", UnsupportedError, "current time, date or user"),
        ("SELECT newest() AS n FROM A, B WHERE A.k = B.k", UnsupportedError, "contains a subquery"),
    ],
)
@pytest.mark.usefixtures("functions")
def test_queries_that_cannot_run_are_refused_before_anything_starts(
    engine: ab.Engine, tmp_path: Path, text: str, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        engine.sql(text)
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.usefixtures("functions")
@pytest.mark.parametrize(
    "condition",
    [
        "A.v = 'today'",
        "A.day > 'epoch'",
        "A.day > '2026-01-31' AND A.at <> '5'",
        "twice(A.at) = B.at",
        "CASE WHEN A.v = 'number' THEN A.at < 'x' ELSE true END",
        "coalesce(A.at, raise_error('no time')) > 0",
        "try_cast(A.v AS BIGINT) = A.at",
        "exists(array(A.at, B.at), t -> t > 5)",
    ],
)
def test_what_only_looks_like_one_of_these_passes(engine: ab.Engine, condition: str) -> None:
    engine.sql(f"SELECT A.v FROM A, B WHERE A.k = B.k AND {condition}")


def test_a_refusal_is_an_error_and_not_a_page_of_log(engine: ab.Engine, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(QueryError):
        engine.sql("SELECT nosuch(A.v) AS n FROM A, B WHERE A.k = B.k")
    assert capfd.readouterr().err == ""


QUERY = "SELECT A.v, B.v AS w FROM A, B WHERE A.k = B.k"


@pytest.mark.parametrize(
    ("configure", "message"),
    [
        (lambda writer: writer.start(), "the parquet sink needs a path"),
        (lambda writer: writer.format("memory").start(), "needs a name"),
        (lambda writer: writer.outputMode("complete"), "only 'append' does"),
        (lambda writer: writer.trigger(), "either availableNow=True or processingTime"),
        (lambda writer: writer.trigger(availableNow=True, processingTime="1 second"), "either"),
        (lambda writer: writer.trigger(availableNow=False), "can only be True"),
        (lambda writer: writer.foreachBatch("print"), "needs a function"),
        (lambda writer: writer.start("hdfs://host/out"), "hdfs: storage is not supported"),
        (lambda writer: writer.start(__file__), "the parquet sink needs a folder, but .*test_engine.py is a file"),
        (lambda writer: writer.start(f"{__file__}/below"), "needs a folder, but .*test_engine.py is a file"),
        (lambda writer: writer.partitionBy("vv").start("out"), "no column 'vv'; did you mean 'v'"),
        (lambda writer: writer.partitionBy("V", "w").start("out"), "a column has to be left for the files"),
        (lambda writer: writer.format("console").option("numRows", "many").start(), "numRows must be a whole number"),
    ],
)
def test_unusable_writers_are_refused_before_anything_starts(
    engine: ab.Engine, tmp_path: Path, configure: Callable[[Any], object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        configure(engine.sql(QUERY).writeStream)
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize("setting", ["quarantine", "late_rows"])
def test_a_file_where_rows_should_be_put_aside_is_refused_before_anything_starts(
    spark: SparkSession, stream: DataFrame, tmp_path: Path, setting: str
) -> None:
    (tmp_path / "file").touch()
    engine = ab.Engine(spark, checkpoint=tmp_path / "checkpoint", **{setting: tmp_path / "file"})
    engine.register("A", stream)
    engine.register("B", stream)
    with pytest.raises(ConfigError, match=f"{setting} needs a folder, but .*file is a file"):
        engine.sql(QUERY).writeStream.start(tmp_path / "out")
    assert not (tmp_path / "checkpoint").exists()


def test_a_directory_of_something_else_is_not_taken_for_a_checkpoint(engine: ab.Engine, tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "holiday.jpg").touch()
    with pytest.raises(CheckpointError, match="was not written by Anabranch"):
        engine.sql(QUERY).writeStream.start(tmp_path / "out")
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="not a directory"):
        engine.sql(QUERY).writeStream.option("checkpointLocation", tmp_path / "file").start(tmp_path / "out")
    assert [path.name for path in (tmp_path / "checkpoint").iterdir()] == ["holiday.jpg"]


def test_the_plan_is_explained(engine: ab.Engine, capsys: pytest.CaptureFixture[str]) -> None:
    query = engine.sql("SELECT A.v, B.v AS w FROM A [RANGE 10 SECONDS], B WHERE A.k = B.k AND A.v <> 'x' AND A.v < B.v")
    query.explain()
    assert capsys.readouterr().out.splitlines() == [
        "Project [v, w]",
        "+- Filter [`A.v` < `B.v`]",
        "   +- BinaryJoin on A.`k`=B.`k` (bigint), round 1 on all processors",
        "      +- Stream A, [RANGE 10 s], time at (lateness 1 s), where `v` <> 'x', keeps [v], never purged",
        "      +- Stream B, [unbounded], keeps [v], never purged",
        "256 partition groups on 2 processor(s), exchanged by key hash in 1 round",
    ]
    assert query.schema.simpleString() == "struct<v:string,w:string>"


def test_what_is_at_hand_says_in_a_line_what_it_is(engine: ab.Engine, tmp_path: Path) -> None:
    query = engine.sql("SELECT A.k, A.v, B.v AS w  FROM A,\n B WHERE A.k = B.k")
    assert repr(engine) == f"<Engine over A, B: 2 processors, checkpoint '{tmp_path}/checkpoint'>"
    assert repr(query) == "<Query 'SELECT A.k, A.v, B.v AS w FROM A, B WHERE A.k = B.k': k, v, w>"
    writer = query.writeStream.format("jdbc").option("password", "s3cret")
    assert repr(writer) == f"<Writer of {query!r} to jdbc>"
