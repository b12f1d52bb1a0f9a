"""Two streams of which a few keys have most rows, a batch per second of event time, and how many pairs they have.

`half_hot`: half of both streams is on one key. The first stream is twice as fast as the second.

`hot_bidders`: bids and auctions as in the benchmark Nexmark, joined on the person who bids and sells. Of 50 events one
is a new person, three are auctions and 46 are bids. Three of four bids and auctions are by the hot person, the others
by anybody of the last `ACTIVE` persons. There, the hot person is another one after every 100 new persons; here, a
thousand times hotter, after every 100,000.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

SECOND = 1_000_000
# The other keys that the other half of the rows are spread over.
KEYS = 10_000
# Nexmark's persons, auctions and bids, of 50 events; one of so many rows is not of the hot person; active persons.
PERSONS, AUCTIONS, BIDS = 1, 3, 46
HOT = 4
ACTIVE = 1_000
CHANGES, HOTTER = 100, 1_000


@dataclass(frozen=True, slots=True)
class SkewedInput:
    """Two streams by name, the faster first, each with a `key`, its event time `ts` in microseconds and a value `v`."""

    name: str
    key: str
    streams: Mapping[str, pa.Table]

    def batch(self, stream: str, number: int) -> pa.Table:
        """The rows of a stream in a batch, counted from 0."""
        table = self.streams[stream]
        times = table.column("ts").cast(pa.int64()).to_numpy()
        start, stop = np.searchsorted(times, [number * SECOND, (number + 1) * SECOND])
        return table.slice(start, stop - start)

    def pairs(self, window: int) -> int:
        """The number of pairs of rows with the same key that are at most `window` seconds apart."""
        left, right = (_keys_and_times(self, name) for name in self.streams)
        span = int(max(left[1].max(), right[1].max())) + 2 * window * SECOND + 2
        codes = np.sort(right[0] * span + right[1])
        base = left[0] * span + left[1]
        after = np.searchsorted(codes, base + window * SECOND, side="right")
        before = np.searchsorted(codes, np.maximum(base - window * SECOND, left[0] * span), side="left")
        return int((after - before).sum())


def half_hot(rows: int, batches: int, seed: int) -> SkewedInput:
    """Streams A and B with a number of rows per batch, both together."""
    random = np.random.default_rng(seed)
    streams = {}
    for name, share in (("A", 2 / 3), ("B", 1 / 3)):
        count = max(round(rows * share), 1) * batches
        keys = np.where(random.random(count) < 0.5, 0, random.integers(1, KEYS, count))
        streams[name] = _table("k", keys, _times(random, count, batches))
    return SkewedInput("half of both streams on one key", "k", streams)


def hot_bidders(rows: int, batches: int, seed: int) -> SkewedInput:
    """Bids and auctions with a number of rows per batch, both together."""
    random = np.random.default_rng(seed)
    events = rows * batches * (PERSONS + AUCTIONS + BIDS) // (AUCTIONS + BIDS)
    streams = {}
    for name, share in (("bids", BIDS), ("auctions", AUCTIONS)):
        count = max(events * share // (PERSONS + AUCTIONS + BIDS), 1)
        times = _times(random, count, batches)
        newest = ACTIVE + times * events // (batches * SECOND * (PERSONS + AUCTIONS + BIDS))
        hot = newest // (CHANGES * HOTTER) * (CHANGES * HOTTER)
        others = newest - random.integers(0, ACTIVE, count)
        streams[name] = _table("person", np.where(random.random(count) < 1 / HOT, others, hot), times)
    return SkewedInput("Nexmark's bids and auctions, hot bidders a thousand times hotter", "person", streams)


INPUTS = {"half": half_hot, "nexmark": hot_bidders}


def _times(random: np.random.Generator, count: int, batches: int) -> NDArray[np.int64]:
    """Event times, ascending, over all batches."""
    return np.sort(random.integers(0, batches * SECOND, count))


def _table(key: str, keys: NDArray[np.int64], times: NDArray[np.int64]) -> pa.Table:
    values = pa.array(np.arange(len(keys)))
    return pa.table({key: pa.array(keys), "ts": pa.array(times, pa.timestamp("us", "UTC")), "v": values})


def _keys_and_times(skewed: SkewedInput, name: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    table = skewed.streams[name]
    return table.column(skewed.key).to_numpy(), table.column("ts").cast(pa.int64()).to_numpy()
