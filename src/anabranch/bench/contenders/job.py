"""Jobs and outcomes: the two documents that pass between a benchmark and the child process that runs one engine.

A `Job` goes in and an `Outcome` comes back, both as one line of JSON, so every engine starts in a fresh
interpreter with a fresh JVM: no engine inherits another's warm code, heap or caches, and the peak memory of
a process tree belongs to one engine only.

Steady state is the median over the batches after the first two, which pay for class loading, code
generation and the start of Python workers. A run that is too short for that gives up the second batch, then
the first. Batches without input (Spark appends one to advance its watermark) count towards the total time
only.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from anabranch.errors import BenchmarkError

ANABRANCH = "anabranch"
SPARK = "spark"
SPARK_ROCKSDB = "spark-rocksdb"
CONTENDERS = (ANABRANCH, SPARK, SPARK_ROCKSDB)
# Those of GROUPBY: Spark's arbitrary stateful operator in Python, and its built-in windows, whose answer is another.
TRANSFORM = "transform"
WINDOWS = "windows"
GROUPBY_CONTENDERS = (ANABRANCH, TRANSFORM, WINDOWS)
# Those of SHARED: one query, two that share its join, and two that differ in a condition and so cannot.
TWO = "two-queries"
TWO_APART = "two-apart"
SHARED_CONTENDERS = (ANABRANCH, TWO, TWO_APART)
SINKS = ("noop", "parquet")

# Queries: all streams joined on one key, four streams on three, aggregates of one stream over a window; or the first,
# and another query over the same join.
MULTIWAY = "multiway"
CHAIN = "chain"
GROUPBY = "groupby"
SHARED = "shared"

WARMUP_BATCHES = 2


@dataclass(frozen=True, slots=True)
class Job:
    """One run of one engine over a generated input. Times are in seconds; `lateness=None` keeps all state."""

    contender: str
    input: str
    scratch: str
    streams: tuple[str, ...]
    window: int | None = None
    lateness: int | None = None
    sink: str = "noop"
    processors: int = 2
    cores: int = 2
    groups: int | None = None
    driver_memory: str = "6g"
    tuned: bool = False
    query: str = MULTIWAY
    memory: str | None = None

    def to_json(self) -> str:
        """The job as one line."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Job:
        """Read back what `to_json` wrote."""
        fields: dict[str, Any] = json.loads(text)
        return Job(**{**fields, "streams": tuple(fields["streams"])})


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch as the engine's progress reported it; `results` is None if the sink does not count."""

    rows: int
    milliseconds: int
    results: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a job: `seconds` from start() of the query to its end, and every batch.

    `checksum` is a sum of row hashes of the output, which its order does not change; only the parquet sink has one.
    `state_bytes` is the size of Anabranch's state, spilled state included, after the batch in which it was largest.
    """

    seconds: float
    batches: tuple[Batch, ...]
    results: int
    checksum: str | None = None
    state_bytes: int = 0

    def to_json(self) -> str:
        """The outcome as one line."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Outcome:
        """Read back what `to_json` wrote."""
        fields: dict[str, Any] = json.loads(text)
        return Outcome(**{**fields, "batches": tuple(Batch(**batch) for batch in fields["batches"])})

    @property
    def filled_batches(self) -> tuple[Batch, ...]:
        """The batches that had input."""
        return tuple(batch for batch in self.batches if batch.rows > 0)

    @property
    def rows(self) -> int:
        """Rows read in all batches."""
        return sum(batch.rows for batch in self.batches)

    @property
    def rows_per_second(self) -> float:
        """Throughput of the whole run, the first batches included."""
        return self.rows / self.seconds

    @property
    def steady_batches(self) -> tuple[Batch, ...]:
        """The filled batches after warm-up; of a very short run, the last one."""
        filled = self.filled_batches
        if not filled:
            raise BenchmarkError("the run read no rows: its progress reports no batch with input")
        return filled[min(WARMUP_BATCHES, len(filled) - 1) :]

    @property
    def steady_milliseconds(self) -> float:
        """Median time per batch in steady state."""
        return median(batch.milliseconds for batch in self.steady_batches)

    @property
    def steady_rows_per_second(self) -> float:
        """Median throughput per batch in steady state."""
        return median(1000 * batch.rows / max(1, batch.milliseconds) for batch in self.steady_batches)
