"""Where an answer goes: the `writeStream` of a query, spelt as PySpark's DataStreamWriter."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from anabranch.api.run import Run, start_run
from anabranch.errors import ConfigError, did_you_mean
from anabranch.runtime.removal import REFUSE
from anabranch.runtime.sinks import OWN_FORMATS, SinkOptions

if TYPE_CHECKING:
    from anabranch.api.query import Query


class Writer:
    """Collects format, options and trigger; `start` begins the run. Methods return the writer."""

    def __init__(self, query: Query) -> None:
        """A writer for one query; parquet unless told otherwise."""
        self._query = query
        self._sink = SinkOptions()
        self._trigger: dict[str, Any] | None = None
        self._checkpoint: str | os.PathLike[str] = query._engine.checkpoint

    def __repr__(self) -> str:
        """One line, without options: they may hold passwords."""
        sink = "foreachBatch" if self._sink.function is not None else self._sink.format
        return f"<Writer of {self._query!r} to {sink}>"

    def format(self, source: str) -> Writer:
        """parquet, json, csv, orc, text, memory, console, noop, or any format Spark's writer knows."""
        self._sink = replace(self._sink, format=source.lower() if source.lower() in OWN_FORMATS else source)
        return self

    def option(self, key: str, value: Any) -> Writer:
        """An option of the format; `checkpointLocation` gives this run a checkpoint of its own."""
        if key.lower() == "checkpointlocation":
            self._checkpoint = str(value)
            return self
        text = str(value).lower() if isinstance(value, bool) else str(value)
        self._sink = replace(self._sink, options={**self._sink.options, key: text})
        return self

    def options(self, **options: Any) -> Writer:
        """Several options at once."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def outputMode(self, mode: str) -> Writer:
        """Only "append": a joined row never changes."""
        if mode.lower() != "append":
            raise ConfigError(f"output mode {mode!r} does not fit a join; only 'append' does")
        return self

    def partitionBy(self, *columns: str) -> Writer:
        """Partition the files of a file format by these columns."""
        self._sink = replace(self._sink, partition_by=columns)
        return self

    def queryName(self, name: str) -> Writer:
        """A name for the query, among those that start together; the table's name for the memory sink."""
        self._sink = replace(self._sink, name=name)
        return self

    def foreachBatch(self, function: Callable[[DataFrame, int], None]) -> Writer:
        """Hand the results of every batch to a function, with the batch's id.

        After a crash a batch may come again under the same id with the same rows; make what the function does
        replace what it did for that id, and the whole is exactly-once.
        """
        if not callable(function):
            raise ConfigError("foreachBatch needs a function of (DataFrame, batch id)")
        self._sink = replace(self._sink, function=function)
        return self

    def trigger(self, *, availableNow: bool | None = None, processingTime: str | None = None) -> Writer:
        """availableNow=True processes what is there and ends; processingTime="5 seconds" sets the pace."""
        if (availableNow is None) == (processingTime is None):
            raise ConfigError("give trigger either availableNow=True or processingTime='...'")
        if availableNow is not None and availableNow is not True:
            raise ConfigError("availableNow can only be True")
        self._trigger = {"availableNow": True} if availableNow else {"processingTime": processingTime}
        return self

    def start(self, path: str | os.PathLike[str] | None = None, *, missing: str = REFUSE) -> Run:
        """Begin. Everything that can be refused is refused here, before any data is read.

        `missing` says what becomes of other queries that the checkpoint answers: as of `Engine.start`.
        """
        if path is not None:
            self.option("path", os.fspath(path))
        return start_run(self._query._engine, [self], missing)

    def _check_partitions(self) -> None:
        names, chosen = self._query.schema.names, self._sink.partition_by
        known = {name.lower() for name in names}
        for column in chosen:
            if column.lower() not in known:
                raise ConfigError(f"partitionBy: the answer has no column {column!r}; {did_you_mean(column, names)}")
        if chosen and known <= {column.lower() for column in chosen}:
            raise ConfigError("partitionBy: a column has to be left for the files, but all are named")
