"""The synthetic streams as a source that Spark reads: `spark.readStream.format("anabranch-synthetic")`.

    ab.register_sources(spark)
    a = spark.readStream.format("anabranch-synthetic").option("stream", 0).option("rate", 5000).load()

Options: `stream` (0), `tuple_range` (30000), `ratios` ("4,2,1"; "1"), `rate` rows per second of event time (1000),
`seed` (1), `groups` (256), `width` of a payload column (0: none), `shift_every` ranges, `rows` in all (unlimited),
`rows_per_batch`, and `paced`: "true" lets rows become available at `rate` from when the stream was first read, "false"
all `rows` at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from anabranch.errors import ConfigError, did_you_mean
from anabranch.sources.synthetic import Synthetic

FORMAT = "anabranch-synthetic"
CHUNK_ROWS = 65_536
_OPTIONS = ("stream", "tuple_range", "ratios", "rate", "seed", "groups", "width", "shift_every")
_MORE = ("rows", "rows_per_batch", "paced")


def register_sources(spark: SparkSession) -> None:
    """Register the format "anabranch-synthetic" with a session."""
    spark.dataSource.register(SyntheticSource)


class SyntheticSource(DataSource):
    """Spark's view of the synthetic streams."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> T.StructType:
        """Key, number, time and perhaps a payload."""
        fields = [
            T.StructField("key", T.LongType()),
            T.StructField("number", T.LongType()),
            T.StructField("ts", T.TimestampType()),
        ]
        if stream_of(self.options).width:
            fields.append(T.StructField("payload", T.StringType()))
        return T.StructType(fields)

    def streamReader(self, schema: T.StructType) -> DataSourceStreamReader:
        """The reader of one stream."""
        return _Reader(dict(self.options))


def stream_of(options: Mapping[str, str]) -> Synthetic:
    """The stream that options describe."""
    for name in options:
        if name not in (*_OPTIONS, *_MORE):
            raise ConfigError(f"{FORMAT} has no option {name!r}; {did_you_mean(name, (*_OPTIONS, *_MORE))}")
    values: dict[str, Any] = {}
    for name in (name for name in _OPTIONS if name in options):
        text = options[name]
        try:
            if name == "ratios":
                values[name] = tuple(int(part) for part in text.split(","))
            else:
                values[name] = float(text) if name == "rate" else int(text)
        except ValueError:
            raise ConfigError(f"{FORMAT}: the option {name} must be a number, not {text!r}") from None
    for name in ("rows", "rows_per_batch"):
        _positive(options, name)
    if options.get("paced", "true").lower() not in ("true", "false"):
        raise ConfigError(f"{FORMAT}: the option paced must be true or false, not {options['paced']!r}")
    return Synthetic(**values)


def _positive(options: Mapping[str, str], name: str) -> int | None:
    if name not in options:
        return None
    if not options[name].isdigit() or int(options[name]) < 1:
        raise ConfigError(f"{FORMAT}: the option {name} must be a whole number from 1 on, not {options[name]!r}")
    return int(options[name])


@dataclass
class _Part(InputPartition):
    start: int
    stop: int

    def __init__(self, start: int, stop: int) -> None:
        super().__init__((start, stop))
        self.start, self.stop = start, stop


class _Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are numbers of rows."""

    def __init__(self, options: dict[str, str]) -> None:
        self._stream = stream_of(options)
        self._rows = _positive(options, "rows")
        self._per_batch = _positive(options, "rows_per_batch")
        self._paced = options.get("paced", "true").lower() == "true" or self._rows is None
        self._begun = time.time()
        self._first: int | None = None
        self._target: int | None = None

    def initialOffset(self) -> dict[str, int]:
        return {"row": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._per_batch is None else ReadMaxRows(self._per_batch)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._available()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        self._first = start["row"] if self._first is None else self._first
        end = self._available() if self._target is None else self._target
        if isinstance(limit, ReadMaxRows):
            end = min(end, start["row"] + limit.max_rows)
        return {"row": max(end, start["row"])}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [_Part(start["row"], end["row"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Part)
        for first in range(partition.start, partition.stop, CHUNK_ROWS):
            yield self._stream.rows(first, min(first + CHUNK_ROWS, partition.stop))

    def _available(self) -> int:
        """The number of rows that have become available. After a restart the pace goes on from the next row."""
        if not self._paced:
            return self._rows or 0
        made = (self._first or 0) + int((time.time() - self._begun) * self._stream.rate)
        return made if self._rows is None else min(made, self._rows)
