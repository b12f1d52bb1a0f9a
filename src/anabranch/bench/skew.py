"""`anabranch bench skew`: a join with a hot key, hash partitioned, diffused, and as Spark's own join.

Two inputs (`inputs/skewed`): half of both streams on one key, and Nexmark's bids and auctions with hot bidders made a
thousand times hotter. Each is joined over a sliding window three times: by Anabranch without a policy, so that all rows
of a key are on one processor; by Anabranch with the policy `Diffusion`, on as many processors; and by Spark's own
stream-stream join with as many partitions. They run abreast in one Spark, batch by batch in turn
(`experiments/rig/abreast`), so that other load on the machine meets all.

Counts decide. All give as many answers as the input has pairs. In the last batches, by the rows that processors worked
on and the results that they gave, the busiest processor has at most `EVEN` times the mean with diffusion, and on the
first input more than `UNEVEN` times without. Throughput is reported beside it: how much faster the last batches are
than without diffusion, which is bounded by the cores of the machine, and than Spark's.
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
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from rich.table import Table

from anabranch.api.engine import Engine
from anabranch.api.run import Run
from anabranch.bench.experiments.rig.abreast import Turnstile
from anabranch.bench.inputs.skewed import INPUTS, SkewedInput
from anabranch.bench.machine import Machine, this_machine
from anabranch.errors import BenchmarkError, ConfigError, did_you_mean
from anabranch.manager.policies.diffusion import Diffusion
from anabranch.manager.snapshot import Policy
from anabranch.observe.events import EventKind

HASHED, DIFFUSED, SPARK = "hash partitioned", "diffused", "Spark's join"
VARIANTS = (HASHED, DIFFUSED, SPARK)
# The input of which one processor has most, for certain, if nobody spreads it.
CERTAIN = "half"
EVEN, UNEVEN = 1.3, 2.0
POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class SkewOptions:
    """Options of the benchmark: `rows` of both streams per batch, the number of batches, the window in seconds (a batch
    is one), and the number of `last` batches that count."""

    work: Path
    inputs: tuple[str, ...] = tuple(INPUTS)
    rows: int = 6_000
    batches: int = 16
    window: int = 1
    last: int = 8
    processors: int = 4
    seed: int = 1

    def __post_init__(self) -> None:
        """Refuse options that cannot be run, before anything starts."""
        for name, least in (("rows", 3), ("batches", 1), ("window", 1), ("last", 1), ("processors", 2)):
            if getattr(self, name) < least:
                raise ConfigError(f"bench skew: {name} must be at least {least}, not {getattr(self, name)}")
        if self.last > self.batches:
            raise ConfigError(f"bench skew: the last {self.last} of {self.batches} batches cannot count")
        for name in self.inputs:
            if name not in INPUTS:
                raise ConfigError(f"bench skew: unknown input {name!r}; {did_you_mean(name, list(INPUTS))}")


@dataclass(frozen=True, slots=True)
class Joined:
    """The measurements of one way to join an input: per batch the seconds of its turn, the busiest processor's work by
    the mean of all, and the rows that were received more than once; its answers, and how often groups were diffused or
    gathered.

    The work of the partitions of Spark's own join is not measured.
    """

    seconds: tuple[float, ...]
    answers: int
    busiest: tuple[float, ...] = ()
    copied: tuple[int, ...] = ()
    diffused: int = 0
    gathered: int = 0


@dataclass(frozen=True, slots=True)
class InputResult:
    """The outcome for one input: `last` batches count."""

    input: str
    expected: int
    last: int
    variants: Mapping[str, Joined]

    def busiest(self, variant: str) -> float:
        """The busiest processor's work by the mean, on average over the last batches."""
        return mean(self.variants[variant].busiest[-self.last :])

    def speedup(self, over: str) -> float:
        """The speed of diffusion over that of another way, by all of the last batches."""
        theirs, ours = (sum(self.variants[name].seconds[-self.last :]) for name in (over, DIFFUSED))
        return theirs / ours

    @property
    def hold(self) -> bool:
        """Whether all answers are right, and work is even with diffusion, and uneven without where it has to be."""
        right = all(one.answers == self.expected for one in self.variants.values())
        skewed = self.input != CERTAIN or self.busiest(HASHED) > UNEVEN
        return right and skewed and self.busiest(DIFFUSED) <= EVEN


