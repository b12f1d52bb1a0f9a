"""The rows of the thesis's streams, such that each join gives twice as many rows as it takes (paper 5, section 4.3.1).

Every batch begins a cohort of keys, each with a few rows of each stream. The rows of a key are spread over the batches
of its `life`, as those of a window are: so joins find more and more until keys of all ages are there, and from then on
every batch is like the one before. All cohorts are alike, so are all counts.

Of the first two streams a key has 4 rows each: 16 pairs of 8 rows. Of every other stream it has 2 or 3, as many as give
rows of the joins below and of the stream the selectivity of 2 together. The other rows of the stream join with nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

ALIKE = 4  # rows of a key, of each of the first two streams
SELECTIVITY = 2
COHORT = 1_000_000  # keys of different cohorts are this far apart
UNMATCHED = 100_000  # where the keys of a stream's other rows begin, times its number

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Input:
    """`rows` of each of so many `streams` begin with each batch, and come within `life` batches."""

    streams: int
    rows: int
    life: int = 1
    seed: int = 1

    def batch(self, number: int, stream: int) -> pa.Table:
        """The rows of a stream in a batch, counted from 0: a key, and a number that no other row of the stream has."""
        keys, values = [], []
        own, arrivals = self._keys(stream), self._arrivals(stream)
        for cohort in range(max(number - self.life + 1, 0), number + 1):
            chosen = np.flatnonzero(arrivals == number - cohort)
            keys.append(cohort * COHORT + own[chosen])
            values.append(cohort * COHORT + chosen)
        return pa.table({"k": np.concatenate(keys), "v": np.concatenate(values)})

    def joined(self, batches: int) -> Counts:
        """The rows that each join makes in each batch: by batch, then by join, the lowest first.

        A joined row is made when the last of its parts comes.
        """
        by_age = np.ones((self.life, self._key_count), dtype=np.int64)  # rows made of a key up to an age
        made = []
        for stream in range(self.streams):
            own, arrivals = self._keys(stream), self._arrivals(stream)
            matching = own < self._key_count
            there = np.zeros_like(by_age)
            np.add.at(there, (arrivals[matching], own[matching]), 1)
            by_age = by_age * there.cumsum(axis=0)
            made.append(np.diff(by_age.sum(axis=1), prepend=0))
        cohort = np.array(made[1:]).T  # by age, then by join
        return np.array([cohort[: batch + 1].sum(axis=0) for batch in range(batches)]).reshape(batches, -1)

    def answer(self, batches: int) -> pa.Table:
        """All rows that the last join makes of so many batches: the number of the row of each stream."""
        streams = [pa.concat_tables(self.batch(n, stream) for n in range(batches)) for stream in range(self.streams)]
        made = streams[0].rename_columns(["k", "v0"])
        for number, rows in enumerate(streams[1:], start=1):
            made = made.join(rows.rename_columns(["k", f"v{number}"]), "k", join_type="inner")
        return made.drop_columns("k")

    @property
    def _key_count(self) -> int:
        """The keys of a cohort that join."""
        return self.rows // ALIKE

    def _keys(self, stream: int) -> Counts:
        """The key of each row of a cohort: those that join, then those that do not."""
        times = _multiplicities(self._key_count, self.rows)[stream]
        joining = np.repeat(np.arange(len(times)), times)
        others = UNMATCHED * (stream + 1) + np.arange(self.rows - len(joining))
        return np.concatenate([joining, others])

    def _arrivals(self, stream: int) -> Counts:
        """The age of its cohort at which each row comes."""
        return np.random.default_rng([self.seed, stream]).integers(0, self.life, self.rows)


def _multiplicities(keys: int, rows: int, streams: int = 8) -> list[Counts]:
    """By stream, the rows of each key that joins. Rows of a key are added where the joins lack results, key by key."""
    made = [np.full(keys, ALIKE)] * 2
    results = made[0] * made[1]
    for _ in range(2, streams):
        wanted = SELECTIVITY * (results.sum() + rows)
        times = np.zeros(keys, dtype=np.int64)
        for key in range(keys):
            due = wanted * (key + 1) / keys - int((times * results).sum())
            times[key] = np.clip(round(due / results[key]), 1, rows // keys)
        made.append(times)
        results = results * times
    return made
