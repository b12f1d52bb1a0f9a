"""What a run has answered so far, collected by query and batch.

A batch that comes again after a crash has the id that it had, and replaces what it gave then: so a test sees what a
sink has that is exactly-once.
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
        """Nothing is answered yet."""
        self._all: Batches = {}
        self._last: Batches = {}

    def begin(self) -> None:
        """Take what comes from now on for the last answer."""
        self._last = {}

    def sink_of(self, name: str) -> Callable[[DataFrame, int], None]:
        """Collects the answer of a query."""

        def collect(results: DataFrame, batch_id: int) -> None:
            rows = results.toArrow()
            for batches in (self._all, self._last):
                batches.setdefault(name, {})[batch_id] = rows

        return collect

    def all(self, name: str, query: Query) -> pa.Table:
        """All that a query has answered."""
        return _together(self._all.get(name, {}), query)

    def last(self, name: str, query: Query) -> pa.Table:
        """What a query has answered since `begin`."""
        return _together(self._last.get(name, {}), query)


def _together(batches: dict[int, pa.Table], query: Query) -> pa.Table:
    if not batches:
        return empty_frame(query._engine.spark, query.schema).toArrow()
    tables = [batches[number] for number in sorted(batches)]
    # A query that was changed may have answered in other columns before.
    return pa.concat_tables(table for table in tables if table.schema == tables[-1].schema)
