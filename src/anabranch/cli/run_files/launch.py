"""Launch a run file: check its folders, make the query, start it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlparse

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from anabranch.api.engine import Engine
from anabranch.api.query import Query
from anabranch.api.run import Run
from anabranch.api.synthetic import FORMAT as SYNTHETIC
from anabranch.api.synthetic import register_sources
from anabranch.api.targets import check_target
from anabranch.api.writer import Writer
from anabranch.cli.process.failures import first_line
from anabranch.cli.run_files.run_file import RunFile, StreamSource
from anabranch.errors import ConfigError
from anabranch.plan.placement import EVEN
from anabranch.runtime.sinks.formats import FILE_FORMATS


def check_folders(file: RunFile) -> None:
    """Refuse streams of files whose folders do not exist; needs no Spark. Patterns and URIs are left to Spark."""
    for stream in file.streams:
        path = stream.path
        if (
            path is None
            or stream.format.lower() not in FILE_FORMATS
            or urlparse(path).scheme
            or set(path) & set("*?[{")
        ):
            continue
        if Path(path).is_file():
            raise ConfigError(f"stream {stream.name!r}: {path} is a file; name the folder that files arrive in")
        if not Path(path).exists():
            raise ConfigError(
                f"stream {stream.name!r}: there is no folder {path}; correct streams.{stream.name}.path, or make the "
                "folder that files will arrive in"
            )


def prepare(spark: SparkSession, file: RunFile) -> Query:
    """The query of a run file, analysed by Spark; nothing is read yet."""
    check_folders(file)
    engine = Engine(
        spark,
        checkpoint=file.checkpoint,
        processors=file.processors,
        memory=file.memory,
        groups=file.groups,
        quarantine=file.quarantine,
        late_rows=file.late_rows,
        policies=file.policies,
        placement=file.placement,
        initial_placement=file.initial_placement or EVEN,
    )
    for stream in file.streams:
        engine.register(stream.name, _open(spark, stream), time=stream.time, lateness=stream.lateness)
    return engine.sql(file.query, joins=file.joins, emit=file.emit)


def writer_of(query: Query, file: RunFile) -> Writer:
    """A writer with the sink and the trigger of the file."""
    writer = query.writeStream.format(file.sink.format).options(**file.sink.options)
    if file.sink.partition_by:
        writer = writer.partitionBy(*file.sink.partition_by)
    if file.sink.path is not None:
        writer = writer.option("path", file.sink.path)
    if file.processing_time is None:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=file.processing_time)


def check_sink(query: Query, file: RunFile) -> None:
    """Refuse a sink that a run would be refused with; nothing is started."""
    writer = writer_of(query, file)
    writer._check_partitions()
    check_target(writer, query._engine.spark)


def start(query: Query, file: RunFile) -> Run:
    """Start the query."""
    try:
        return writer_of(query, file).start()
    except (Py4JJavaError, PySparkException) as error:
        raise ConfigError(f"{file.source.name}: Spark cannot start the run: {first_line(error)}") from error


def _open(spark: SparkSession, stream: StreamSource) -> DataFrame:
    if stream.format == SYNTHETIC:
        register_sources(spark)
    reader = spark.readStream.format(stream.format).options(**stream.options)
    if stream.schema is not None:
        try:
            reader = reader.schema(stream.schema)
        except PySparkException as error:
            said = f"{stream.schema!r} is no schema as Spark writes it, such as 'k BIGINT, ts TIMESTAMP'"
            raise ConfigError(f"stream {stream.name!r}: {said}: {first_line(error)}") from error
    try:
        return reader.load(stream.path) if stream.path is not None else reader.load()
    except (Py4JJavaError, PySparkException) as error:
        if "Schema must be specified" in str(error):
            said = "a stream of files needs a schema, such as schema = 'k BIGINT, ts TIMESTAMP'"
            raise ConfigError(f"stream {stream.name!r}: {said}") from error
        raise ConfigError(f"stream {stream.name!r}: Spark cannot open it: {first_line(error)}") from error
