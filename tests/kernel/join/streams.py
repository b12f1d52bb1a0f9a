"""Small joins to try the kernel on, with two independent ways to answer them: nested loops and DuckDB.

A row is (key number, ts, lot). What a lot means is up to the test: a segment of old state, a batch. The position of a
row in its input is its id, and an answer is a multiset of id tuples.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from anabranch.kernel.join.combinations import UNBOUNDED, JoinShape, Matches
from anabranch.state.runs.run import Segment
from tests.oracle import referee
from tests.oracle.profiles import examples
from tests.state.segments import segment

Answer = Counter[tuple[int, ...]]

DAY = dt.date(2024, 2, 29)
# Four different keys of each kind, as columns. Floating point keys are canonical: one NaN and no -0.0.
KEYS = {
    "long": [pa.array([0, 1, -1, 2**63 - 1])],
    "string": [pa.array(["", "a", "aa", "日本"])],
    "double": [pa.array([float("nan"), 0.0, -1.5, float("inf")])],
    "float": [pa.array([float("nan"), 0.0, -1.5, float("inf")], pa.float32())],
    "boolean and byte": [pa.array([True, False, True, False]), pa.array([0, 0, 1, 1], pa.int8())],
    "binary": [pa.array([b"", b"\0", b"\0\0", b"\xff"])],
    "decimal": [pa.array([Decimal(n) / 100 for n in range(4)], pa.decimal128(10, 2))],
    "date": [pa.array([DAY + dt.timedelta(n) for n in range(4)])],
    "timestamp": [pa.array(range(4), pa.timestamp("us", "UTC"))],
    "string and double": [pa.array(["a", "b", "a", "b"]), pa.array([float("nan"), float("nan"), 0.0, 0.0])],
}
HASHES: dict[str, Callable[[int], int]] = {
    "distinct": lambda key: key * 0x9E3779B97F4A7C15 % 2**64,
    "colliding": lambda key: key % 2 * (2**64 - 1),
    "all equal": lambda key: 7,
}


class Row(NamedTuple):
    """One row of one input."""

    key: int
    ts: int
    lot: int = 0


@dataclass(frozen=True)
class Join:
    """A query and its complete input. Windows are as in `JoinShape`."""

    windows: tuple[int | None, ...]
    rows: tuple[tuple[Row, ...], ...]
    keys: str = "long"
    hashes: str = "distinct"

    @property
    def key_columns(self) -> list[str]:
        return [f"key.{n}" for n in range(len(KEYS[self.keys]))]

    def shape(self, **sizes: int) -> JoinShape:
        verify = () if self.hashes == "distinct" else tuple(self.key_columns)
        return JoinShape(self.windows, verify, **sizes)

    def hash(self, key: int) -> int:
        return HASHES[self.hashes](key)

    def segment(self, i: int, wanted: Callable[[Row], bool] = lambda row: True, seed: int | None = None) -> Segment:
        """The wanted rows of input i, sorted; rows that are equal in hash and ts in a random order."""
        ids = [n for n, row in enumerate(self.rows[i]) if wanted(row)]
        if seed is not None:
            np.random.default_rng(seed).shuffle(ids)
        rows = [self.rows[i][n] for n in ids]
        numbers = pa.array([row.key for row in rows], pa.int64())
        columns = {f"key.{n}": column.take(numbers) for n, column in enumerate(KEYS[self.keys])}
        ts = None if self.windows[i] is None else [row.ts for row in rows]
        return segment([self.hash(row.key) for row in rows], ts, **columns, id=pa.array(ids, pa.int64()))


def nested_loops(join: Join) -> Answer:
    """The definition of SPEC section 0, combination by combination."""
    found: Answer = Counter()
    for ids in itertools.product(*(range(len(rows)) for rows in join.rows)):
        chosen = [rows[n] for rows, n in zip(join.rows, ids, strict=True)]
        times = [(row.ts, window) for row, window in zip(chosen, join.windows, strict=True) if window is not None]
        newest = max((ts for ts, _ in times), default=0)
        same_key = len({row.key for row in chosen}) == 1
        if same_key and all(window == UNBOUNDED or ts >= newest - window for ts, window in times):
            found[ids] += 1
    return found


def duckdb(join: Join) -> Answer:
    """The same, by the referee."""
    streams = {
        f"s{i}": referee.Stream(
            join.segment(i).rows,
            join.key_columns,
            None if window is None else "ts",
            None if window == UNBOUNDED else window,
        )
        for i, window in enumerate(join.windows)
    }
    answer = referee.join(streams, [f"s{i}.id AS id{i}" for i in range(len(streams))])
    return Counter(zip(*(column.to_pylist() for column in answer.columns), strict=True))


def collect(join: Join, shape: JoinShape, chunks: Iterable[Matches]) -> Answer:
    """The kernel's answer; on the way, chunks and gathered tables must keep to their sizes."""
    found: Answer = Counter()
    for matches in chunks:
        assert 0 < len(matches) <= shape.chunk_rows
        gathered = sum(table.num_rows for table in matches.tables)
        hashes = {
            join.hash(join.rows[i][n].key)
            for i, table in enumerate(matches.tables)
            for n in table.column("id").to_pylist()
        }
        assert gathered <= shape.gather_rows or len(hashes) == 1
        ids = [
            table.column("id").to_numpy()[rows].tolist()
            for table, rows in zip(matches.tables, matches.rows, strict=True)
        ]
        found.update(zip(*ids, strict=True))
    return found


