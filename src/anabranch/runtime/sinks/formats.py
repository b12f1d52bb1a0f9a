"""Sinks: what happens to the results of a batch. A sink is a function of (results, batch id).

A batch may be delivered again after a crash, always under the same id and with the same rows, so a sink must
replace what it wrote for that id. File formats do: files are written aside, then moved to names that begin with
checkpoint and batch; what a run that died has left of that batch was taken back before (`leftovers`). `memory`,
`console` and `noop` keep nothing across runs. Other formats, and `foreachBatch` functions, get every batch at least
once, with its id.

A file without rows is published only where an output directory would else have no file to read the schema from.
"""

from __future__ import annotations

import hashlib
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
from anabranch.processor.outlets import UNPUBLISHED
from anabranch.runtime.sinks.memory import MemorySink
from anabranch.runtime.sinks.output_folder import check_folder, move_file, visible_files
from anabranch.state.failpoints import failpoint
from anabranch.state.store import local_path, make_folder, sync

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


def make_sink(chosen: SinkOptions, spark: SparkSession, tag: str, scratch: Path) -> Sink:
    """The sink that the options describe; wrong options are refused before anything starts.

    `tag` names checkpoint and query: files carry it, so queries and runs may share a directory. Spark writes files
    below `scratch`, a folder of the checkpoint.
    """
    if chosen.function is not None:
        return chosen.function
    if chosen.format not in ALWAYS_THERE:
        _check_exists(chosen.format, spark)
    if chosen.format in FILE_FORMATS:
        return FileSink(chosen, tag, spark.conf.get("spark.sql.session.timeZone") or "UTC", scratch)
    if chosen.partition_by and chosen.format in OWN_FORMATS:
        raise ConfigError(f"the {chosen.format} sink has no partitions; partitionBy needs a file format")
    if chosen.format == "noop":
        return Discard()
    if chosen.format == "memory":
        if not chosen.name:
            raise ConfigError("the memory sink needs a name for its table: .queryName('...')")
        return MemorySink(chosen.name, spark)
    if chosen.format == "console":
        return _console_sink(chosen)
    return _spark_sink(chosen)


def sink_tag(checkpoint: str, query: str) -> str:
    """What begins the names of the files that a query's sink writes, if its checkpoint has this tag."""
    return hashlib.sha256(f"{checkpoint}/{query}".encode()).hexdigest()[:8]


def batch_prefix(tag: str, batch_id: int) -> str:
    """How the names of a batch's files begin."""
    return f"{tag}-{batch_id:010d}-"


def staging_folder(path: Path, tag: str) -> Path:
    """Where processors write files for an output folder: in it, so that it may be the root of a file system."""
    return path / f".{tag}.staging"


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


class Discard:
    """The noop sink: results are computed, and that is all."""

    def __call__(self, results: DataFrame, batch_id: int) -> None:
        """Compute all of it."""
        results.write.format("noop").mode("overwrite").save()


class FileSink:
    """Files of any format that Spark writes, exactly once per batch.

    Processors write theirs inside the output folder, under names that no reader looks for. Spark chooses the names of
    its files, so it writes them into the checkpoint.
    """

    def __init__(self, chosen: SinkOptions, tag: str, time_zone: str, scratch: Path) -> None:
        """Refused without a usable path. Timestamps that Spark hands over name the session's time zone."""
        if "path" not in chosen.options:
            raise ConfigError(f"the {chosen.format} sink needs a path: .option('path', ...) or start(path)")
        self._chosen = chosen
        self._path = local_path(chosen.options["path"])
        check_folder(self._path, f"the {chosen.format} sink")
        self._tag = tag
        self._time_zone = time_zone
        self._scratch = scratch / tag
        self._readable = False

    def __call__(self, results: DataFrame, batch_id: int) -> None:
        """Let Spark write the results, then publish its files."""
        staging = self._scratch / uuid.uuid4().hex
        options = {name: value for name, value in self._chosen.options.items() if name != "path"}
        writer = results.write.format(self._chosen.format).options(**options).mode("overwrite")
        if self._chosen.partition_by:
            writer = writer.partitionBy(*self._chosen.partition_by)
        writer.save(f"file://{staging}")  # not as_uri(): Spark takes %20 for a part of the name
        # What an attempt of a task still writes that Spark gave up lies in a hidden folder.
        written = list(visible_files(staging))
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
        """A new place for processors to write the files of a batch to, under names that end in `UNPUBLISHED`."""
        return staging_folder(self._path, self._tag) / f"{batch_id}-{uuid.uuid4().hex}"

    def schema_alone(self, staging: Path, schema: T.StructType) -> list[Path]:
        """A parquet file without rows, if readers of the output directory would find no schema without it."""
        if self._has_files():
            return []
        staging.mkdir(parents=True, exist_ok=True)
        path = staging / f"no-rows.parquet{UNPUBLISHED}"
        pq.write_table(to_arrow_schema(schema, timezone=self._time_zone).empty_table(), path)
        return [path]

    def publish(self, staging: Path, files: list[Path], batch_id: int) -> None:
        """Move the given files of a batch to where readers look for them."""
        make_folder(self._path)
        changed = {self._path}
        for source in files:
            place = source.relative_to(staging).parent
            folder = self._path / place
            folder.mkdir(parents=True, exist_ok=True)
            changed |= {self._path / part for part in (place, *place.parents)}
            move_file(source, folder / f"{batch_prefix(self._tag, batch_id)}{source.name.removesuffix(UNPUBLISHED)}")
            failpoint("sink.publish")
        for folder in changed:
            sync(folder)
        shutil.rmtree(staging.parent, ignore_errors=True)

    def _has_files(self) -> bool:
        """Whether the output directory has a file to read; once it has, it is not looked at again."""
        self._readable = self._readable or any(visible_files(self._path))
        return self._readable


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


def _has_no_rows(path: Path) -> bool:
    """Whether Spark wrote the file only to have one; where that cannot be told cheaply, the file counts as filled."""
    if path.suffix != ".parquet":
        return path.stat().st_size == 0
    try:
        return bool(pq.read_metadata(path).num_rows == 0)
    except (pa.ArrowException, OSError):
        return False  # an encrypted footer


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
