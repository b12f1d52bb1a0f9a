"""The answers of a run so far, collected by query and batch.

A batch that comes again after a crash has the same id, and its answers replace those of the first time. So a test sees
the rows that an exactly-once sink has.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import DataFrame

from anabranch.api.query import Query
from anabranch.runtime.spark.internals import empty_frame

Batches = dict[str, dict[int, pa.Table]]


class Collected:
    """The answers of all queries, and those since the last call of `begin`."""

    def __init__(self) -> None:
        """Begin without answers."""
        self._all: Batches = {}
        self._last: Batches = {}

    def begin(self) -> None:
        """Begin a new last answer: the answers from now on."""
        self._last = {}

    def sink_of(self, name: str) -> Callable[[DataFrame, int], None]:
        """The function that collects the answers of a query."""

        def collect(results: DataFrame, batch_id: int) -> None:
            rows = results.toArrow()
            for batches in (self._all, self._last):
                batches.setdefault(name, {})[batch_id] = rows

        return collect

    def all(self, name: str, query: Query) -> pa.Table:
        """All answers of a query."""
        return _together(self._all.get(name, {}), query)

    def last(self, name: str, query: Query) -> pa.Table:
        """The answers of a query since `begin`."""
        return _together(self._last.get(name, {}), query)


def _together(batches: dict[int, pa.Table], query: Query) -> pa.Table:
    if not batches:
        return empty_frame(query._engine.spark, query.schema).toArrow()
    tables = [batches[number] for number in sorted(batches)]
    # A query that was changed may have answered in other columns before.
    return pa.concat_tables(table for table in tables if table.schema == tables[-1].schema)
