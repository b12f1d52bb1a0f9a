"""A stateful operator of one's own: sessions of clicks, separated by silence. docs/operators.md explains it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.kernel.lookup import hashes_between, rows_of
from anabranch.kernel.operator import Settled
from anabranch.state.runs.run import Segment

LONG_AGO = -(1 << 60)


@dataclass(frozen=True)
class Sessions:
    """Rows of a key with at most `gap` microseconds between them: a row per session, once it is over.

    It is over when everything up to `gap` after its last row is settled: nothing can prolong it any more.
    """

    gap: int

    @property
    def waits(self) -> bool:
        """Sessions end when nothing arrives."""
        return True

    def process(
        self, old: Sequence[Sequence[Segment]], deltas: Sequence[Segment], settled: Settled
    ) -> Iterator[pa.RecordBatch]:
        """The sessions that are over now and were not before."""
        if settled.until is None:
            return
        # A session ends in this batch if its last row lies in here.
        first = (LONG_AGO if settled.since is None else settled.since) - self.gap
        last = settled.until - self.gap
        rows = rows_of(old[0], hashes_between(old[0], first, last), before=settled.until)
        if rows is None:
            return
        in_order = pa.Table.from_batches([rows]).sort_by([("key.0", "ascending"), ("ts", "ascending")])
        key = in_order["key.0"].combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy()
        ts = in_order["ts"].to_numpy()
        begins = (np.diff(key, prepend=key[0] - 1) != 0) | (np.diff(ts, prepend=ts[0]) > self.gap)
        start = np.flatnonzero(begins)
        stop = np.append(start[1:], len(ts))
        over = (ts[stop - 1] >= first) & (ts[stop - 1] < last)
        start, stop = start[over], stop[over]
        if len(start):
            yield pa.record_batch(
                {
                    "user": in_order["key.0"].combine_chunks().take(pa.array(start)),
                    "began": pa.array(ts[start]).cast(pa.timestamp("us", "UTC")),
                    "ended": pa.array(ts[stop - 1]).cast(pa.timestamp("us", "UTC")),
                    "clicks": pa.array(stop - start),
                }
            )

    def keep(self, port: int, rows: Segment, settled: Settled) -> Segment:
        """All of them: what is too old is dropped by `retention`."""
        return rows
