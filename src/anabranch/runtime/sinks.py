"""Sinks: what happens to the results of a batch. A sink is a function of (results, batch id).

A batch may be delivered again after a crash, always under the same id and with the same rows, so a sink must
replace what it wrote for that id. File formats do: files are written aside, then moved to names that begin with the
batch, after earlier files of that batch were removed. `memory`, `console` and `noop` keep nothing across runs.
Other formats, and `foreachBatch` functions, get every batch at least once, with its id.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from anabranch.errors import ConfigError
from anabranch.state.store import local_path

Sink = Callable[[DataFrame, int], None]
FILE_FORMATS = frozenset({"parquet", "orc", "json", "csv", "text", "xml", "avro"})


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What a writer was told: format, its options, partition columns, query name, user's function."""

    format: str = "parquet"
    options: dict[str, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()
    name: str | None = None
    function: Sink | None = None


def make_sink(chosen: SinkOptions) -> Sink:
    """The sink that the options describe; wrong options are refused before anything starts."""
    if chosen.function is not None:
        return chosen.function
    if chosen.format in FILE_FORMATS:
        return _FileSink(chosen)
    if chosen.format == "memory":
        return _memory_sink(chosen)
    if chosen.format == "console":
        return _console_sink(chosen)
    return _spark_sink(chosen)


class _FileSink:
    """Files of any format that Spark writes, exactly once per batch."""

    def __init__(self, chosen: SinkOptions) -> None:
        if "path" not in chosen.options:
            raise ConfigError(f"the {chosen.format} sink needs a path: .option('path', ...) or start(path)")
        self._chosen = chosen
        self._path = local_path(chosen.options["path"])
        self._staging = self._path.parent / f".{self._path.name}.staging"
        self._first = True

    def __call__(self, results: DataFrame, batch_id: int) -> None:
        prefix = f"batch-{batch_id:010d}-"
        if self._first:
            self._remove_leftovers(prefix)
            self._first = False
        target = self._staging / uuid.uuid4().hex
        options = {name: value for name, value in self._chosen.options.items() if name != "path"}
        writer = results.write.format(self._chosen.format).options(**options).mode("overwrite")
        if self._chosen.partition_by:
            writer = writer.partitionBy(*self._chosen.partition_by)
        writer.save(target.as_uri())
        self._publish(target, prefix)

    def _publish(self, target: Path, prefix: str) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        for directory, _, names in os.walk(target):
            published = self._path / Path(directory).relative_to(target)
            visible = [name for name in names if not name.startswith(("_", "."))]
            for name in visible:
                published.mkdir(parents=True, exist_ok=True)
                source = Path(directory) / name
                _flush(source)
                os.replace(source, published / f"{prefix}{name}")
        _flush(self._path)
        shutil.rmtree(self._staging, ignore_errors=True)

    def _remove_leftovers(self, prefix: str) -> None:
        """Only the first batch of a run can have been written before, by a run that died."""
        shutil.rmtree(self._staging, ignore_errors=True)
        for path in self._path.rglob(f"{prefix}*"):
            path.unlink()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _memory_sink(chosen: SinkOptions) -> Sink:
    if not chosen.name:
        raise ConfigError("the memory sink needs a name for its table: .queryName('...')")
    name, batches = chosen.name, dict[int, pa.Table]()

    def write(results: DataFrame, batch_id: int) -> None:
        batches[batch_id] = results.toArrow()
        table = pa.concat_tables(batches.values())
        results.sparkSession.createDataFrame(table, schema=results.schema).createOrReplaceGlobalTempView(name)

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
        results.write.format(chosen.format).options(**chosen.options).mode("append").save()

    return write