@dataclass(frozen=True, slots=True)
class SkewResult:
    """The outcome for all inputs."""

    options: SkewOptions
    machine: Machine
    inputs: tuple[InputResult, ...]

    @property
    def hold(self) -> bool:
        """Whether the claims on counts hold for every input."""
        return all(result.hold for result in self.inputs)

    def document(self) -> dict[str, object]:
        """All values."""
        summary = {
            result.input: {
                "busiest": {name: result.busiest(name) for name in (HASHED, DIFFUSED)},
                "speedup": {name: result.speedup(name) for name in (HASHED, SPARK)},
                "hold": result.hold,
            }
            for result in self.inputs
        }
        return asdict(self) | {"summary": summary}


def run(spark: SparkSession, options: SkewOptions, report: Callable[[str], None]) -> SkewResult:
    """Join every input in every way, batch by batch in turn."""
    machine = this_machine()
    results = []
    for name in options.inputs:
        skewed = INPUTS[name](options.rows, options.batches, options.seed)
        report(f"{skewed.name}: {options.batches} batches of each, in turn")
        results.append(_run_input(spark, options, name, skewed))
    return SkewResult(options, machine, tuple(results))


def _run_input(spark: SparkSession, options: SkewOptions, name: str, skewed: SkewedInput) -> InputResult:
    folder = options.work / "skew" / name
    shutil.rmtree(folder, ignore_errors=True)
    _write(skewed, folder / "input", options.batches)
    turnstile = Turnstile(len(VARIANTS))
    counts = [_Count(turnstile, who) for who in range(len(VARIANTS))]
    hashed, diffused, spark_join = counts
    running: list[Run | StreamingQuery] = []
    try:
        runs = [
            _start(spark, options, skewed, folder, hashed),
            _start(spark, options, skewed, folder, diffused, [Diffusion()]),
        ]
        running += runs
        running.append(_start_spark(spark, options, skewed, folder, spark_join))
        _await_all(running, turnstile)
    finally:
        turnstile.close()
        for one in running:
            one.stop()
    seconds = [tuple(each[: options.batches]) for each in turnstile.seconds]
    variants = {
        variant: _joined(options, one, count.rows, taken)
        for variant, one, count, taken in zip((HASHED, DIFFUSED), runs, counts, seconds, strict=False)
    }
    variants[SPARK] = Joined(seconds[-1], spark_join.rows)
    shutil.rmtree(folder)
    return InputResult(name, skewed.pairs(options.window), options.last, variants)


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


def _start(
    spark: SparkSession,
    options: SkewOptions,
    skewed: SkewedInput,
    folder: Path,
    count: _Count,
    policies: Sequence[Policy] = (),
) -> Run:
    engine = Engine(spark, folder / f"checkpoint-{count.who}", options.processors, policies=policies)
    for name in skewed.streams:
        engine.register(name, _stream(spark, folder, name), time="ts", lateness="0 seconds")
    left, right = skewed.streams
    window = f"[RANGE {options.window} SECONDS]"
    query = engine.sql(
        f"SELECT {left}.{skewed.key}, {left}.v, {right}.v AS w FROM {left} {window}, {right} {window} "
        f"WHERE {left}.{skewed.key} = {right}.{skewed.key}"
    )
    return query.writeStream.trigger(availableNow=True).foreachBatch(count.take).start()


