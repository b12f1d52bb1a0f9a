"""Random queries over random batches, with restarts on other numbers of processors, against DuckDB.

Each seed draws streams with and without event time, windows, lateness, duplicates and long values, a SELECT of columns,
expressions or constants alone, settings of the session, and what the sink does with an answer before it takes it; the
answer has to be that of DuckDB on the rows that are on time by SPEC section 0, whatever the number of groups,
processors and batches.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.oracle import referee
from tests.oracle.feed import on_time
from tests.oracle.reshaping import RESHAPED
from tests.oracle.settings import odd_settings
from tests.oracle.steps import Kind, Steps

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int32()), ("s", pa.string()), ("t", pa.int64()), ("v", pa.int64())])


@dataclass
class Case:
    """A query with its streams (windows and lateness in milliseconds) and batches."""

    timed: dict[str, bool]
    windows: dict[str, int | None]
    lateness: dict[str, int | None]
    keys: list[str]
    selected: list[str]
    batches: list[dict[str, pa.Table]]

    @property
    def text(self) -> str:
        """The query in CQL; results are row numbers, so that duplicates of rows are told apart."""
        items = [
            name if window is None else f"{name} [RANGE {window} MILLISECONDS]" for name, window in self.windows.items()
        ]
        names = list(self.windows)
        equal = " AND ".join(f"{left}.{key} = {right}.{key}" for key in self.keys for left, right in pairwise(names))
        residual = " AND A.v + B.v > 3"
        outputs = ", ".join(f"{output} AS c{n}" for n, output in enumerate(self.selected))
        return f"SELECT {outputs} FROM {', '.join(items)} WHERE {equal}{residual}"

    def can_expire(self, name: str) -> bool:
        others = [other for other in self.windows if other != name]
        return self.windows[name] is not None and all(self.has_watermark(other) for other in others)

    def has_watermark(self, name: str) -> bool:
        return self.windows[name] is not None and self.lateness[name] is not None

    def on_time(self, name: str) -> pa.Table:
        """The rows of a stream that count. A row with a null key never reaches the engine."""
        usable = []
        for batch in self.batches:
            rows = batch[name]
            for key in self.keys:
                rows = rows.filter(rows.column(key).is_valid())
            usable.append(rows)
        lateness = self.lateness[name]
        matters = any(self.can_expire(other) for other in self.windows if other != name)
        if lateness is None or not self.has_watermark(name) or not matters:
            return pa.concat_tables(usable)
        return on_time(usable, "t", lateness)[0]

    def expected(self) -> pa.Table:
        streams = {
            name: referee.Stream(self.on_time(name), self.keys, "t" if self.timed[name] else None, self.windows[name])
            for name in self.windows
        }
        return referee.join(streams, self.selected, where="A.v + B.v > 3")


def draw(seed: int) -> Case:
    rng = random.Random(seed)
    names = "ABCD"[: rng.choice([2, 2, 3, 3, 4])]
    windowed = rng.random() < 0.8
    timed = {name: windowed and rng.random() < 0.9 for name in names}
    windows = {name: rng.choice([0, 3, 10, 10, 30, None]) if timed[name] else None for name in names}
    lateness = {name: rng.choice([0, 5, 5, 20, None]) if timed[name] else None for name in names}
    keys = rng.choice([["k"], ["k"], ["s"], ["s", "k"]])
    every = [f"{name}.v" for name in names]
    selected = rng.choice([every, every, ["A.v + B.v", "A.s", "'x'"], ["1"]])
    long = "b" * 20_000 if rng.random() < 0.3 else "b"

    def rows(name: str, batch: int) -> pa.Table:
        count = rng.choice([0, 3, 12, 12])
        columns = {
            "k": [None if rng.random() < 0.1 else rng.randrange(3) for _ in range(count)],
            "s": [rng.choice([None, "a", "a", long]) for _ in range(count)],
            "t": [batch * 10 + rng.randrange(-12, 12) for _ in range(count)],
            "v": [rng.randrange(6) for _ in range(count)],
        }
        return pa.table(columns, schema=SCHEMA)

    batches = [{name: rows(name, batch) for name in names} for batch in range(rng.choice([2, 3, 4]))]
    return Case(timed, windows, lateness, keys, selected, batches)


@pytest.mark.parametrize("seed", range(4))
def test_a_random_query_answers_as_duckdb_does(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    case, rng = draw(seed), random.Random(seed)
    groups = rng.choice([4, 64, 256])
    kinds = {
        name: Kind(
            SCHEMA,
            "t" if case.timed[name] else None,
            late * 1000 if (late := case.lateness[name]) is not None else None,
        )
        for name in case.windows
    }
    remaining, answers = list(case.batches), []

    def reshape(results: DataFrame, batch_id: int) -> None:
        RESHAPED[rng.choice(list(RESHAPED))](results)
        answers.append(results.toArrow())

    with odd_settings(spark, random.Random(f"settings {seed}")):
        while remaining:
            processors = rng.choice([1, 2, 3, 4])
            with Steps(
                spark, tmp_path / "checkpoint", case.text, kinds, processors=processors, groups=groups, sink=reshape
            ) as steps:
                for _ in range(rng.choice([1, 2])):
                    if remaining:
                        steps.feed(remaining.pop(0))
    referee.assert_same_rows(pa.concat_tables(answers), case.expected())
