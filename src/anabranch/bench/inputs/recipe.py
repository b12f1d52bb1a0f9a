"""Inputs of benchmarks: generated once with numpy, written as parquet, reused by every contender.

A *recipe* is a frozen value that yields batches; a batch maps each stream to its rows (k, ts in
milliseconds, v). `materialise` writes one file per stream and batch, so that `maxFilesPerTrigger=1` replays
exactly the recipe's batches, and gives the files increasing modification times, by which Spark's file
source orders them. The folder is named after the recipe, so an input is generated once per work directory;
`input.json` is written last and marks it complete.

The expected number of results is computed here from the input alone, with a counting argument instead of a
join: agreeing contenders could all be wrong, so they are also compared with this number.

Timestamps of a later batch are strictly greater than those of an earlier one in every stream: Spark drops a
row whose time *equals* the watermark, and no contender may lose rows to lateness here. For the same reason
time does not start at 0, which is where Spark's watermark starts.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

Column = npt.NDArray[np.int64]
FIRST_MODIFIED = 1_700_000_000
FIRST_TIME = FIRST_MODIFIED * 1000


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one stream in one batch; `j` is a second key, where there is one."""

    k: Column
    ts: Column
    v: Column
    j: Column | None = None


# The rows of every stream, batch by batch.
History = Mapping[str, Sequence[Rows]]


class Recipe(Protocol):
    """A deterministic description of an input; a frozen dataclass, so that it can be named by its fields."""

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams."""

    @property
    def window(self) -> int | None:
        """The window of all streams in seconds, or None for unbounded streams."""

    def batches(self) -> Iterator[Mapping[str, Rows]]:
        """The batches in the order of their arrival."""

    def expected_results(self, history: History) -> int:
        """The number of results in all batches together."""


@dataclass(frozen=True, slots=True)
class Input:
    """A written input: its folder, and the number of results that a correct engine produces from it."""

    path: Path
    rows: int
    batches: int
    expected_results: int


class OnOneKey:
    """A recipe whose streams are all joined on `k`."""

    __slots__ = ()
    window: int | None

    def expected_results(self, history: History) -> int:
        """The number of results of the whole input."""
        keys = [np.concatenate([rows.k for rows in parts]) for parts in history.values()]
        times = [np.concatenate([rows.ts for rows in parts]) for parts in history.values()]
        return count_results(keys, times, self.window)


@dataclass(frozen=True, slots=True)
class UniformRecipe(OnOneKey):
    """Uniformly random keys at a steady rate: the input of `bench throughput`.

    `window_rows` is the number of rows of one stream that a window covers; it sets how fast time passes.
    """

    streams: tuple[str, ...]
    rows: int
    keys: int
    batch_count: int
    window: int | None
    window_rows: int
    seed: int

    def batches(self) -> Iterator[Mapping[str, Rows]]:
        """Equal batches; the last ones are a row shorter if the rows do not divide evenly."""
        sizes = [len(part) for part in np.array_split(np.empty(self.rows, np.bool_), self.batch_count)]
        span = max(1, math.ceil(max(sizes) * 1000 * (self.window or 1) / self.window_rows))
        start = 0
        for batch, size in enumerate(sizes):
            position = np.arange(size, dtype=np.int64)
            ts = FIRST_TIME + batch * span + position * span // max(1, size)
            yield {
                stream: Rows(self._keys(number, batch, size), ts, start + position)
                for number, stream in enumerate(self.streams)
            }
            start += size

    def _keys(self, stream: int, batch: int, size: int) -> Column:
        return np.random.default_rng([self.seed, stream, batch]).integers(0, self.keys, size, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class ChainRecipe:
    """Four streams that are joined on three different keys: the input of `bench chain`.

    A.k = B.k, B.j = C.j, C.k = D.k, all uniformly random, unbounded.
    """

    rows: int
    keys: int
    batch_count: int
    seed: int

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams."""
        return ("A", "B", "C", "D")

    @property
    def window(self) -> int | None:
        """None: the streams are unbounded."""
        return None

    def batches(self) -> Iterator[Mapping[str, Rows]]:
        """Equal batches; the last ones are a row shorter if the rows do not divide evenly."""
        sizes = [len(part) for part in np.array_split(np.empty(self.rows, np.bool_), self.batch_count)]
        start = 0
        for batch, size in enumerate(sizes):
            position = start + np.arange(size, dtype=np.int64)
            made = {}
            for number, stream in enumerate(self.streams):
                k, j = np.random.default_rng([self.seed, number, batch]).integers(0, self.keys, (2, size))
                made[stream] = Rows(k, FIRST_TIME + position, position, j)
            yield made
            start += size

    def expected_results(self, history: History) -> int:
        """The number of results: a pair of B and C with the same j is in as many as A has rows with its B's k, times D
        with its C's."""
        k = {stream: np.concatenate([rows.k for rows in parts]) for stream, parts in history.items()}
        j = {stream: np.concatenate([rows.j for rows in history[stream] if rows.j is not None]) for stream in "BC"}
        ends = [
            np.bincount(j[inner], weights=np.bincount(k[outer], minlength=self.keys)[k[inner]], minlength=self.keys)
            for inner, outer in (("B", "A"), ("C", "D"))
        ]
        return int((ends[0] * ends[1]).sum())