def _start_spark(
    spark: SparkSession, options: SkewOptions, skewed: SkewedInput, folder: Path, count: _Count
) -> StreamingQuery:
    """Spark's own join of the same files, with as many partitions as there are processors."""
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", str(options.processors))
    left, right = (
        _stream(session, folder, name).withWatermark("ts", "0 seconds").alias(name) for name in skewed.streams
    )
    first, second = skewed.streams
    window = F.expr(f"INTERVAL {options.window} SECONDS")
    near = F.col(f"{first}.ts").between(F.col(f"{second}.ts") - window, F.col(f"{second}.ts") + window)
    same = F.col(f"{first}.{skewed.key}") == F.col(f"{second}.{skewed.key}")
    answer = left.join(right, same & near).select(
        f"{first}.{skewed.key}", f"{first}.v", F.col(f"{second}.v").alias("w")
    )
    writer = answer.writeStream.trigger(availableNow=True).option("checkpointLocation", str(folder / "spark"))
    return writer.foreachBatch(count.take).start()


def _stream(spark: SparkSession, folder: Path, name: str) -> DataFrame:
    path = str(folder / "input" / name)
    return spark.readStream.schema(spark.read.parquet(path).schema).option("maxFilesPerTrigger", 1).parquet(path)


def _write(skewed: SkewedInput, folder: Path, batches: int) -> None:
    """A file of each stream per batch, the older the earlier."""
    for name in skewed.streams:
        (folder / name).mkdir(parents=True)
        for batch in range(batches):
            path = folder / name / f"{batch:05d}.parquet"
            pq.write_table(skewed.batch(name, batch), path)
            os.utime(path, (batch + 1, batch + 1))


def _await_all(running: Sequence[Run | StreamingQuery], turnstile: Turnstile) -> None:
    left = set(range(len(running)))
    while left:
        for who in [who for who in left if not running[who].isActive]:
            left.discard(who)
            turnstile.leave(who)
            failure = running[who].exception()
            if failure is not None:
                raise failure
        time.sleep(POLL_SECONDS)


def _joined(options: SkewOptions, run: Run, answers: int, seconds: tuple[float, ...]) -> Joined:
    batches = run.batches_since()
    if len(batches) != options.batches:
        raise BenchmarkError(f"bench skew: {len(batches)} batches of {options.batches} are known of the run")
    work = [[entry.rows + entry.results for entry in batch.step.processors] for batch in batches]
    kinds = [event.kind for event in run.events]
    return Joined(
        seconds,
        answers,
        tuple(max(each) / max(mean(each), 1e-9) for each in work),
        tuple(batch.step.copied for batch in batches),
        kinds.count(EventKind.DIFFUSE),
        kinds.count(EventKind.GATHER),
    )


def table(result: SkewResult) -> Table:
    """The result for a terminal."""
    options = result.options
    lines = [
        f"{one.input}: with diffusion {one.speedup(HASHED):.2f}x the throughput of hash partitioning, "
        f"{one.speedup(SPARK):.2f}x that of Spark's join"
        for one in result.inputs
    ]
    shown = Table(
        title=f"joins with a hot key, {options.rows:,} rows a batch, {options.processors} processors",
        caption="\n".join([*lines, f"by the last {options.last} of {options.batches} batches", str(result.machine)]),
    )
    for heading in ("input", "join"):
        shown.add_column(heading)
    for heading in ("busiest / mean", "rows copied", "diffused", "gathered", "seconds", "answers"):
        shown.add_column(heading, justify="right")
    for one in result.inputs:
        for name, joined in one.variants.items():
            shown.add_row(one.input, name, *_cells(one, name, joined))
        shown.add_section()
    return shown


def _cells(result: InputResult, name: str, joined: Joined) -> tuple[str, ...]:
    seconds = f"{median(joined.seconds[-result.last :]):.2f}"
    answers = f"{joined.answers:,}" + ("" if joined.answers == result.expected else " (wrong)")
    if not joined.busiest:
        return ("-", "-", "-", "-", seconds, answers)
    copied = f"{mean(joined.copied[-result.last :]):,.0f}"
    return (f"{result.busiest(name):.2f}", copied, str(joined.diffused), str(joined.gathered), seconds, answers)
