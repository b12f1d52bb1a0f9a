"""Where answers go: formats, partitions, user functions."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from anabranch.api.writer import Writer
from anabranch.errors import ConfigError
from tests.api.conftest import Pair
from tests.oracle.feed import Feed, written
from tests.oracle.referee import assert_same_rows

pytestmark = pytest.mark.spark

WIDE = pa.schema(
    [("k", pa.int64()), ("v", pa.string()), ("at", pa.timestamp("us", "UTC")), ("price", pa.decimal128(9, 2))]
)


def test_files_of_any_format_and_partitions(pair: Pair, tmp_path: Path) -> None:
    query = pair.query()
    partitioned = query.writeStream.partitionBy("k").option("checkpointLocation", tmp_path / "p")
    partitioned.trigger(availableNow=True).start(tmp_path / "parts").awaitTermination()
    as_json = (
        query.writeStream.format("JSON").option("checkpointLocation", tmp_path / "j").option("compression", "gzip")
    )
    as_json.trigger(availableNow=True).start(tmp_path / "lines").awaitTermination()

    names = {path.parent.name for path in (tmp_path / "parts").rglob("*.parquet")}
    assert names == {"k=1", "k=2", "k=3"}
    parts = written(tmp_path / "parts").select(["k", "v", "w"])
    assert_same_rows(parts, pair.expected())
    assert all(path.name.endswith(".json.gz") for path in (tmp_path / "lines").iterdir())
    assert_same_rows(written(tmp_path / "lines", "*.json.gz", "read_json"), pair.expected())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["A", "B", "j", "lines", "p", "parts"]


def test_parquet_that_spark_and_duckdb_read_alike(pair: Pair, tmp_path: Path) -> None:
    run = pair.query().writeStream.format("parquet").trigger(availableNow=True).start(tmp_path / "out")
    run.awaitTermination()
    assert_same_rows(written(tmp_path / "out"), pair.expected())
    by_spark = pair.spark.read.parquet(str(tmp_path / "out"))
    assert by_spark.schema == pair.query().schema
    assert_same_rows(by_spark.toArrow(), pair.expected())


@pytest.mark.parametrize("condition", ["", " AND A.v < B.v"])
def test_an_empty_answer_can_be_read_and_costs_one_file(spark: SparkSession, tmp_path: Path, condition: str) -> None:
    """Whether the processors write the files or, with a residual predicate, Spark does."""
    pair = Pair(spark, tmp_path, Feed(tmp_path / "A", WIDE), Feed(tmp_path / "B", WIDE))
    for number in range(3):
        pair.a.add(k=[number], v=["x"], at=[0], price=[None])
        pair.b.add(k=[-1 - number], v=["x"], at=[0], price=[None])
    query = pair.engine().sql(f"SELECT A.k, A.v, A.at, A.price FROM A, B WHERE A.k = B.k{condition}")
    run = query.writeStream.trigger(availableNow=True).start(tmp_path / "out")
    run.awaitTermination()

    assert len(run.recentProgress) == 3
    assert [path.name[8:20] for path in (tmp_path / "out").iterdir()] == ["-0000000000-"]
    assert len(written(tmp_path / "out")) == 0
    by_spark = spark.read.parquet(str(tmp_path / "out"))
    assert by_spark.schema == query.schema
    assert by_spark.count() == 0

    pair.b.add(k=[1], v=["y"], at=[7], price=[None])
    pair.a.add(k=[-9], v=["y"], at=[7], price=[None])
    pair.engine().sql(query._bound.text).writeStream.trigger(availableNow=True).start(
        tmp_path / "out"
    ).awaitTermination()
    assert len(list((tmp_path / "out").iterdir())) == 2
    assert [tuple(row) for row in spark.read.parquet(str(tmp_path / "out")).select("k", "v").collect()] == [(1, "x")]


def test_a_second_checkpoint_may_write_to_the_same_directory(pair: Pair, tmp_path: Path) -> None:
    for checkpoint in ("one", "two"):
        run = pair.query(checkpoint).writeStream.trigger(availableNow=True).start(tmp_path / "out")
        run.awaitTermination()
    assert_same_rows(written(tmp_path / "out"), pa.concat_tables([pair.expected()] * 2))


def test_memory_is_a_table_by_the_querys_name(pair: Pair) -> None:
    run = pair.query().writeStream.format("memory").queryName("answers").trigger(availableNow=True).start()
    run.awaitTermination()
    assert run.name == "answers"
    assert_same_rows(pair.spark.table("answers").toArrow(), pair.expected())


def test_console_prints_every_batch(pair: Pair, capfd: pytest.CaptureFixture[str]) -> None:
    writer = pair.query().writeStream.format("console").option("numRows", 1).option("truncate", False)
    writer.trigger(availableNow=True).start().awaitTermination()
    shown = capfd.readouterr().out
    assert "Batch: 0" in shown
    assert "Batch: 1" in shown
    assert shown.count("only showing top 1 row") == 2


def test_noop_counts_its_results(pair: Pair) -> None:
    run = pair.query("one").writeStream.format("noop").trigger(availableNow=True).start()
    run.awaitTermination()
    assert run.recentProgress[-1]["anabranch"]["totals"]["results"] == {"query": len(pair.expected())}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("parqet", "no format 'parqet' to write to; did you mean 'parquet'?"),
        ("com.example.Missing", "no format 'com.example.Missing'"),
        ("avro", "Apache Avro Data Source Guide"),
    ],
)
def test_a_format_that_spark_does_not_know_is_refused_before_anything_starts(pair: Pair, name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        pair.query().writeStream.format(name).option("path", pair.directory / "out").start()
    assert not (pair.directory / "checkpoint").exists()


class Rows(DataSource):
    """A sink written in Python: a file per task, with the rows as JSON lines."""

    @classmethod
    def name(cls) -> str:
        return "rows_of_json"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        class Writer(DataSourceWriter):
            def __init__(self, directory: str) -> None:
                self.directory = directory

            def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
                with open(f"{self.directory}/{uuid.uuid4().hex}.json", "w") as file:
                    file.writelines(json.dumps(row.asDict()) + "\n" for row in iterator)
                return WriterCommitMessage()

        return Writer(self.options["directory"])


def test_formats_by_class_name_and_formats_written_in_python_work(pair: Pair, tmp_path: Path) -> None:
    pair.spark.dataSource.register(Rows)
    (tmp_path / "rows").mkdir()
    named = pair.query("one").writeStream.format("rows_of_json").option("directory", tmp_path / "rows")
    named.trigger(availableNow=True).start().awaitTermination()
    assert_same_rows(written(tmp_path / "rows", "*.json", "read_json"), pair.expected())

    csv = "org.apache.spark.sql.execution.datasources.csv.CSVFileFormat"
    classed = pair.query("two").writeStream.format(csv).option("path", tmp_path / "csv").option("header", True)
    classed.trigger(availableNow=True).start().awaitTermination()
    assert_same_rows(written(tmp_path / "csv", "*.csv", "read_csv"), pair.expected())


def test_a_function_may_read_all_part_twice_or_nothing(pair: Pair) -> None:
    """What the function reads of one batch changes neither the state nor what it gets in the next."""
    pair.add(1, 2)
    pair.add(1, 1, 2, 3)
    got: dict[int, pa.Table] = {}

    def function(results: DataFrame, batch_id: int) -> None:
        if batch_id == 0:
            results.limit(1).collect()
        elif batch_id == 2:
            results.count()
            got[batch_id] = results.toArrow()
            assert len(results.where("k = 1").toArrow()) > 0
        elif batch_id == 3:
            got[batch_id] = results.toArrow()

    run = pair.query().writeStream.foreachBatch(function).trigger(availableNow=True).start()
    run.awaitTermination()

    assert_same_rows(pa.concat_tables([pair.expected(2), got[2]]), pair.expected(3))
    assert_same_rows(pa.concat_tables([pair.expected(3), got[3]]), pair.expected())
    totals = run.recentProgress[-1]["anabranch"]["totals"]
    assert totals == {
        "combinations": len(pair.expected()),
        "results": {"query": len(pair.expected())},
        "received": {"A": 12, "B": 12},
        "late": {"A": 0, "B": 0},
        "late_joined": 0,
        "rejected": {"A": 0, "B": 0},
    }


def test_totals_tell_rows_of_the_answer_from_the_combinations_they_are_among(pair: Pair, tmp_path: Path) -> None:
    """After the residual predicate if the sink reads everything; else nobody knows, from then on."""
    text = "SELECT A.k, A.v, B.v AS w FROM A, B WHERE A.k = B.k AND substr(A.v, 2) < substr(B.v, 2)"
    run = pair.engine().sql(text).writeStream.trigger(availableNow=True).start(tmp_path / "out")
    run.awaitTermination()
    totals = run.recentProgress[-1]["anabranch"]["totals"]
    assert totals["combinations"] == len(pair.expected())
    assert totals["results"] == {"query": len(written(tmp_path / "out"))}
    assert 0 < totals["results"]["query"] < totals["combinations"]

    pair.add(1)
    writer = pair.engine().sql(text).writeStream.foreachBatch(lambda results, batch_id: None)
    run = writer.trigger(availableNow=True).start()
    run.awaitTermination()
    totals = run.recentProgress[-1]["anabranch"]["totals"]
    assert totals["combinations"] == len(pair.expected())
    assert totals["results"] == {"query": None}


def test_an_error_in_the_function_ends_the_run_and_the_batch_comes_again_as_it_was(pair: Pair) -> None:
    """Also the very first batch: more input has arrived meanwhile, but a batch id stands for the same rows."""
    seen: list[tuple[int, str]] = []

    def failing(results: DataFrame, batch_id: int) -> None:
        seen.append((batch_id, json.dumps(sorted(map(list, results.collect())))))
        if len(seen) < 3:
            raise ValueError("the disk is full")

    for _ in range(2):
        run = pair.query(batches_at_once=9).writeStream.foreachBatch(failing).trigger(availableNow=True).start()
        with pytest.raises(ValueError, match="the disk is full"):
            run.awaitTermination()
        assert isinstance(run.exception(), ValueError)
        assert not run.isActive
        pair.add(1)
    pair.query(batches_at_once=9).writeStream.foreachBatch(failing).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert seen[0] == seen[1] == seen[2]
    assert sum(len(json.loads(rows)) for _, rows in seen[2:]) == len(pair.expected())


def test_output_goes_through_a_link_to_another_file_system(pair: Pair, tmp_path: Path, other_file_system: Path) -> None:
    """Whether processors write the files or Spark does, into partitions."""
    for name, columns in (("plain", ()), ("parts", ("k",))):
        (other_file_system / name).mkdir()
        (tmp_path / name).symlink_to(other_file_system / name)
        writer = pair.query(f"state-{name}").writeStream.partitionBy(*columns).trigger(availableNow=True)
        writer.start(tmp_path / name).awaitTermination()
        assert_same_rows(written(tmp_path / name).select(["k", "v", "w"]), pair.expected())
        assert not [path for path in other_file_system.rglob("*") if path.name.startswith((".", "_"))]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "A",
        "B",
        "parts",
        "plain",
        "state-parts",
        "state-plain",
    ]


def test_what_a_crashed_first_batch_left_is_taken_back_under_other_names_and_paths(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing counts yet, so the program may be changed; what it wrote before must not stay beside the new files."""
    for number, (name, output) in enumerate((("one", "out"), ("two", "out"), ("two", "elsewhere"))):
        marker = tmp_path / f"crashed-{number}"
        monkeypatch.setenv("ANABRANCH_FAILPOINT", f"step.before_commit=raise@once:{marker}")
        writer = pair.query().writeStream.queryName(name).trigger(availableNow=True)
        with pytest.raises(Exception, match=r"failpoint step.before_commit"):
            writer.start(tmp_path / output).awaitTermination()
        assert len(written(tmp_path / output)) == len(pair.expected(1))
    monkeypatch.delenv("ANABRANCH_FAILPOINT")
    pair.query().writeStream.queryName("three").trigger(availableNow=True).start(tmp_path / "out").awaitTermination()
    assert_same_rows(written(tmp_path / "out"), pair.expected())
    assert not list((tmp_path / "elsewhere").iterdir())


