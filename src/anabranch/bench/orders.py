"""`anabranch bench orders`: a join that starts in its worst order becomes as fast as one that starts in its best.

Four streams are joined in a chain on three keys, over sliding windows. Nearly all joined rows come of the first key, so
the worst order joins on it first, and the best last. The query runs twice on the same input, once started in the worst
order and once in the best, both with `AutoMigrate`. They run abreast in one Spark, batch by batch in turn
(`experiments/rig/abreast`), so that other load on the machine meets both.

Counts decide: both give the number of answers that follows from the input, and in the last batches the run that started
in the worst order makes at most a tenth more intermediate rows than the other. Throughput is reported beside it: that
of the last batches, which is claimed to be within a tenth, and that of all.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from rich.table import Table

from anabranch.api.engine import Engine
from anabranch.api.run import Run
from anabranch.bench.experiments.rig.abreast import Turnstile
from anabranch.bench.experiments.zhu.parts.setting import STREAMS, Setting, Stream, expected_answers
from anabranch.bench.machine import Machine, this_machine
from anabranch.errors import BenchmarkError, ConfigError
from anabranch.manager.policies.auto_migrate import AutoMigrate
from anabranch.observe.events import EventKind
from anabranch.observe.progress import Progress
from anabranch.plan.query import RESERVED

ORDERS = {"worst": "((A B) C) D", "best": "A ((B C) D)"}
BATCH = 1_000  # milliseconds of event time
# The number of rows of the next stream that a row meets in a window, on each key.
MEETS = (8.0, 0.5, 0.5)
# Two numbers count as equal if they differ by at most this share.
TOLERANCE = 0.1
POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class OrdersOptions:
    """Options of the benchmark: `rows` per stream and batch, the number of batches, the length of a window in batches,
    and the number of `last` batches that count."""

    work: Path
    rows: int = 10_000
    batches: int = 60
    window: int = 4
    last: int = 15
    processors: int = 2

    def __post_init__(self) -> None:
        """Refuse options that cannot be run, before anything starts."""
        for name in ("rows", "batches", "window", "last", "processors"):
            if getattr(self, name) < 1:
                raise ConfigError(f"bench orders: {name} must be at least 1, not {getattr(self, name)}")
        if self.last > self.batches:
            raise ConfigError(f"bench orders: the last {self.last} of {self.batches} batches cannot count")

    @property
    def setting(self) -> Setting:
        """The streams, with so many values of each key that a row meets `MEETS` others."""
        kept = self.rows * self.window
        first, second, third = (1 / max(round(kept / meets), 1) for meets in MEETS)
        return Setting(
            window=self.window * BATCH,
            intervals=(BATCH, BATCH, BATCH, BATCH),
            selectivities=(first, second, third),
            scale=self.rows,
            batch=BATCH,
            lateness=0,
        )


@dataclass(frozen=True, slots=True)
class Started:
    """A run that was `started` in one order: per batch the seconds of its turn and its intermediate rows, its answers,
    the orders that it went on with, each with the number of batches before, and the one that it `ended` in."""

    started: str
    seconds: tuple[float, ...]
    intermediate: tuple[int, ...]
    answers: int
    migrated: tuple[tuple[int, str], ...]
    ended: str


@dataclass(frozen=True, slots=True)
class OrdersResult:
    """The outcome of both runs."""

    options: OrdersOptions
    machine: Machine
    runs: Mapping[str, Started]
    expected: int

    @property
    def intermediate_ratio(self) -> float:
        """Intermediate rows of the last batches, those of the worst start over those of the best."""
        worst, best = (sum(one.intermediate[-self.options.last :]) for one in (self.runs["worst"], self.runs["best"]))
        return worst / best if best else 1.0

    @property
    def throughput_ratio(self) -> float:
        """Throughput of the last batches, that of the worst start over that of the best."""
        worst, best = (sum(one.seconds[-self.options.last :]) for one in (self.runs["worst"], self.runs["best"]))
        return best / worst

    @property
    def hold(self) -> bool:
        """Whether the answers are right, and the run with the worst start ends with as few intermediate rows."""
        right = all(one.answers == self.expected for one in self.runs.values())
        return right and self.intermediate_ratio <= 1 + TOLERANCE

    def document(self) -> dict[str, object]:
        """All values."""
        return asdict(self) | {
            "intermediate_ratio": self.intermediate_ratio,
            "throughput_ratio": self.throughput_ratio,
        }


def run(spark: SparkSession, options: OrdersOptions, report: Callable[[str], None]) -> OrdersResult:
    """Let the query run from both starts, batch by batch in turn."""
    machine, folder = this_machine(), options.work / "orders"
    shutil.rmtree(folder, ignore_errors=True)
    streams = options.setting.streams(options.batches * BATCH)
    _write(streams, folder / "input", options.batches)
    report(f"{options.batches} batches from each start, in turn")
    turnstile = Turnstile(len(ORDERS))
    running: list[Run] = []
    counts = [_Count(turnstile, who) for who in range(len(ORDERS))]
    try:
        for order, count in zip(ORDERS.values(), counts, strict=True):
            running.append(_start(spark, options, folder, order, count))
        _await_all(running, turnstile)
    finally:
        turnstile.close()
        for one in running:
            one.stop()
    runs = {
        name: _started(options, one, ORDERS[name], seconds, count.rows)
        for name, one, seconds, count in zip(ORDERS, running, turnstile.seconds, counts, strict=True)
    }
    expected = expected_answers(streams, options.setting.window, options.batches * BATCH)
    shutil.rmtree(folder)
    return OrdersResult(options, machine, runs, expected)


@dataclass(slots=True)
class _Count:
    """Counts the answers of a run, in its turns."""

    turnstile: Turnstile
    who: int
    rows: int = 0

    def take(self, answer: DataFrame, _: int) -> None:
        """Count an answer of the query: its `foreachBatch` function."""
        self.turnstile.pass_through(self.who)
        self.rows += answer.count()


def _start(spark: SparkSession, options: OrdersOptions, folder: Path, order: str, count: _Count) -> Run:
    checkpoint = folder / f"checkpoint-{count.who}"
    engine = Engine(spark, checkpoint, options.processors, policies=[AutoMigrate()])
    for name in STREAMS:
        path = str(folder / "input" / name)
        stream = spark.readStream.schema(spark.read.parquet(path).schema).option("maxFilesPerTrigger", 1).parquet(path)
        engine.register(name, stream, time="ts", lateness="0 seconds")
    query = engine.sql(options.setting.query, joins=order)
    return query.writeStream.trigger(availableNow=True).foreachBatch(count.take).start()


def _write(streams: Mapping[str, Stream], folder: Path, batches: int) -> None:
    """Write a file of each stream per batch; modification times ascend with the batches."""
    for name, stream in streams.items():
        (folder / name).mkdir(parents=True)
        for batch in range(batches):
            path = folder / name / f"{batch:05d}.parquet"
            pq.write_table(stream.between(batch * BATCH, (batch + 1) * BATCH), path)
            os.utime(path, (batch + 1, batch + 1))


def _await_all(running: Sequence[Run], turnstile: Turnstile) -> None:
    left = set(range(len(running)))
    while left:
        for who in [who for who in left if not running[who].isActive]:
            left.discard(who)
            turnstile.leave(who)
            failure = running[who].exception()
            if failure is not None:
                raise failure
        time.sleep(POLL_SECONDS)


def _started(options: OrdersOptions, run: Run, order: str, seconds: Sequence[float], answers: int) -> Started:
    batches = run.batches_since()
    if len(batches) != options.batches:
        raise BenchmarkError(f"bench orders: {len(batches)} batches of {options.batches} are known of the run")
    migrated = [
        (sum(batch.ended <= event.time for batch in batches), event.details["after"])
        for event in run.events
        if event.kind == EventKind.MIGRATE
    ]
    return Started(
        started=order,
        seconds=tuple(seconds[: options.batches]),
        intermediate=tuple(_intermediate(batch.step) for batch in batches),
        answers=answers,
        migrated=tuple(migrated),
        ended=migrated[-1][1] if migrated else order,
    )


def _intermediate(step: Progress) -> int:
    """Rows that joins made in a step for other joins, without those of a shadow."""
    made = 0
    for operator in step.operators:
        inputs = operator.name.removeprefix("join of ").split(", ")
        if len(inputs) < len(STREAMS) and not inputs[0].startswith(RESERVED):
            made += operator.results
    return made


def table(result: OrdersResult) -> Table:
    """The result for a terminal."""
    last = result.options.last
    caption = (
        f"in the last {last} batches the worst start has {result.throughput_ratio:.2f}x the throughput of the best and "
        f"{result.intermediate_ratio:.2f}x its intermediate rows; {result.expected:,} answers\n{result.machine}"
    )
    shown = Table(title="four streams on three keys, started in their worst order and in their best", caption=caption)
    for heading in ("started in", "goes on in"):
        shown.add_column(heading)
    for heading in ("rows at first", f"last {last}", "seconds at first", f"last {last}", "answers"):
        shown.add_column(heading, justify="right")
    for one in result.runs.values():
        steps = ", ".join(f"{order} after batch {batch}" for batch, order in one.migrated) or "the same"
        first, rest = one.intermediate[:last], one.intermediate[-last:]
        shown.add_row(one.started, steps, f"{mean(first):,.0f}", f"{mean(rest):,.0f}",
                      f"{median(one.seconds[:last]):.2f}", f"{median(one.seconds[-last:]):.2f}",
                      f"{one.answers:,}" + ("" if one.answers == result.expected else " (wrong)"))  # fmt: skip
    return shown
