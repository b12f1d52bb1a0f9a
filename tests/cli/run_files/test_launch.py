"""From a run file to a query: what only Spark can object to, and how it is said."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from anabranch.cli.process.failures import first_line
from anabranch.cli.run_files import launch
from anabranch.cli.run_files.run_file import RunFile, SinkTarget, StreamSource, load
from anabranch.errors import ConfigError

pytestmark = pytest.mark.spark
EXAMPLES = Path(__file__).parents[3] / "examples"


def run_file(folder: Path, **changes: object) -> RunFile:
    """Two streams of one file each; the changes are to the first."""
    for name in "ab":
        (folder / name).mkdir(exist_ok=True)
        pq.write_table(pa.table({"k": [1, 2], "v": ["x", "y"]}), folder / name / "0.parquet")
    streams = [StreamSource(name, "parquet", str(folder / name), "k BIGINT, v STRING", None, None, {}) for name in "ab"]
    return RunFile(
        source=folder / "q.toml",
        query="SELECT a.v, b.v AS w FROM a, b WHERE a.k = b.k",
        checkpoint=str(folder / "checkpoint"),
        streams=(replace(streams[0], **changes), streams[1]),  # type: ignore[arg-type]
        sink=SinkTarget("parquet", str(folder / "out"), (), {}),
        processing_time=None,
        processors=2,
        groups=16,
        memory=None,
        quarantine=None,
        late_rows=None,
        joins="auto",
        emit="tuple",
        spark={},
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"schema": None}, "a stream of files needs a schema, such as schema = 'k BIGINT"),
        ({"schema": "k BIGNIT, v"}, "'k BIGNIT, v' is no schema as Spark writes it"),
        ({"path": "/nowhere/at/all"}, "there is no folder /nowhere/at/all; correct streams.a.path, or make"),
        ({"path": __file__}, "is a file; name the folder that files arrive in"),
        ({"format": "parqet"}, r"Spark cannot open it: \[DATA_SOURCE_NOT_FOUND\] .* parqet"),
        ({"format": "kafka"}, "Failed to find data source: kafka"),
        ({"time": "tss"}, "no column 'tss'"),
    ],
)
def test_a_stream_that_cannot_be_opened_is_refused_in_one_line(
    spark: SparkSession, tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigError, match=f"stream 'a'.*{said}") as refused:
        launch.prepare(spark, run_file(tmp_path, **changes))
    assert "\n" not in str(refused.value)
    assert "SQLSTATE" not in str(refused.value)


def test_a_sink_that_a_run_would_be_refused_with_is_refused_by_a_check(spark: SparkSession, tmp_path: Path) -> None:
    described = run_file(tmp_path)
    query = launch.prepare(spark, described)
    launch.check_sink(query, described)
    with pytest.raises(ConfigError, match="no format 'parket' to write to; did you mean 'parquet'"):
        launch.check_sink(query, replace(described, sink=replace(described.sink, format="parket")))


def test_what_an_exception_of_the_jvm_says_is_told(spark: SparkSession) -> None:
    assert spark._jvm is not None
    with pytest.raises(Py4JJavaError) as failed:
        spark._jvm.java.lang.Class.forName("no.such.Class")
    assert first_line(failed.value) == "no.such.Class"


def test_a_file_that_cannot_be_read_is_named(spark: SparkSession, tmp_path: Path) -> None:
    described = run_file(tmp_path)
    (tmp_path / "a" / "0.parquet").write_bytes(b"PAR1 but nothing else")
    run = launch.start(launch.prepare(spark, described), described)
    with pytest.raises(Exception, match=".") as failed:
        run.awaitTermination()
    assert "0.parquet" in first_line(failed.value)
    assert first_line(failed.value).startswith("a source cannot be read: [FAILED_READ_FILE")


def test_the_example_with_synthetic_streams_runs_and_adapts(spark: SparkSession, tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "synthetic.toml", tmp_path)
    described = load(tmp_path / "synthetic.toml")
    run = launch.start(launch.prepare(spark, described), described)
    run.awaitTermination()
    assert run.lastProgress is not None
    # In two ranges, for ratios r of 4, 2 and 1: 10,000 / r keys, each 2 r times in each of the streams.
    assert run.lastProgress["anabranch"]["totals"]["results"] == {"query": 80_000 * (4**2 + 2**2 + 1**2)}
    assert {"relocate", "spill", "clean-up"} <= {event.kind for event in run.events}


DESCRIBED = """
query = "SELECT a.v, b.v AS w FROM a, b WHERE a.k = b.k"
checkpoint = "checkpoint"
sink = { path = "out", format = "text" }
streams.a = { format = "parquet", path = "a", schema = "k BIGINT, v STRING" }
streams.b = { format = "parquet", path = "b", schema = "k BIGINT, v STRING" }
spark = { "spark.driver.memory" = "512m" }
"""


def test_an_error_of_spark_is_one_line_although_it_is_told_after_spark_has_ended(tmp_path: Path) -> None:
    run_file(tmp_path)
    (tmp_path / "q.toml").write_text(DESCRIBED)
    command = [sys.executable, "-m", "anabranch.cli.main", "run", str(tmp_path / "q.toml"), "--quiet"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert shown.returncode == 1
    assert shown.stderr.startswith("anabranch: Spark: Text data source supports only a single column")
    assert shown.stderr.count("\n") == 1
