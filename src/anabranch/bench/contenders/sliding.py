"""The peer of `bench groupby`: a sliding window per key, by hand, with Spark's transformWithState in Python.

What a user would write who knows NumPy: the rows in the window are two arrays in one value of state, so that a key
costs one read and one write per batch, and the aggregates of all its new rows are differences of running totals. It
takes rows one by one: the same with pandas took nearly twice as long for groups of 30 rows per batch.

It relies on what the benchmark's input has and streams in general have not: every row is newer than those of earlier
batches. So it needs no watermark, no timers, and answers at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

RESULTS = "k BIGINT, n BIGINT, total BIGINT, mean DOUBLE"


class SlidingWindow(StatefulProcessor):
    """COUNT, SUM and AVG of the rows of a key in the window that ends at each of them."""

    def __init__(self, window: int) -> None:
        """Take the length of the window in milliseconds."""
        self._window = window

    def init(self, handle: StatefulProcessorHandle) -> None:
        """One value per key: times and values of its rows."""
        self._rows = handle.getValueState("rows", "ts ARRAY<BIGINT>, v ARRAY<BIGINT>")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Answer the new rows of a key, and keep the rows that may be in a later window."""
        arrived = sorted((row.ts, row.v) for row in rows)
        new_ts = np.array([ts for ts, _ in arrived], np.int64)
        kept = self._rows.get() or ([], [])
        ts = np.concatenate([np.asarray(kept[0], np.int64), new_ts])
        v = np.concatenate([np.asarray(kept[1], np.int64), np.array([v for _, v in arrived], np.int64)])
        totals = np.concatenate([[0], np.cumsum(v)])
        first = np.searchsorted(ts, new_ts - self._window, side="left")
        last = np.searchsorted(ts, new_ts, side="right")
        count, total = last - first, totals[last] - totals[first]
        alive = np.searchsorted(ts, ts[-1] - self._window, side="left")
        self._rows.update((ts[alive:].tolist(), v[alive:].tolist()))
        for n, summed, mean in zip(count.tolist(), total.tolist(), (total / count).tolist(), strict=True):
            yield Row(k=key[0], n=n, total=summed, mean=mean)

    def close(self) -> None:
        """Close nothing: no resource is open."""


def sliding_windows(stream: DataFrame, window: int) -> DataFrame:
    """The stream's windowed GROUP BY, through transformWithState."""
    grouped = stream.groupBy("k")
    return grouped.transformWithState(SlidingWindow(window * 1000), RESULTS, "Append", "None")
