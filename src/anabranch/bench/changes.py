"""`anabranch bench changes`: the pause that a query sees while others are added to its run and removed from it.

A join of two streams runs without a rest: as soon as a batch is answered, the input of the next one is written. Then
queries come and go, with batches in between: some over columns that are read already, some that need one column more.
The pause of a change is the longest time between two answers of the query, from the change up to the answer to the
first batch that begins after it; it is shown beside the usual time between two answers. The claim: a query over columns
that are read already comes and goes without a restart of Spark's query.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from rich.table import Table

from anabranch.api.engine import Engine
from anabranch.api.query import Query
from anabranch.api.run import Run
from anabranch.bench.machine import Machine, this_machine
from anabranch.errors import BenchmarkError, ConfigError
from anabranch.sources.synthetic import Synthetic

STREAMS = "AB"
JOIN = "SELECT A.number AS a, B.number AS b FROM A, B WHERE A.key = B.key"
READ_ALREADY = f"{JOIN} AND A.number <> B.number"
BETWEEN = 4
WARM_UP = 8
AHEAD = 2
PATIENCE = 120.0

# The names of the changes, in the order in which they are shown.
ADDED = "add a query over columns that are read already"
REMOVED = "remove it"
ADDED_COLUMN = "add a query over one more column"
REMOVED_COLUMN = "remove that one"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesOptions:
    """Options of the benchmark: `rows` per stream and batch, and how often queries come and go (`turns`)."""

    work: Path
    rows: int = 5_000
    turns: int = 5
    processors: int = 2

    def __post_init__(self) -> None:
        """Refuse options that cannot be run, before anything starts."""
        for name in ("rows", "turns", "processors"):
            if getattr(self, name) < 1:
                raise ConfigError(f"bench changes: {name} must be at least 1, not {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class ChangesResult:
    """The outcome: seconds between two answers, of all kinds of changes and otherwise; and how often Spark's query was
    started anew."""

    options: ChangesOptions
    machine: Machine
    usual: tuple[float, ...]
    pauses: dict[str, tuple[float, ...]]
    restarts: dict[str, int]

    @property
    def hold(self) -> bool:
        """Whether Spark's query went on without a restart wherever no other column was needed."""
        return all(self.restarts[kind] == 0 for kind in (ADDED, REMOVED, REMOVED_COLUMN))

    def document(self) -> dict[str, object]:
        """All values."""
        return asdict(self)


def run(spark: SparkSession, options: ChangesOptions, report: Callable[[str], None]) -> ChangesResult:
    """Let queries come and go beside one that is watched."""
    machine, folder = this_machine(), options.work / "changes"
    shutil.rmtree(folder, ignore_errors=True)
    answers = _Answers(_Source(folder / "input", options.rows, options.turns))
    engine = Engine(spark, folder / "checkpoint", options.processors)
    for name in STREAMS:
        path = str(answers.source.folder / name)
        schema = spark.read.parquet(path).schema
        engine.register(name, spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(path))
    watched = engine.sql(JOIN).writeStream.queryName("watched").foreachBatch(answers.came)
    running = watched.trigger(processingTime="0 seconds").start()
    pauses: dict[str, list[float]] = {kind: [] for kind in (ADDED, REMOVED, ADDED_COLUMN, REMOVED_COLUMN)}
    restarts = dict.fromkeys(pauses, 0)
    usual: list[float] = []
    try:
        answers.wait(running, WARM_UP)
        for turn in range(options.turns):
            report(f"turn {turn + 1} of {options.turns}")
            other = engine.sql(f"{JOIN} AND A.extra{turn} >= 0")
            for added, removed, query in (
                (ADDED, REMOVED, engine.sql(READ_ALREADY)),
                (ADDED_COLUMN, REMOVED_COLUMN, other),
            ):
                for kind, change in ((added, _adding(running, query)), (removed, lambda: running.remove("other"))):
                    usual += answers.gaps(running, BETWEEN)
                    before = running.runId
                    pauses[kind].append(answers.pause(running, change))
                    restarts[kind] += running.runId != before
    finally:
        running.stop()
    shutil.rmtree(folder)
    return ChangesResult(
        options, machine, tuple(usual), {kind: tuple(seconds) for kind, seconds in pauses.items()}, restarts
    )


def _adding(running: Run, query: Query) -> Callable[[], None]:
    return lambda: running.add(query.writeStream.queryName("other").format("noop"))


@dataclass(slots=True)
class _Source:
    """Files of two streams, one each per batch, with a column for every turn."""

    folder: Path
    rows: int
    columns: int
    written: int = 0

    def write(self) -> None:
        """Write one more batch."""
        start = self.written * self.rows
        for number, name in enumerate(STREAMS):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
            path = self.folder / name / f"{self.written:05d}.parquet"
            hidden = path.with_name(f"_{path.name}")
            stream = Synthetic(number, tuple_range=1 << 22)
            rows = pa.Table.from_batches([stream.rows(start, start + self.rows)])
            for column in range(self.columns):
                rows = rows.append_column(f"extra{column}", rows.column("number"))
            pq.write_table(rows, hidden)
            os.replace(hidden, path)
        self.written += 1


@dataclass(slots=True)
class _Answers:
    """The times of the answers to batches; with each of them the input of another batch is written."""

    source: _Source
    times: list[float] = field(default_factory=list)
    _news: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        for _ in range(AHEAD):
            self.source.write()

    def came(self, _: DataFrame, __: int) -> None:
        """Note an answer of the watched query: its `foreachBatch` function."""
        self.source.write()
        with self._news:
            self.times.append(time.perf_counter())
            self._news.notify_all()

    def wait(self, running: Run, count: int) -> None:
        """Wait until `count` more answers have come."""
        until = time.monotonic() + PATIENCE
        with self._news:
            expected = len(self.times) + count
            while len(self.times) < expected:
                self._news.wait(1)
                if not running.isActive:
                    raise running.exception() or BenchmarkError("bench changes: the run has ended")
                if time.monotonic() > until:
                    raise BenchmarkError(f"bench changes: {count} batches took more than {PATIENCE:.0f} s")

    def gaps(self, running: Run, count: int) -> list[float]:
        """The times between `count` answers, from the next one on."""
        self.wait(running, 1)
        first = len(self.times) - 1
        self.wait(running, count)
        return _between(self.times[first : first + count + 1])

    def pause(self, running: Run, change: Callable[[], None]) -> float:
        """The longest time between two answers during a change, up to that of the first batch that begins after it."""
        first = len(self.times) - 1
        change()
        self.wait(running, 2)
        return max(_between(self.times[first:]))


def _between(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]


def table(result: ChangesResult) -> Table:
    """The result for a terminal."""
    usual = median(result.usual)
    shown = Table(title="time between two answers of a query that runs beside others", caption=str(result.machine))
    shown.add_column("while queries change")
    for heading in ("median", "longest", "of the usual", "restarts"):
        shown.add_column(heading, justify="right")
    shown.add_row("not at all", f"{usual:.3f} s", f"{max(result.usual):.3f} s", "1.0x", "")
    for kind, seconds in result.pauses.items():
        middle = median(seconds)
        restarts = f"{result.restarts[kind]} of {len(seconds)}"
        shown.add_row(kind, f"{middle:.3f} s", f"{max(seconds):.3f} s", f"{middle / usual:.1f}x", restarts)
    return shown
