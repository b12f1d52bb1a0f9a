"""Sinks: what happens to the results of a batch. A sink is a function of (results, batch id).

A batch may be delivered again after a crash, always under the same id and with the same rows, so a sink must
replace what it wrote for that id. File formats do: files are written aside, then moved to names that begin with
checkpoint and batch, after earlier files of that batch were removed. `memory`, `console` and `noop` keep nothing
across runs. Other formats, and `foreachBatch` functions, get every batch at least once, with its id.

A file without rows is published only where an output directory would else have no file to read the schema from.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from anabranch.errors import ConfigError, did_you_mean
from anabranch.runtime.carried import carry, restore
from anabranch.state.failpoints import failpoint
from anabranch.state.store import local_path, sync

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
    T.BinaryType,
)
FILE_FORMATS = frozenset({"parquet", "orc", "json", "csv", "text", "xml", "avro"})
OWN_FORMATS = FILE_FORMATS | {"memory", "console", "noop"}
# All but avro, which is a package of its own. Looking one up takes Spark most of a second.
ALWAYS_THERE = OWN_FORMATS - {"avro"}


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

    `tag` names checkpoint and query: files carry it, so queries and runs may share a directory.
    """
    if chosen.function is not None:
        return chosen.function
    if chosen.format not in ALWAYS_THERE:
        _check_exists(chosen.format, spark)
    if chosen.format in FILE_FORMATS:
        return FileSink(chosen, tag, spark.conf.get("spark.sql.session.timeZone") or "UTC")
    if chosen.partition_by and chosen.format in OWN_FORMATS:
        raise ConfigError(f"the {chosen.format} sink has no partitions; partitionBy needs a file format")
    if chosen.format == "memory":
        return _memory_sink(chosen, spark)
    if chosen.format == "console":
        return _console_sink(chosen)
    return _spark_sink(chosen)


def sink_tag(checkpoint: str, query: str) -> str:
    """What begins the names of the files that a query's sink writes, if its checkpoint has this tag."""
    return hashlib.sha256(f"{checkpoint}/{query}".encode()).hexdigest()[:8]


def _check_exists(name: str, spark: SparkSession) -> None:
    """Refuse a format that Spark does not know; else the first batch would be computed in vain.

    Sources written in Python are registered in a session, all others are found on the class path: by their short
    name, or by the name of a class or its package. Whether a source can be written to only writing tells.
    """
    jvm, session = spark._jvm, spark._jsparkSession.sessionState()
    assert jvm is not None, "a session that runs has a JVM"
    if session.dataSourceManager().dataSourceExists(name):
        return
    try:
        jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource(name, session.conf())
    except (Py4JJavaError, PySparkException) as error:
        said = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else str(error)
        reason = str(said).partition(" SQLSTATE")[0]
        hint = did_you_mean(name, OWN_FORMATS)
        raise ConfigError(f"Spark has no format {name!r} to write to; {hint} ({reason})") from error


