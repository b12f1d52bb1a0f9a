"""The story of a run so far, as the terminal tells it: one entry per batch, and sums over all of them.

Filled from the progress that `Run.lastProgress` gives (Spark's, with Anabranch's own part), so that whatever shows a
run, here or elsewhere, starts from the same numbers. Only batches with an Anabranch part count: between batches Spark
also reports that it is idle. Rows and results are those of this run; totals over all runs are in the checkpoint.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

KEPT_BATCHES = 200


@dataclass(frozen=True, slots=True)
class ProcessorSeen:
    """What one processor holds after a batch, and what it did in it."""

    number: int
    rows: int
    bytes: int
    combinations: int
    busy_seconds: float


@dataclass(frozen=True, slots=True)
class BatchSeen:
    """One batch. `rows` counts what the sources delivered; late and rejected rows are among them.

    `results` are rows of the answer; None where nobody counted what a residual predicate left of the combinations.
    """

    number: int
    rows: int
    results: int | None
    late: int
    rejected: int
    seconds: float
    processors: tuple[ProcessorSeen, ...]

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds if self.seconds else 0.0

    @property
    def combinations(self) -> int:
        """What the join found, before the residual predicate."""
        return sum(processor.combinations for processor in self.processors)

    @property
    def state_rows(self) -> int:
        """Rows of active state on all processors."""
        return sum(processor.rows for processor in self.processors)

    @property
    def state_bytes(self) -> int:
        """Bytes of active state on all processors."""
        return sum(processor.bytes for processor in self.processors)


def batch_seen(progress: Mapping[str, Any]) -> BatchSeen | None:
    """The batch that a progress report tells of, or None if it tells of none."""
    ours = progress.get("anabranch")
    if ours is None:
        return None
    answered = progress["sink"]["numOutputRows"]
    return BatchSeen(
        number=progress["batchId"],
        rows=progress["numInputRows"],
        results=answered if answered >= 0 else None,
        late=sum(ours["lateRows"].values()),
        rejected=sum(ours["quarantinedRows"].values()),
        seconds=progress["durationMs"].get("triggerExecution", 0) / 1000,
        processors=tuple(
            ProcessorSeen(
                entry["processor"],
                entry["activeRows"],
                entry["activeBytes"],
                entry["results"],
                entry["busyMs"] / 1000,
            )
            for entry in ours["processors"]
        ),
    )


@dataclass(slots=True)
class Story:
    """Batches in order. `expected_rows` is known only where somebody generated the input.

    `results` is None if they were not counted in some batch.
    """

    expected_rows: int | None = None
    batches: deque[BatchSeen] = field(default_factory=lambda: deque(maxlen=KEPT_BATCHES))
    count: int = 0
    rows: int = 0
    results: int | None = 0
    combinations: int = 0
    late: int = 0
    rejected: int = 0
    peak_bytes: int = 0
    busy: float = 0.0

    @property
    def last(self) -> BatchSeen | None:
        """The newest batch, if there is one."""
        return self.batches[-1] if self.batches else None

    def add(self, batch: BatchSeen) -> bool:
        """Take a batch in; False if it is known already."""
        if self.last is not None and batch.number <= self.last.number:
            return False
        self.batches.append(batch)
        self.count += 1
        self.rows += batch.rows
        self.results = None if self.results is None or batch.results is None else self.results + batch.results
        self.combinations += batch.combinations
        self.late += batch.late
        self.rejected += batch.rejected
        self.peak_bytes = max(self.peak_bytes, batch.state_bytes)
        self.busy += batch.seconds
        return True

    def add_ends(self, answered: list[int]) -> None:
        """What was answered beside the batches: at the end of the input, by clean-up; -1 where nobody counted."""
        for results in answered:
            self.results = None if self.results is None or results < 0 else self.results + results

    @property
    def median_seconds(self) -> float:
        """Median batch time of the batches kept, those without input left out."""
        filled = [batch.seconds for batch in self.batches if batch.rows] or [batch.seconds for batch in self.batches]
        return median(filled) if filled else 0.0

    @property
    def rate(self) -> float:
        """Rows per second over all batches, the slow first ones included."""
        return self.rows / self.busy if self.busy else 0.0
