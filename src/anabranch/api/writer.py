"""The writer of an answer: the `writeStream` of a query, spelt as PySpark's DataStreamWriter."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from anabranch.api.run import Run
from anabranch.api.start import start_run
from anabranch.checkpoint.queries import REFUSE
from anabranch.errors import ConfigError, did_you_mean
from anabranch.runtime.sinks.formats import OWN_FORMATS, SinkOptions
from anabranch.runtime.spark.internals import spark_class

if TYPE_CHECKING:
    from anabranch.api.query import Query


PACE = "write processingTime='5 seconds', or leave the trigger out for the next batch as soon as the last is done"


class Writer:
    """Collects format, options and trigger; `start` begins the run. Methods return the writer."""

    def __init__(self, query: Query) -> None:
        """A writer for one query; its format is parquet unless `format` changes it."""
        self._query = query
        self._sink = SinkOptions()
        self._trigger: dict[str, Any] | None = None
        self._checkpoint: str | os.PathLike[str] = query._engine.checkpoint

    def __repr__(self) -> str:
        """One line, without options: they may hold passwords."""
        sink = "foreachBatch" if self._sink.function is not None else self._sink.format
        return f"<Writer of {self._query!r} to {sink}>"

    def format(self, source: str) -> Writer:
        """Set the format: parquet, json, csv, orc, text, memory, console, noop, or any other format of Spark's."""
        self._sink = replace(self._sink, format=source.lower() if source.lower() in OWN_FORMATS else source)
        return self

    def option(self, key: str, value: Any) -> Writer:
        """Set an option of the format. `checkpointLocation` gives this run a checkpoint of its own."""
        if key.lower() == "checkpointlocation":
            self._checkpoint = str(value)
            return self
        text = str(value).lower() if isinstance(value, bool) else str(value)
        self._sink = replace(self._sink, options={**self._sink.options, key: text})
        return self

    def options(self, **options: Any) -> Writer:
        """Set several options at once."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def outputMode(self, mode: str) -> Writer:
        """Only "append": a joined row never changes."""
        if mode.lower() != "append":
            raise ConfigError(f"output mode {mode!r} does not fit a join; only 'append' does")
        return self

    def partitionBy(self, *columns: str | Sequence[str]) -> Writer:
        """Partition the files of a file format by these columns: several arguments, or one list."""
        listed = [[column] if isinstance(column, str) else column for column in columns]
        self._sink = replace(self._sink, partition_by=tuple(itertools.chain.from_iterable(listed)))
        return self

    def queryName(self, name: str) -> Writer:
        """Set the name of the query among those that start together. For the memory sink it is the table's name."""
        self._sink = replace(self._sink, name=name)
        return self

    def foreachBatch(self, function: Callable[[DataFrame, int], None]) -> Writer:
        """Call a function with the results of every batch and the batch's id.

        After a crash a batch may come again under the same id with the same rows. If the function then replaces what it
        wrote for that id, the answer is exactly-once.
        """
        if not callable(function):
            raise ConfigError("foreachBatch needs a function of (DataFrame, batch id)")
        self._sink = replace(self._sink, function=function)
        return self

    def foreach(self, function: Any) -> Writer:
        """Not supported: rows come in batches, to `foreachBatch`."""
        raise ConfigError(
            "foreach is not supported; use foreachBatch(function): its function gets the rows of a batch as a "
            "DataFrame, and the batch's id, by which it can replace what it did before a crash"
        )

    def trigger(
        self,
        *,
        availableNow: bool | None = None,
        processingTime: str | None = None,
        once: bool | None = None,
        continuous: str | None = None,
        realTime: str | None = None,
    ) -> Writer:
        """Set the trigger: availableNow=True processes the available rows and ends; processingTime="5 seconds" sets the
        pace.

        PySpark's other triggers are refused.
        """
        if once is not None:
            raise ConfigError("trigger(once=True) is not supported; use trigger(availableNow=True)")
        for name, value in (("continuous", continuous), ("realTime", realTime)):
            if value is not None:
                raise ConfigError(
                    f"trigger({name}=...) is not supported: queries are answered in micro-batches; {PACE}"
                )
        if (availableNow is None) == (processingTime is None):
            raise ConfigError("give trigger either availableNow=True or processingTime='...'")
        if availableNow is not None and availableNow is not True:
            raise ConfigError("availableNow can only be True")
        if processingTime is not None:
            self._check_pace(processingTime)
        self._trigger = {"availableNow": True} if availableNow else {"processingTime": processingTime}
        return self

    def _check_pace(self, pace: Any) -> None:
        """Refuse a pace that Spark would refuse when it starts, or misread."""
        if not isinstance(pace, str):
            raise ConfigError(f"processingTime must be a text, not {pace!r}; {PACE}")
        try:
            spark_class(self._query._engine.spark, "streaming.Trigger").ProcessingTime(pace.strip())
        except (Py4JJavaError, PySparkException) as error:
            raise ConfigError(f"processingTime={pace!r} is not a length of time; {PACE}") from error

    def start(self, path: str | os.PathLike[str] | None = None, *, missing: str = REFUSE) -> Run:
        """Begin. Everything that can be refused is refused here, before any data is read.

        `missing` says what happens if the checkpoint answers other queries, as for `Engine.start`.
        """
        if path is not None:
            self.option("path", os.fspath(path))
        return start_run(self._query._engine, [self], missing)

    def toTable(self, tableName: str, *arguments: Any, **options: Any) -> Run:
        """Not supported: Spark appends to tables without a record of what is there already."""
        raise ConfigError(
            f"toTable({tableName!r}) is not supported; use start(path) and read the files as a table, or "
            "foreachBatch(function), whose function may write to tables, such as "
            f"results.write.mode('append').saveAsTable({tableName!r})"
        )

    def _check_partitions(self) -> None:
        names, chosen = self._query.schema.names, self._sink.partition_by
        columns = {name.lower() for name in names}
        for column in chosen:
            if column.lower() not in columns:
                raise ConfigError(f"partitionBy: the answer has no column {column!r}; {did_you_mean(column, names)}")
        if chosen and columns <= {column.lower() for column in chosen}:
            raise ConfigError("partitionBy: a column has to be left for the files, but all are named")
