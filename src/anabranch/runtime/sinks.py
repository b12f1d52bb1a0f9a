"""Sinks: what happens to the results of a batch. A sink is a function of (results, batch id).

A batch may be delivered again after a crash, always under the same id and with the same rows, so a sink must
replace what it wrote for that id. File formats do: files are written aside, then moved to names that begin with
checkpoint and batch, after earlier files of that batch were removed. `memory`, `console` and `noop` keep nothing
across runs. Other formats, and `foreachBatch` functions, get every batch at least once, with its id.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from anabranch.errors import ConfigError
from anabranch.runtime.carried import carry, restore
from anabranch.runtime.failpoints import failpoint
from anabranch.state.store import local_path

Sink = Callable[[DataFrame, int], None]
_COMPRESSIONS = {"snappy": "snappy", "zstd": "zstd", "gzip": "gzip", "none": "none", "uncompressed": "none"}
_PLAIN = (
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.FloatType,
    T.DoubleType,
    T.DecimalType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
    T.StringType,
    T.BinaryType,
)
FILE_FORMATS = frozenset({"parquet", "orc", "json", "csv", "text", "xml", "avro"})
OWN_FORMATS = FILE_FORMATS | {"memory", "console", "noop"}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What a writer was told: format, its options, partition columns, query name, user's function."""

    format: str = "parquet"
    options: dict[str, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()
    name: str | None = None
    function: Sink | None = None


def make_sink(chosen: SinkOptions, spark: SparkSession, tag: str) -> Sink:
    """The sink that the options describe; wrong options are refused before anything starts.

    `tag` names the checkpoint: files carry it, so runs with different checkpoints may share a directory.
    """
    if chosen.function is not None:
        return chosen.function
    if chosen.format in FILE_FORMATS:
        return FileSink(chosen, tag)
    if chosen.partition_by and chosen.format in OWN_FORMATS:
        raise ConfigError(f"the {chosen.format} sink has no partitions; partitionBy needs a file format")
    if chosen.format == "memory":
        return _memory_sink(chosen, spark)
    if chosen.format == "console":
        return _console_sink(chosen)
    return _spark_sink(chosen)


class FileSink:
    """Files of any format that Spark writes, exactly once per batch."""

    def __init__(self, chosen: SinkOptions, tag: str) -> None:
        """Refused without a path."""
        if "path" not in chosen.options:
            raise ConfigError(f"the {chosen.format} sink needs a path: .option('path', ...) or start(path)")
        self._chosen = chosen
        self._path = local_path(chosen.options["path"])
        self._tag = tag
        self._staging = self._path.parent / f".{self._path.name}.{tag}.staging"
        self._first = True

    def __call__(self, results: DataFrame, batch_id: int) -> None:
        """Let Spark write the results, then publish its files."""
        staging = self.stage(batch_id)
        options = {name: value for name, value in self._chosen.options.items() if name != "path"}
        writer = results.write.format(self._chosen.format).options(**options).mode("overwrite")
        if self._chosen.partition_by:
            writer = writer.partitionBy(*self._chosen.partition_by)
        writer.save(f"file://{staging}")  # not as_uri(): Spark takes %20 for a part of the name
        self.publish(staging, [path for path in staging.rglob("*") if path.is_file()], batch_id)

    def parquet_compression(self, schema: T.StructType) -> str | None:
        """The compression with which processors may write this sink's files themselves, or None if Spark must.

        They may where the file needs nothing that only Spark knows how to write.
        """
        options = {name.lower(): value for name, value in self._chosen.options.items()}
        compression = options.pop("compression", "snappy").lower()
        plain = self._chosen.format == "parquet" and not self._chosen.partition_by and options.keys() == {"path"}
        if not plain or compression not in _COMPRESSIONS or not _is_plain(schema):
            return None
        return _COMPRESSIONS[compression]

    def stage(self, batch_id: int) -> Path:
        """A new place to write the files of a batch, not yet visible to readers."""
        if self._first:
            self._first = False
            self._remove_leftovers(self._prefix(batch_id))
        return self._staging / uuid.uuid4().hex

    def publish(self, staging: Path, files: list[Path], batch_id: int) -> None:
        """Move the given files of a batch to where readers look for them."""
        self._path.mkdir(parents=True, exist_ok=True)
        targets = {self._path}
        for source in files:
            if source.name.startswith(("_", ".")):
                continue
            _flush(source)
            target = self._path / source.relative_to(staging).parent
            target.mkdir(parents=True, exist_ok=True)
            targets.add(target)
            os.replace(source, target / f"{self._prefix(batch_id)}{source.name}")
            failpoint("sink.publish")
        for target in targets:
            _flush(target)
        shutil.rmtree(self._staging, ignore_errors=True)

    def _prefix(self, batch_id: int) -> str:
        return f"{self._tag}-{batch_id:010d}-"

    def _remove_leftovers(self, prefix: str) -> None:
        """Only the first batch of a run can have been written before, by a run that died."""
        shutil.rmtree(self._staging, ignore_errors=True)
        for path in self._path.rglob(f"{prefix}*"):
            path.unlink()


def _is_plain(data_type: T.DataType) -> bool:
    """Whether Arrow and Spark agree on how the type is stored in Parquet.

    Arrow refuses fields that may not be null inside of structs that are.
    """
    if isinstance(data_type, T.StructType):
        return all(field.nullable and _is_plain(field.dataType) for field in data_type)
    if isinstance(data_type, T.ArrayType):
        return _is_plain(data_type.elementType)
    if isinstance(data_type, T.MapType):
        return _is_plain(data_type.keyType) and _is_plain(data_type.valueType)
    return isinstance(data_type, _PLAIN)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _memory_sink(chosen: SinkOptions, spark: SparkSession) -> Sink:
    if not chosen.name:
        raise ConfigError("the memory sink needs a name for its table: .queryName('...')")
    name, batches = chosen.name, dict[int, pa.Table]()

    def write(results: DataFrame, batch_id: int) -> None:
        carried = carry(results)
        batches[batch_id] = carried.toArrow()
        table = pa.concat_tables(batches.values())
        kept = spark.createDataFrame(table, schema=carried.schema)
        restore(kept, results.schema).createOrReplaceTempView(name)

    return write


def _console_sink(chosen: SinkOptions) -> Sink:
    rows = int(chosen.options.get("numRows", "20"))
    truncate = chosen.options.get("truncate", "true").lower() == "true"

    def write(results: DataFrame, batch_id: int) -> None:
        print(f"-------------------------------------------\nBatch: {batch_id}\n", end="")
        print("-------------------------------------------")
        results.show(rows, truncate)

    return write


def _spark_sink(chosen: SinkOptions) -> Sink:
    def write(results: DataFrame, batch_id: int) -> None:
        writer = results.write.format(chosen.format).options(**chosen.options).mode("append")
        (writer.partitionBy(*chosen.partition_by) if chosen.partition_by else writer).save()

    return write
