"""Spark's own logs in a checkpoint: written by our class, checked when they are read, never overwritten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.runtime.spark.logs import DURABLE, FILE_MANAGER, PLAIN, file_manager
from tests.oracle.feed import Feed, run_to_end, written

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


@pytest.fixture
def manager(spark: SparkSession, tmp_path: Path) -> Any:
    """Our file manager on a folder that it has made."""
    assert file_manager(spark) == DURABLE
    jvm: Any = spark._jvm
    kind = jvm.java.lang.Class.forName(DURABLE).getConstructors()[0]
    arguments = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, 2)
    arguments[0], arguments[1] = hadoop_path(spark, tmp_path), jvm.org.apache.hadoop.conf.Configuration()
    return kind.newInstance(arguments)


def hadoop_path(spark: SparkSession, path: Path) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.hadoop.fs.Path(f"file://{path}")


def write(spark: SparkSession, manager: Any, path: Path, content: bytes) -> None:
    stream = manager.createAtomic(hadoop_path(spark, path), False)
    stream.write(content)
    stream.close()


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 5000])
def test_a_file_is_read_back_and_a_flipped_byte_is_noticed(
    spark: SparkSession, manager: Any, tmp_path: Path, size: int
) -> None:
    jvm: Any = spark._jvm
    log = tmp_path / "log with spaces"
    content = bytes(index % 251 for index in range(size))
    write(spark, manager, log, content)
    assert log.read_bytes() == content
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".log with spaces.crc", "log with spaces"]
    assert bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(manager.open(hadoop_path(spark, log)))) == content
    if size:
        log.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(Py4JJavaError, match="Checksum error"):
            jvm.org.apache.commons.io.IOUtils.toByteArray(manager.open(hadoop_path(spark, log)))


def test_a_log_file_that_exists_is_not_overwritten(spark: SparkSession, manager: Any, tmp_path: Path) -> None:
    log = tmp_path / "0"
    write(spark, manager, log, b"first")
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        write(spark, manager, log, b"second")
    assert log.read_bytes() == b"first"


def test_folders_are_made_with_those_above_them_by_our_class(spark: SparkSession, manager: Any, tmp_path: Path) -> None:
    """Which flushes the names of those that are new."""
    for _ in range(2):
        manager.mkdirs(hadoop_path(spark, tmp_path / "sources" / "0"))
    assert (tmp_path / "sources" / "0").is_dir()
    declared = manager.getClass().getDeclaredMethods()
    assert "mkdirs" in {declared[n].getName() for n in range(len(declared))}


def test_a_cancelled_file_leaves_nothing(spark: SparkSession, manager: Any, tmp_path: Path) -> None:
    stream = manager.createAtomic(hadoop_path(spark, tmp_path / "0"), False)
    stream.write(b"half")
    stream.cancel()
    assert list(tmp_path.iterdir()) == []


def test_a_run_writes_its_logs_with_it_and_refuses_a_damaged_one(spark: SparkSession, tmp_path: Path) -> None:
    assert spark.conf.get(FILE_MANAGER, None) is None
    feeds = {name: Feed(tmp_path / name, SCHEMA) for name in ("A", "B")}
    for feed in feeds.values():
        feed.add(k=[1, 2], v=[10, 20])

    def query() -> ab.Query:
        engine = ab.Engine(spark, tmp_path / "checkpoint")
        for name, feed in feeds.items():
            engine.register(name, feed.stream(spark))
        return engine.sql("SELECT A.v, B.v AS w FROM A, B WHERE A.k = B.k")

    run_to_end(query(), tmp_path / "out")
    assert spark.conf.get(FILE_MANAGER, None) is None
    log = tmp_path / "checkpoint" / "spark" / "000001" / "offsets" / "0"
    sound = log.read_bytes()
    log.write_bytes(sound.replace(b'"logOffset":0', b'"logOffset":1'))
    assert log.read_bytes() != sound
    with pytest.raises(Exception, match="Checksum error.*offsets/0"):
        run_to_end(query(), tmp_path / "out")
    log.write_bytes(sound)
    feeds["A"].add(k=[2], v=[30])
    run_to_end(query(), tmp_path / "out")
    assert sorted(written(tmp_path / "out").to_pylist(), key=str) == [
        {"v": 10, "w": 10},
        {"v": 20, "w": 20},
        {"v": 30, "w": 20},
    ]


def test_a_jvm_that_cannot_compile_it_uses_sparks_own(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.runtime.spark.logs.DURABLE", "no.such.Class")
    assert file_manager(spark) == PLAIN  # it is defined already, under another name
