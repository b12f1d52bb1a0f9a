"""A join of two streams with wide rows, whose state grows evenly from batch to batch, and edits of that state.

At first all state is on processor 0. An edit is a change between two batches. Its costs are the time until it is
committed, and the files that it writes into the folder of the state.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from anabranch.api.engine import Engine
from anabranch.api.run import Run
from anabranch.errors import BenchmarkError
from anabranch.observe.numbers import parse_bytes
from anabranch.sources.synthetic import Synthetic
from anabranch.state.groups import DEFAULT_GROUPS

STREAMS = "AB"
QUERY = "SELECT A.number AS a, B.number AS b, A.payload AS p, B.payload AS q FROM A, B WHERE A.key = B.key"
WIDTH = 1_000


@dataclass(frozen=True, slots=True)
class Edit:
    """The costs of a change between two batches."""

    seconds: float
    written_bytes: int


@dataclass(frozen=True, slots=True)
class GrowingState:
    """A run with its input, the number of batches that fill its state, and the folder of the state."""

    run: Run
    input: WideStreams
    batches: int
    folder: Path
    groups: int

    def fill(self) -> list[float]:
        """Let all batches but the first arrive; return the seconds that each took."""
        return [self.batch() for _ in range(self.batches - 1)]

    def batch(self) -> float:
        """Let one more batch arrive; return the seconds that it took."""
        last = max((batch.number for batch in self.run.batches_since()), default=-1)
        self.input.write()
        self.run.processAllAvailable()
        seconds = [batch.seconds for batch in self.run.batches_since(last)]
        if not seconds:
            raise BenchmarkError("no batch came, although there was input")
        return max(seconds)

    def edit(self, change: Callable[[Run], None]) -> Edit:
        """Make a change between two batches."""
        before, started = self._files(), time.perf_counter()
        change(self.run)
        seconds = time.perf_counter() - started
        return Edit(seconds, sum(size for _, size in self._files() - before))

    @property
    def bytes(self) -> int:
        """The active state of all processors after the last batch."""
        return sum(entry.active_bytes for entry in self.run.batches_since()[-1].step.processors)

    def _files(self) -> set[tuple[str, int]]:
        return {(entry.name, entry.stat().st_size) for entry in os.scandir(self.folder)}


@contextmanager
def growing_state(
    spark: SparkSession, folder: Path, state: str, batches: int, *, processors: int, groups: int = DEFAULT_GROUPS
) -> Iterator[GrowingState]:
    """A run in a new folder, which is removed afterwards; its `state` arrives in a number of `batches`."""
    shutil.rmtree(folder, ignore_errors=True)
    source = WideStreams(folder / "input", max(parse_bytes(state) // (batches * len(STREAMS) * WIDTH), 1))
    source.write()
    shares = [1] + [0] * (processors - 1)
    engine = Engine(spark, folder / "checkpoint", processors, initial_placement=shares, groups=groups)
    for name in STREAMS:
        schema = spark.read.parquet(str(source.folder / name)).schema
        engine.register(name, spark.readStream.schema(schema).parquet(str(source.folder / name)))
    running = engine.sql(QUERY).writeStream.format("noop").trigger(processingTime="0 seconds").start()
    try:
        running.processAllAvailable()
        yield GrowingState(running, source, batches, folder / "checkpoint" / "state", groups)
    finally:
        running.stop()
    shutil.rmtree(folder)


class WideStreams:
    """Files of two streams, one each per batch."""

    def __init__(self, folder: Path, rows: int) -> None:
        """Write into a folder, `rows` of each stream per batch."""
        self.folder = folder
        self._rows = rows
        self._batches = 0
        self._streams = [Synthetic(n, tuple_range=1 << 22) for n in range(len(STREAMS))]

    def write(self) -> None:
        """Write the files of one more batch."""
        start = self._batches * self._rows
        for name, stream in zip(STREAMS, self._streams, strict=True):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
            path = self.folder / name / f"{self._batches:05d}.parquet"
            hidden = path.with_name(f"_{path.name}")
            rows = pa.Table.from_batches([stream.rows(start, start + self._rows)])
            payload = pc.utf8_lpad(rows.column("number").cast(pa.string()), WIDTH, "0")
            pq.write_table(rows.append_column("payload", payload), hidden)
            os.replace(hidden, path)
        self._batches += 1
