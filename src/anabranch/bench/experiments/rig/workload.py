"""Workloads: the inputs of experiments, each a recipe with a query over it.

Paper 1 joins three streams that are alike and differ in their order only (section 3.4). Paper 2 has one stream and, as
its operator, a windowed group-by that keeps a history of the last tuples of each group and answers every tuple with a
statistic over it (section 3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

import numpy as np

from anabranch.bench.inputs.recipe import FIRST_TIME, History, Recipe, Rows, UniformRecipe, count_results
from anabranch.sources.synthetic import Synthetic


class Workload(Recipe, Protocol):
    """A recipe with a query. If the query needs event time, `lateness` bounds how late a row may be."""

    @property
    def query(self) -> str:
        """The query, as CQL."""

    @property
    def lateness(self) -> str | None:
        """The lateness of all streams, None for streams without event time."""


@dataclass(frozen=True, slots=True)
class JoinWorkload:
    """Three streams like `stream`: `rows` of each from the row `first` on, in `batch_count` batches."""

    rows: int
    batch_count: int
    stream: Synthetic
    first: int = 0

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the streams."""
        return ("A", "B", "C")

    @property
    def window(self) -> int | None:
        """None: the streams are unbounded."""
        return None

    @property
    def lateness(self) -> str | None:
        """None: without windows no row is late."""
        return None

    @property
    def query(self) -> str:
        """The join of all streams on their key."""
        return "SELECT A.v AS a, B.v AS b, C.v AS c FROM A, B, C WHERE A.k = B.k AND B.k = C.k"

    def batches(self) -> Iterator[Mapping[str, Rows]]:
        """Equal batches, as far as rows divide evenly."""
        edges = np.linspace(self.first, self.first + self.rows, self.batch_count + 1).astype(int)
        made = [replace(self.stream, stream=number) for number in range(len(self.streams))]
        for start, stop in pairwise(edges.tolist()):
            numbers = np.arange(start, stop, dtype=np.int64)
            yield {
                name: Rows(stream.keys(start, stop), FIRST_TIME + numbers, numbers)
                for name, stream in zip(self.streams, made, strict=True)
            }

    def expected_results(self, history: History) -> int:
        """The number of results of the whole input."""
        return count_results([np.concatenate([rows.k for rows in parts]) for parts in history.values()], (), None)


@dataclass(frozen=True, slots=True)
class GroupWorkload:
    """One stream with uniformly random keys; a tuple is answered with statistics of the last `history` of its key."""

    rows: int
    batch_count: int
    keys: int
    history: int
    seed: int = 1

    @property
    def streams(self) -> tuple[str, ...]:
        """The name of the stream."""
        return ("S",)

    @property
    def window(self) -> int | None:
        """None: the history is counted in tuples, not in seconds."""
        return None

    @property
    def lateness(self) -> str | None:
        """No lateness: every batch is newer than the one before it."""
        return "0 seconds"

    @property
    def query(self) -> str:
        """The windowed group-by."""
        statistics = "count(*) AS n, avg(v) AS mean, stddev(v) AS deviation"
        return f"SELECT k, {statistics} FROM S [PARTITION BY k ROWS {self.history}] GROUP BY k"

    def batches(self) -> Iterator[Mapping[str, Rows]]:
        """Equal batches, as far as rows divide evenly."""
        return UniformRecipe(self.streams, self.rows, self.keys, self.batch_count, None, 1_000, self.seed).batches()

    def expected_results(self, history: History) -> int:
        """The number of tuples: every one is answered."""
        return self.rows