class FileSink:
    """Files of any format that Spark writes, exactly once per batch."""

    def __init__(self, chosen: SinkOptions, tag: str, time_zone: str) -> None:
        """Refused without a usable path. Timestamps that Spark hands over name the session's time zone."""
        if "path" not in chosen.options:
            raise ConfigError(f"the {chosen.format} sink needs a path: .option('path', ...) or start(path)")
        self._chosen = chosen
        self._path = local_path(chosen.options["path"])
        check_folder(self._path, f"the {chosen.format} sink")
        self._tag = tag
        self._time_zone = time_zone
        self._staging = self._path.parent / f".{self._path.name}.{tag}.staging"
        self._first = True
        self._readable = False

    def __call__(self, results: DataFrame, batch_id: int) -> None:
        """Let Spark write the results, then publish its files."""
        staging = self.stage(batch_id)
        options = {name: value for name, value in self._chosen.options.items() if name != "path"}
        writer = results.write.format(self._chosen.format).options(**options).mode("overwrite")
        if self._chosen.partition_by:
            writer = writer.partitionBy(*self._chosen.partition_by)
        writer.save(f"file://{staging}")  # not as_uri(): Spark takes %20 for a part of the name
        written = [path for path in staging.rglob("*") if path.is_file() and _is_visible(path)]
        filled = [path for path in written if not _has_no_rows(path)]
        self.publish(staging, filled if filled or self._has_files() else written, batch_id)

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

    def schema_alone(self, staging: Path, schema: T.StructType) -> list[Path]:
        """A parquet file without rows, if readers of the output directory would find no schema without it."""
        if self._has_files():
            return []
        staging.mkdir(parents=True, exist_ok=True)
        path = staging / "no-rows.parquet"
        pq.write_table(to_arrow_schema(schema, timezone=self._time_zone).empty_table(), path)
        return [path]

    def publish(self, staging: Path, files: list[Path], batch_id: int) -> None:
        """Move the given files of a batch to where readers look for them."""
        self._path.mkdir(parents=True, exist_ok=True)
        targets = {self._path}
        for source in files:
            sync(source)
            target = self._path / source.relative_to(staging).parent
            target.mkdir(parents=True, exist_ok=True)
            targets.add(target)
            os.replace(source, target / f"{self._prefix(batch_id)}{source.name}")
            failpoint("sink.publish")
        for target in targets:
            sync(target)
        shutil.rmtree(self._staging, ignore_errors=True)

    def _has_files(self) -> bool:
        """Whether the output directory has a file to read; once it has, it is not looked at again."""
        if not self._readable:
            self._readable = any(path.is_file() and _is_visible(path) for path in self._path.rglob("*"))
        return self._readable

    def _prefix(self, batch_id: int) -> str:
        return f"{self._tag}-{batch_id:010d}-"

    def _remove_leftovers(self, prefix: str) -> None:
        """Only the first batch of a run can have been written before, by a run that died."""
        shutil.rmtree(self._staging, ignore_errors=True)
        for path in self._path.rglob(f"{prefix}*"):
            path.unlink()


def check_folder(path: Path, whose: str) -> None:
    """Refuse a path where no folder is and none can be made; else a run would fail when it has something to write."""
    existing = next(folder for folder in (path, *path.parents) if folder.exists())
    if not existing.is_dir():
        raise ConfigError(f"{whose} needs a folder, but {existing} is a file; name another path")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ConfigError(f"{whose} cannot write to {existing}: no permission; name another path, or allow it")


def _is_plain(data_type: T.DataType) -> bool:
    """Whether Arrow and Spark agree on how the type is stored in Parquet.

    Arrow refuses fields that may not be null inside of structs that are, and knows no collations: Spark keeps them in
    metadata of its own.
    """
    if isinstance(data_type, T.StringType):
        return data_type == T.StringType()
    if isinstance(data_type, T.StructType):
        return all(field.nullable and _is_plain(field.dataType) for field in data_type)
    if isinstance(data_type, T.ArrayType):
        return _is_plain(data_type.elementType)
    if isinstance(data_type, T.MapType):
        return _is_plain(data_type.keyType) and _is_plain(data_type.valueType)
    return isinstance(data_type, _PLAIN)


def _is_visible(path: Path) -> bool:
    return not path.name.startswith(("_", "."))


def _has_no_rows(path: Path) -> bool:
    """Whether Spark wrote the file only to have one; where that cannot be told cheaply, the file counts as filled."""
    if path.suffix != ".parquet":
        return path.stat().st_size == 0
    try:
        return bool(pq.read_metadata(path).num_rows == 0)
    except (pa.ArrowException, OSError):
        return False  # an encrypted footer


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
    wanted = chosen.options.get("numRows", "20")
    if not wanted.isdecimal():
        raise ConfigError(f"the console sink's numRows must be a whole number, not {wanted!r}")
    rows = int(wanted)
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