REFUSED: list[tuple[Callable[[Writer], object], str]] = [
    (lambda writer: writer.trigger(once=True), r"use trigger\(availableNow=True\)"),
    (lambda writer: writer.trigger(continuous="1 second"), r"continuous=.*processingTime='5 seconds'"),
    (lambda writer: writer.trigger(realTime="1 second"), r"realTime=.*processingTime='5 seconds'"),
    (lambda writer: writer.toTable("t"), r"toTable\('t'\) is not supported; use start\(path\)"),
    (lambda writer: writer.foreach(print), r"use foreachBatch\(function\)"),
]
WRONG_PACES = ("abc", "0", "", -1, 5, "-1 seconds", "1 month", "5")
RIGHT_PACES = ("5 seconds", "0 seconds", "1 minute 30 seconds", "INTERVAL 10 milliseconds")


def test_what_pyspark_has_and_we_have_not_is_refused_with_what_to_use_instead(pair: Pair) -> None:
    query = pair.query()
    for call, said in REFUSED:
        with pytest.raises(ConfigError, match=said):
            call(query.writeStream)
    for pace in WRONG_PACES:
        with pytest.raises(ConfigError, match=rf"{pace!r}.*processingTime='5 seconds'"):
            query.writeStream.trigger(processingTime=pace)
    for pace in RIGHT_PACES:
        assert query.writeStream.trigger(processingTime=pace)._trigger == {"processingTime": pace}


def test_partitions_may_be_given_as_a_list(pair: Pair) -> None:
    assert pair.query().writeStream.partitionBy(["k", "v"])._sink.partition_by == ("k", "v")