@dataclass(frozen=True, slots=True)
class GroupsRecipe:
    """One stream with uniformly random keys at a steady rate: the input of `bench groupby`."""

    rows: int
    keys: int
    batch_count: int
    window: int
    window_rows: int
    seed: int

    @property
    def streams(self) -> tuple[str, ...]:
        """The name of the stream."""
        return ("A",)

    def batches(self) -> Iterator[Mapping[str, Rows]]:
        """The batches, as those of a join of one stream."""
        fields = (self.rows, self.keys, self.batch_count, self.window, self.window_rows, self.seed)
        return UniformRecipe(self.streams, *fields).batches()

    def expected_results(self, history: History) -> int:
        """The number of rows: every one is answered."""
        return sum(len(rows.k) for rows in history["A"])


def materialise(recipe: Recipe, work: Path) -> Input:
    """Write the recipe's input below `work`, unless a complete one exists already."""
    # The class name is part of the identity: two recipes may have equal fields.
    identity = json.dumps([type(recipe).__name__, asdict(recipe)], sort_keys=True)  # type: ignore[call-overload]
    folder = work / f"input-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
    marker = folder / "input.json"
    if not marker.exists():
        shutil.rmtree(folder, ignore_errors=True)
        marker.write_text(json.dumps({"recipe": json.loads(identity), **_write(recipe, folder)}, indent=1))
    written: dict[str, Any] = json.loads(marker.read_text())
    return Input(folder, written["rows"], written["batches"], written["expected_results"])


def _write(recipe: Recipe, folder: Path) -> dict[str, int]:
    for stream in recipe.streams:
        (folder / stream).mkdir(parents=True)
    history: dict[str, list[Rows]] = {stream: [] for stream in recipe.streams}
    number = -1
    for number, batch in enumerate(recipe.batches()):
        for stream, rows in batch.items():
            path = folder / stream / f"{number:05d}.parquet"
            second = {} if rows.j is None else {"j": rows.j}
            pq.write_table(pa.table({"k": rows.k, **second, "ts": rows.ts, "v": rows.v}), path)
            os.utime(path, (FIRST_MODIFIED + number, FIRST_MODIFIED + number))
            history[stream].append(rows)
    return {
        "rows": sum(len(rows.k) for parts in history.values() for rows in parts),
        "batches": number + 1,
        "expected_results": recipe.expected_results(history),
    }


def count_results(keys: Sequence[Column], times: Sequence[Column], window: int | None) -> int:
    """The number of combinations with one key whose times lie within `window` seconds of the latest.

    Unbounded, it is the sum over keys of the product of the streams' counts. With a window every result is
    counted at its latest row (of rows with equal times, at the one of the last stream): the product of the
    numbers of rows that the other streams have inside that row's window.
    """
    _, identifiers = np.unique(np.concatenate(keys), return_inverse=True)
    parts = np.split(identifiers.astype(np.int64), np.cumsum([len(column) for column in keys])[:-1])
    if window is None:
        size = len(identifiers)
        return int(reduce(np.multiply, [np.bincount(part, minlength=size) for part in parts]).sum())
    first = min(int(column.min()) for column in times)
    reach = max(int(column.max()) for column in times) - first + 1
    since = [column - first for column in times]
    # (key, time) as one sortable number; `reach` keeps the ranges of two keys apart.
    positions = [np.sort(part * reach + time) for part, time in zip(parts, since, strict=True)]
    total = 0
    for latest, (part, time) in enumerate(zip(parts, since, strict=True)):
        upper = part * reach + time
        lower = part * reach + np.maximum(time - window * 1000, 0)
        product = np.ones(len(part), np.int64)
        for other, sorted_positions in enumerate(positions):
            if other != latest:
                end = np.searchsorted(sorted_positions, upper, "right" if other < latest else "left")
                product *= end - np.searchsorted(sorted_positions, lower, "left")
        total += int(product.sum())
    return total
