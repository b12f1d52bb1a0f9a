"""Inputs for `bench flat`: history that grows while the work of a batch stays the same.

All three recipes use keys that occur nowhere else ("fresh" keys) for state that is never looked up, and
negative keys for the rows that meet.

- `GrowthRecipe`: a fixed set of keys is in every stream but the first from batch 0 on; each later batch of
  the first stream looks all of them up once. So each batch has the same number of results, all with rows of
  the oldest state, while fresh keys make the state as large as one likes.
- `HotHistoryRecipe`: one single key, evenly spaced in time, in a window of a few rows. Results per row are
  constant; an engine that looks at the key's whole history instead of the window gets slower with every
  batch.
- `HotBatchRecipe`: fresh keys, and one batch in which one key meets itself often enough to produce a given
  number of results from a few hundred rows.

Measured batches are all of one size. Between the reference batches and the final batches the history grows
by a few large ones, so that growing tenfold does not take ten times as long; before the reference batches
come warm-up batches, because a cold reference would flatter the ratio: batches get quicker for about twenty
batches while the JVM compiles what it runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from anabranch.bench.inputs.recipe import FIRST_TIME, Column, OnOneKey, Rows

STREAMS = ("A", "B", "C")


@dataclass(frozen=True, slots=True)
class Phases:
    """The numbers of batches of each kind, in order; a growth batch has `growth_factor` times the usual rows."""

    warmup: int = 30
    reference: int = 20
    growth: int = 20
    final: int = 20
    growth_factor: int = 20

    @property
    def sizes(self) -> list[int]:
        """The size of every batch, in units."""
        return [1] * (self.warmup + self.reference) + [self.growth_factor] * self.growth + [1] * self.final

    @property
    def reference_batches(self) -> slice:
        """The batches that are the reference."""
        return slice(self.warmup, self.warmup + self.reference)

    @property
    def final_batches(self) -> slice:
        """The batches that are compared with the reference."""
        return slice(len(self.sizes) - self.final, None)

    @property
    def state_growth(self) -> float:
        """The factor by which the history before the final batches exceeds that before the reference, on average."""
        before = np.concatenate([[0], np.cumsum(self.sizes)[:-1]])
        return float(before[self.final_batches].mean() / before[self.reference_batches].mean())


@dataclass(frozen=True, slots=True)
class GrowthRecipe(OnOneKey):
    """State grows with fresh keys; every batch looks up the same `asked` keys, each of which matches once."""

    unit: int
    asked: int
    window: int | None
    phases: Phases
    streams: tuple[str, ...] = STREAMS

    def batches(self) -> Iterator[Mapping[str, Rows]]:
        """The batches, one per second of event time."""
        met = -1 - np.arange(self.asked, dtype=np.int64)
        start = 0
        for batch, size in enumerate(self.phases.sizes):
            rows = self.unit * size
            rng = np.random.default_rng([batch])
            ts = FIRST_TIME + batch * 1000 + np.sort(rng.integers(0, 1000, rows, dtype=np.int64))
            position = start + np.arange(rows, dtype=np.int64)
            frames = {}
            for number, stream in enumerate(self.streams):
                k = _fresh(position, number, len(self.streams))
                if number == 0 or batch == 0:
                    k[: self.asked] = met
                frames[stream] = Rows(rng.permutation(k), ts, position)
            yield frames
            start += rows


@dataclass(frozen=True, slots=True)
class HotHistoryRecipe(OnOneKey):
    """One key, a row every `spacing` milliseconds in each stream, joined in a window of a few rows."""

    unit: int
    spacing: int
    window: int
    phases: Phases
    streams: tuple[str, ...] = STREAMS

    def batches(self) -> Iterator[Mapping[str, Rows]]:
        """Batches cover consecutive stretches of one evenly spaced history."""
        start = 0
        for size in self.phases.sizes:
            rows = self.unit * size
            position = start + np.arange(rows, dtype=np.int64)
            k = np.full(rows, -1, np.int64)
            yield {stream: Rows(k, FIRST_TIME + position * self.spacing, position) for stream in self.streams}
            start += rows


@dataclass(frozen=True, slots=True)
class HotBatchRecipe(OnOneKey):
    """Fresh keys; in batch `hot` of `batch_count`, one key occurs often enough for `results` results."""

    unit: int
    results: int
    hot: int = 2
    batch_count: int = 4
    streams: tuple[str, ...] = STREAMS
    window: int | None = None

    @property
    def multiplicity(self) -> int:
        """The number of rows with the hot key in each stream."""
        return round(math.pow(self.results, 1 / len(self.streams)))

    def batches(self) -> Iterator[Mapping[str, Rows]]:
        """All batches have the same number of rows, the hot one too."""
        for batch in range(self.batch_count):
            position = batch * self.unit + np.arange(self.unit, dtype=np.int64)
            frames = {}
            for number, stream in enumerate(self.streams):
                k = _fresh(position, number, len(self.streams))
                if batch == self.hot:
                    k[: self.multiplicity] = -1
                frames[stream] = Rows(k, FIRST_TIME + position, position)
            yield frames


def _fresh(position: Column, stream: int, streams: int) -> Column:
    """Keys that occur in no other row of any stream."""
    return position * streams + stream
