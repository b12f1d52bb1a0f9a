"""The settings of paper 3's experiments (table 2), scaled, and the streams that they describe.

Four streams A, B, C and D are joined in a chain, each pair of neighbours on a key of its own, so that each join has the
selectivity that table 2 gives it: 1 over the number of values of its key. The query goes from ((A B) C) D to
A ((B C) D), the change of the paper's figure 4.

All times are event time: W, the intervals between two rows, and the length of a batch. So the same setting gives the
same rows and the same counts on any machine. Two things differ from the paper. A row of the paper is `scale` rows here,
because at its rates a window has ten rows, and counts of their joins would be chance. And rows come at even intervals
instead of those of a Poisson process, for the same reason; keys are random, with a fixed seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.bench.inputs.recipe import FIRST_TIME, Column

STREAMS = ("A", "B", "C", "D")
# The keys of each stream; neighbours share one.
KEYS = {"A": ("ab",), "B": ("ab", "bc"), "C": ("bc", "cd"), "D": ("cd",)}
OLD, NEW = "((A B) C) D", "A ((B C) D)"
MICROS = 1_000  # in a millisecond


@dataclass(frozen=True, slots=True)
class Stream:
    """The rows of one stream in the order of their times, which are in microseconds since the run began."""

    ts: Column
    keys: Mapping[str, Column]

    def between(self, start: int, stop: int) -> pa.Table:
        """The rows from one time to before another, both in milliseconds."""
        first, last = np.searchsorted(self.ts, [start * MICROS, stop * MICROS])
        times = pa.array(FIRST_TIME * MICROS + self.ts[first:last]).cast(pa.timestamp("us", "UTC"))
        keys = {name: pa.array(values[first:last]) for name, values in self.keys.items()}
        return pa.table({**keys, "ts": times, "n": pa.array(np.arange(first, last))})


@dataclass(frozen=True, slots=True)
class Setting:
    """A column of table 2: the window W, the intervals between two rows of A, B, C and D, and the selectivities
    (reduction factors) of A with B, B with C, and C with D.

    For each row of the paper `scale` rows come. A batch has the rows of a span of `batch`; rows may be late by
    `lateness`. Times are in milliseconds.
    """

    window: int
    intervals: tuple[int, int, int, int]
    selectivities: tuple[float, float, float]
    scale: int
    batch: int
    lateness: int
    seed: int = 1

    def rate(self, stream: str) -> float:
        """Rows of a stream per second."""
        return 1_000 * self.scale / self.intervals[STREAMS.index(stream)]

    def selectivity(self, key: str) -> float:
        """The share of pairs of neighbours that join on a key."""
        return dict(zip(("ab", "bc", "cd"), self.selectivities, strict=True))[key]

    @property
    def kept(self) -> float:
        """The seconds for which a row is in state: the window, the lateness, and a batch, since the rows of a batch
        purge others only in the next one."""
        return (self.window + self.lateness + self.batch) / 1_000

    @property
    def query(self) -> str:
        """The query, as CQL."""
        streams = ", ".join(f"{name} [RANGE {self.window} MILLISECONDS]" for name in STREAMS)
        columns = ", ".join(f"{name}.n AS {name.lower()}" for name in STREAMS)
        return f"SELECT {columns} FROM {streams} WHERE A.ab = B.ab AND B.bc = C.bc AND C.cd = D.cd"

    @staticmethod
    def schema(stream: str) -> str:
        """The columns of a stream."""
        return ", ".join([*(f"{key} BIGINT" for key in KEYS[stream]), "ts TIMESTAMP", "n BIGINT"])

    def streams(self, length: int) -> dict[str, Stream]:
        """All streams, for `length` milliseconds."""
        return {name: self._stream(nth, name, length) for nth, name in enumerate(STREAMS)}

    def _stream(self, nth: int, name: str, length: int) -> Stream:
        gap = MICROS * self.intervals[nth] / self.scale
        # Streams begin a quarter of an interval after each other, so that hardly any two rows have the same time.
        times = np.arange(gap * nth / len(STREAMS), length * MICROS, gap).astype(np.int64)
        chance = np.random.default_rng([self.seed, nth])
        return Stream(
            times,
            {key: chance.integers(0, round(1 / self.selectivity(key)), len(times)) for key in KEYS[name]},
        )


def expected_answers(streams: Mapping[str, Stream], window: int, stop: int) -> int:
    """The number of answers of the rows before `stop`: combinations that agree in their keys and whose oldest row is
    not older than the window before the newest. Times are in milliseconds."""
    width, span = window * MICROS, stop * MICROS
    before = {name: np.searchsorted(stream.ts, span) for name, stream in streams.items()}
    first = streams["A"]
    key = first.keys["ab"][: before["A"]]
    oldest = newest = first.ts[: before["A"]]
    count = len(oldest)
    for name, on, onwards in (("B", "ab", "bc"), ("C", "bc", "cd"), ("D", "cd", "cd")):
        stream, many = streams[name], before[name]
        # By key and time in one number, those that a row can meet stand side by side.
        placed = stream.keys[on][:many] * span + stream.ts[:many]
        order = np.argsort(placed)
        low = np.searchsorted(placed[order], key * span + np.maximum(newest - width, 0))
        high = np.searchsorted(placed[order], key * span + np.minimum(oldest + width, span - 1), "right")
        sizes = high - low
        count = int(sizes.sum())
        left = np.repeat(np.arange(len(key)), sizes)
        nth = np.arange(count) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        right = order[np.repeat(low, sizes) + nth]
        times = stream.ts[right]
        oldest, newest = np.minimum(oldest[left], times), np.maximum(newest[left], times)
        key = stream.keys[onwards][right]
    return count
