"""The memory sink: all results of this run as a temporary view of the session.

Results are handed to Spark in parts, whose union is the view. A part that is not much larger than the one after it is
put together with it, so that a batch costs what its own rows cost, a row is handed over again only as often as the
whole has doubled, and the view has few parts however many batches there were.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from anabranch.runtime.rows.carried import carry, restore


@dataclass(frozen=True, slots=True)
class _Part:
    """The results of some batches, in Spark."""

    batches: tuple[int, ...]
    rows: int
    frame: DataFrame


class MemorySink:
    """Keeps the results of every batch; those of a batch that comes again replace what it brought before."""

    def __init__(self, name: str, spark: SparkSession) -> None:
        """There is no view of this name before the first batch."""
        self._name = name
        self._spark = spark
        self._tables: dict[int, pa.Table] = {}
        self._parts: list[_Part] = []

    def __call__(self, results: DataFrame, batch_id: int) -> None:
        """Add the results of a batch to the view."""
        carried = carry(results)
        table = carried.toArrow()
        if batch_id in self._tables:
            self._take_out(batch_id, carried.schema)
        if len(table) or not self._parts:
            self._tables[batch_id] = table
            self._parts.append(self._part((batch_id,), carried.schema))
        while len(self._parts) > 1 and self._parts[-2].rows < 2 * self._parts[-1].rows:
            last, before = self._parts.pop(), self._parts.pop()
            self._parts.append(self._part((*before.batches, *last.batches), carried.schema))
        kept = reduce(DataFrame.union, [part.frame for part in self._parts])
        restore(kept, results.schema).createOrReplaceTempView(self._name)

    def _part(self, batches: tuple[int, ...], schema: T.StructType) -> _Part:
        # In one chunk: Spark makes a partition of each.
        table = pa.concat_tables([self._tables[number] for number in batches]).combine_chunks()
        return _Part(batches, len(table), self._spark.createDataFrame(table, schema=schema))

    def _take_out(self, batch_id: int, schema: T.StructType) -> None:
        del self._tables[batch_id]
        parts = []
        for part in self._parts:
            batches = tuple(number for number in part.batches if number != batch_id)
            if batches:
                parts.append(part if batches == part.batches else self._part(batches, schema))
        self._parts = parts