MOST_ROWS = {2: 16, 3: 10, 4: 7, 5: 5}


def plenty(rows: st.SearchStrategy, most: int) -> st.SearchStrategy:
    """Mostly well-filled inputs, because one empty input makes the whole answer empty; sometimes hardly any rows."""
    full = st.lists(rows, min_size=most // 2 + 1, max_size=most)
    return st.integers(0, 9).flatmap(lambda n: full if n else st.lists(rows, max_size=1)).map(tuple)


@st.composite
def joins(draw: st.DrawFn, lots: int) -> Join:
    """Two to five inputs, few keys, many duplicates, and windows that matter."""
    m = draw(st.integers(2, 5))
    rows = st.builds(Row, st.sampled_from([0, 0, 0, 0, 1, 2, 3]), st.integers(0, 12), st.integers(0, lots - 1))
    windows = st.sampled_from([None, UNBOUNDED, 0, 2, 5, 8])
    return Join(
        draw(st.tuples(*[windows] * m)),
        draw(st.tuples(*[plenty(rows, MOST_ROWS[m])] * m)),
        draw(st.sampled_from(sorted(KEYS))),
        draw(st.sampled_from(sorted(HASHES))),
    )


@st.composite
def punctual_joins(draw: st.DrawFn, lots: int) -> tuple[Join, tuple[int, ...]]:
    """Rows that arrive out of order, but none later than its input allows, and the allowed lateness per input."""
    m = draw(st.integers(2, 4))
    lateness = draw(st.tuples(*[st.integers(0, 10)] * m))
    windows = draw(st.tuples(*[st.sampled_from([0, 5, 10, 20, 20, UNBOUNDED, None])] * m))
    inputs = []
    for allowed in lateness:
        drawn = st.tuples(st.integers(0, 1), st.integers(0, 60), st.integers(0, allowed))
        rows = draw(plenty(drawn, 2 * MOST_ROWS[m]))
        # Arrival = ts + delay with delay <= lateness: when a row arrives, no earlier one is newer by more than that.
        inputs.append(tuple(Row(key, ts, min((ts + delay) // 12, lots - 1)) for key, ts, delay in rows))
    return Join(windows, tuple(inputs), hashes=draw(st.sampled_from(["distinct", "colliding"]))), lateness


def share_with_results(strategy: st.SearchStrategy) -> float:
    """Of the joins that a property tries, how many have an answer to get wrong."""
    found = []

    @examples(200)
    @given(strategy)
    def look(join: Join) -> None:
        found.append(bool(nested_loops(join)))

    look()
    return sum(found) / len(found)
