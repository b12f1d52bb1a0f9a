"""`anabranch bench relocation`: moving a gigabyte of state from one processor to another while a query runs.

A join of two streams with wide rows fills one processor of two with state. Then its partition groups move to the other
one, `turns` times there and back, with batches in between; all but one, so that every file has to be divided. Claims: a
move takes less time than a batch, its commit included, and copies nothing: no file is written or changed by it. The
later costs are shown, too: the time of the batch after a move, in which the other processor opens its new state.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.table import Table

from anabranch.api.engine import Engine
from anabranch.api.run import Run
from anabranch.bench.machine import Machine, this_machine
from anabranch.errors import BenchmarkError, ConfigError
from anabranch.observe.numbers import format_bytes, parse_bytes
from anabranch.sources.synthetic import Synthetic

STREAMS = "AB"
QUERY = "SELECT A.number AS a, B.number AS b, A.payload AS p, B.payload AS q FROM A, B WHERE A.key = B.key"
WIDTH = 1_000
BETWEEN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RelocationOptions:
    """Options of the benchmark: the amount of state before the first move, and the number of batches that bring it."""

    work: Path
    state: str = "1g"
    batches: int = 16
    turns: int = 4
    processors: int = 2

    def __post_init__(self) -> None:
        """Refuse options that cannot be run, before anything starts."""
        for name, least in (("batches", 2), ("turns", 1), ("processors", 2)):
            if getattr(self, name) < least:
                raise ConfigError(f"bench relocation: {name} must be at least {least}, not {getattr(self, name)}")
        parse_bytes(self.state)


@dataclass(frozen=True, slots=True)
class RelocationResult:
    """The outcome, in seconds: of each move, of batches before the first move, of those right after a move, and of
    others between moves."""

    options: RelocationOptions
    machine: Machine
    state_bytes: int
    moves: tuple[float, ...]
    copied_bytes: int
    before: tuple[float, ...]
    after: tuple[float, ...]
    between: tuple[float, ...]

    @property
    def hold(self) -> bool:
        """Whether every move took less than a batch, and copied nothing."""
        return max(self.moves) < median(self.before) and self.copied_bytes == 0

    def document(self) -> dict[str, object]:
        """All values."""
        return asdict(self)


def run(spark: SparkSession, options: RelocationOptions, report: Callable[[str], None]) -> RelocationResult:
    """Fill a processor, then move everything there and back."""
    machine, folder = this_machine(), options.work / "relocation"
    shutil.rmtree(folder, ignore_errors=True)
    source = _Source(folder / "input", max(parse_bytes(options.state) // (options.batches * len(STREAMS) * WIDTH), 1))
    source.write()
    shares = [1] + [0] * (options.processors - 1)
    engine = Engine(spark, folder / "checkpoint", options.processors, initial_placement=shares)
    for name in STREAMS:
        schema = spark.read.parquet(str(source.folder / name)).schema
        engine.register(name, spark.readStream.schema(schema).parquet(str(source.folder / name)))
    running = engine.sql(QUERY).writeStream.format("noop").trigger(processingTime="0 seconds").start()
    try:
        running.processAllAvailable()
        report(f"filling a processor with {options.state} of state")
        before = [_batch(running, source) for _ in range(options.batches - 1)]
        size = sum(entry.active_bytes for entry in running.batches_since()[-1].step.processors)
        moves, copied, after, between = [], 0, [], []
        for turn in range(options.turns):
            report(f"move {turn + 1} of {options.turns}")
            files = _files(folder / "checkpoint" / "state")
            started = time.perf_counter()
            running.relocate(range(1, engine.groups), to=(turn + 1) % 2)
            moves.append(time.perf_counter() - started)
            copied += sum(files_size for name, files_size in _files(folder / "checkpoint" / "state") - files)
            after.append(_batch(running, source))
            between += [_batch(running, source) for _ in range(BETWEEN)]
    finally:
        running.stop()
    shutil.rmtree(folder)
    half = len(before) // 2
    return RelocationResult(
        options, machine, size, tuple(moves), copied, tuple(before[half:]), tuple(after), tuple(between)
    )


class _Source:
    """Files of two streams, one each per batch."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder = folder
        self._rows = rows
        self._batches = 0
        self._streams = [Synthetic(n, tuple_range=1 << 22) for n in range(len(STREAMS))]

    def write(self) -> None:
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


def _batch(running: Run, source: _Source) -> float:
    """Let one more batch arrive; return the seconds that it took."""
    last = max((batch.number for batch in running.batches_since()), default=-1)
    source.write()
    running.processAllAvailable()
    seconds = [batch.seconds for batch in running.batches_since(last)]
    if not seconds:
        raise BenchmarkError("bench relocation: no batch came")
    return max(seconds)


def _files(folder: Path) -> set[tuple[str, int]]:
    return {(entry.name, entry.stat().st_size) for entry in os.scandir(folder)}


def table(result: RelocationResult) -> Table:
    """The result for a terminal."""
    shown = Table(
        title=f"{format_bytes(result.state_bytes)} of state moved {len(result.moves)} times, "
        f"{format_bytes(result.copied_bytes)} copied",
        caption=str(result.machine),
    )
    shown.add_column("what")
    for heading in ("median", "longest"):
        shown.add_column(heading, justify="right")
    for name, seconds in (
        ("move", result.moves),
        ("batch before any move", result.before),
        ("batch after a move", result.after),
        ("other batches", result.between),
    ):
        shown.add_row(name, f"{median(seconds):.3f} s", f"{max(seconds):.3f} s")
    return shown
