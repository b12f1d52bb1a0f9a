"""`anabranch bench migration`: the costs of a query with much state while it migrates to another order of its joins.

Three streams are joined on two keys. Once it has its state the query migrates, to and fro, moving its state at once and
in the background, while batches go on coming. The batches of each migration are shown beside those without one: the
times of the median and of the slowest one, and the longest time between two answers. In the end the number of answers
is compared with the number that follows from the input.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from rich.table import Table

from anabranch.api.engine import Engine
from anabranch.api.run import Run
from anabranch.bench.machine import Machine, this_machine
from anabranch.errors import BenchmarkError, ConfigError
from anabranch.runtime.driver.changes.migration import BACKGROUND, MOVING_STATE

STREAMS = "ABC"
JOIN = "SELECT A.v AS a, B.v AS b, C.v AS c FROM A, B, C WHERE A.k = B.k AND B.j = C.j"
ORDERS = ("(A B) C", "A (B C)")
STRATEGIES = (BACKGROUND, MOVING_STATE)
BETWEEN = 6
PATIENCE = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationOptions:
    """Options of the benchmark: rows of `state` in all streams together, `rows` per stream and batch, and how often the
    query migrates by each strategy (`turns`)."""

    work: Path
    state: int = 1_000_000
    rows: int = 20_000
    turns: int = 2
    processors: int = 2

    def __post_init__(self) -> None:
        """Refuse options that cannot be run, before anything starts."""
        for name in ("state", "rows", "turns", "processors"):
            if getattr(self, name) < 1:
                raise ConfigError(f"bench migration: {name} must be at least 1, not {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class Migrated:
    """One migration: the seconds of the batches during it, the longest time between two answers, and its own time."""

    strategy: str
    batches: tuple[float, ...]
    longest_gap: float
    seconds: float


@dataclass(frozen=True, slots=True)
class MigrationResult:
    """The outcome: seconds of batches without a migration, the times between their answers, and all migrations."""

    options: MigrationOptions
    machine: Machine
    usual: tuple[float, ...]
    usual_gaps: tuple[float, ...]
    migrations: tuple[Migrated, ...]
    answers: int
    expected: int

    @property
    def hold(self) -> bool:
        """Whether the number of answers is the expected one."""
        return self.answers == self.expected

    def document(self) -> dict[str, object]:
        """All values."""
        return asdict(self)


def run(spark: SparkSession, options: MigrationOptions, report: Callable[[str], None]) -> MigrationResult:
    """Let a query with much state migrate to and fro."""
    machine, folder = this_machine(), options.work / "migration"
    shutil.rmtree(folder, ignore_errors=True)
    source = _Source(folder / "input", options)
    source.write(options.state // len(STREAMS))
    answers = _Answers(source)
    engine = Engine(spark, folder / "checkpoint", options.processors)
    for name in STREAMS:
        path = str(source.folder / name)
        stream = spark.readStream.schema(spark.read.parquet(path).schema)
        engine.register(name, stream.option("maxFilesPerTrigger", 1).parquet(path))
    query = engine.sql(JOIN, joins=ORDERS[0])
    running = query.writeStream.foreachBatch(answers.came).trigger(processingTime="0 seconds").start()
    migrations = []
    usual: list[float] = []
    gaps: list[float] = []
    try:
        _wait(running, answers, BETWEEN)
        order = 0
        for strategy in STRATEGIES * options.turns:
            order = 1 - order
            report(f"{strategy} to {ORDERS[order]}")
            first = _newest(running)
            gaps += _wait(running, answers, BETWEEN)
            usual += _seconds(running, first)
            migrations.append(_migrate(running, answers, ORDERS[order], strategy))
        answers.source = None
        running.processAllAvailable()
    finally:
        running.stop()
    expected = source.expected()
    shutil.rmtree(folder)
    return MigrationResult(options, machine, tuple(usual), tuple(gaps), tuple(migrations), answers.rows, expected)


def _migrate(running: Run, answers: _Answers, order: str, strategy: str) -> Migrated:
    first, since, started = _newest(running), len(answers.times) - 1, time.perf_counter()
    migration = running.migrate(order, strategy)
    if not migration.await_done(PATIENCE):
        raise BenchmarkError(f"bench migration: {migration!r} took more than {PATIENCE:.0f} s")
    seconds = time.perf_counter() - started
    _wait(running, answers, 2)
    return Migrated(strategy, tuple(_seconds(running, first)), max(_gaps(answers.times[since:])), seconds)


def _newest(running: Run) -> int:
    """The number of the newest batch."""
    return max((batch.number for batch in running.batches_since(-1)), default=-1)


def _seconds(running: Run, number: int) -> list[float]:
    """The seconds of the batches after one."""
    return [batch.seconds for batch in running.batches_since(-1) if batch.number > number]


def _wait(running: Run, answers: _Answers, count: int) -> list[float]:
    """Wait for `count` more answers; the times between them."""
    until, expected = time.monotonic() + PATIENCE, len(answers.times) + count + 1
    while len(answers.times) < expected:
        if not running.isActive:
            raise running.exception() or BenchmarkError("bench migration: the run has ended")
        if time.monotonic() > until:
            raise BenchmarkError(f"bench migration: {count} batches took more than {PATIENCE:.0f} s")
        time.sleep(0.01)
    return _gaps(answers.times[-count - 1 :])


def _gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]


@dataclass(slots=True)
class _Source:
    """Files of three streams, one each per batch. A row meets about one of each other stream that it is joined with."""

    folder: Path
    options: MigrationOptions
    written: int = 0
    keys: list[dict[str, np.ndarray]] = field(default_factory=list)

    def write(self, rows: int) -> None:
        """Write one more batch."""
        chance, domain = np.random.default_rng(self.written), self.options.state
        batch: dict[str, np.ndarray] = {}
        for name in STREAMS:
            (self.folder / name).mkdir(parents=True, exist_ok=True)
            path = self.folder / name / f"{self.written:05d}.parquet"
            columns = {key: chance.integers(0, domain, rows) for key in ("k", "j")}
            table = pa.table({**columns, "v": np.arange(rows)})
            hidden = path.with_name(f"_{path.name}")
            pq.write_table(table, hidden)
            os.replace(hidden, path)
            batch |= {f"{name}.{key}": values for key, values in columns.items()}
        self.keys.append(batch)
        self.written += 1

    def expected(self) -> int:
        """The number of answers to all rows that were written."""
        columns = {name: np.concatenate([batch[name] for batch in self.keys]) for name in self.keys[0]}
        domain = self.options.state
        of_a, of_c = (np.bincount(columns[name], minlength=domain) for name in ("A.k", "C.j"))
        return int((of_a[columns["B.k"]] * of_c[columns["B.j"]]).sum())


@dataclass(slots=True)
class _Answers:
    """The times of answers, and their rows. With each of them another batch is written, as long as there is a
    source."""

    source: _Source | None
    times: list[float] = field(default_factory=list)
    rows: int = 0

    def came(self, answer: DataFrame, _: int) -> None:
        """Note an answer of the query: its `foreachBatch` function."""
        self.rows += answer.count()
        if self.source is not None:
            self.source.write(self.source.options.rows)
        self.times.append(time.perf_counter())


def table(result: MigrationResult) -> Table:
    """The result for a terminal."""
    usual, size = median(result.usual), f"{result.options.state:,} rows"
    shown = Table(title=f"a query with {size} of state while it migrates", caption=str(result.machine))
    shown.add_column("migration")
    for heading in ("seconds", "batches", "median batch", "slowest", "of the usual median", "longest gap"):
        shown.add_column(heading, justify="right")
    slowest = max(result.usual)
    shown.add_row("none", "", f"{len(result.usual)}", f"{usual:.2f} s", f"{slowest:.2f} s", f"{slowest / usual:.1f}x",
                  f"{max(result.usual_gaps):.2f} s")  # fmt: skip
    for one in result.migrations:
        worst = max(one.batches)
        shown.add_row(one.strategy, f"{one.seconds:.2f}", f"{len(one.batches)}", f"{median(one.batches):.2f} s",
                      f"{worst:.2f} s", f"{worst / usual:.1f}x", f"{one.longest_gap:.2f} s")  # fmt: skip
    return shown
