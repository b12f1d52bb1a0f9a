"""The story of a run so far, as the terminal tells it: one entry per batch, and sums over all of them.

Filled from the progress of batches (`observe/progress`), so that whatever shows a run, here or elsewhere, starts from
the same numbers. What is answered beside batches, by clean-up and at the end of the input, comes with events. Rows and
results are those of this run; totals over all runs are in the checkpoint.

Rows per second are per second that passes on the clock, waiting included: what a source delivers is not exceeded.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from anabranch.observe.diffused import DiffusedGroups
from anabranch.observe.events import Event, EventKind
from anabranch.observe.progress import BatchProgress, OperatorProgress, Progress

KEPT_BATCHES = 200
RECENT_SECONDS = 10.0
# The detail of an event that says how many rows were answered beside the batches.
ANSWERED_IN = {EventKind.END: "results", EventKind.CLEAN_UP: "answered"}


@dataclass(frozen=True, slots=True)
class ProcessorView:
    """What one processor holds after a batch, and what it did in it; `owed` is None if nobody can tell."""

    number: int
    rows: int
    bytes: int
    combinations: int
    busy_seconds: float
    spilled_rows: int = 0
    spilled_bytes: int = 0
    owing_groups: int = 0
    owed: int | None = 0


@dataclass(frozen=True, slots=True)
class BatchSeen:
    """One batch. `rows` counts what the sources delivered; late and rejected rows are among them.

    `results` are rows of the answer; None where nobody counted what a residual predicate left of the combinations.
    `started` is in seconds since 1970, `watermarks` are in microseconds, by alias.
    """

    number: int
    rows: int
    results: int | None
    late: int
    rejected: int
    started: float
    seconds: float
    processors: tuple[ProcessorView, ...]
    watermarks: Mapping[str, int | None] = field(default_factory=dict)
    operators: tuple[OperatorProgress, ...] = ()
    diffused: tuple[DiffusedGroups, ...] = ()

    @property
    def copied(self) -> int:
        """Rows that were received more than once, since their groups are diffused."""
        return sum(operator.copied for operator in self.operators)

    @property
    def ended(self) -> float:
        """When it was done, in seconds since 1970."""
        return self.started + self.seconds

    @property
    def combinations(self) -> int:
        """What the join found, before the residual predicate."""
        return sum(processor.combinations for processor in self.processors)

    @property
    def intermediate(self) -> int:
        """Rows that operators made for other operators: all but those for answers."""
        return max(sum(operator.results for operator in self.operators) - self.combinations, 0)

    @property
    def state_rows(self) -> int:
        """Rows of active state on all processors."""
        return sum(processor.rows for processor in self.processors)

    @property
    def state_bytes(self) -> int:
        """Bytes of active state on all processors."""
        return sum(processor.bytes for processor in self.processors)


def per_second(rows: int, elapsed: float) -> float:
    """Rows per second of what took so long."""
    return rows / elapsed if elapsed > 0 else 0.0


def batch_seen(batch: BatchProgress) -> BatchSeen:
    """What there is to show of a batch."""
    step = batch.step
    return BatchSeen(
        number=batch.number,
        rows=batch.rows,
        results=step.output_rows if step.output_rows >= 0 else None,
        late=sum(entry.late for entry in step.inputs),
        rejected=sum(entry.rejected for entry in step.inputs),
        started=batch.started,
        seconds=batch.seconds,
        processors=processors_seen(step),
        watermarks={entry.alias: entry.watermark for entry in step.inputs},
        operators=step.operators,
        diffused=step.diffused,
    )


def processors_seen(step: Progress) -> tuple[ProcessorView, ...]:
    """What there is to show of the processors after a step."""
    return tuple(
        ProcessorView(
            entry.number,
            entry.active_rows,
            entry.active_bytes,
            entry.results,
            entry.busy_ms / 1000,
            entry.spilled_rows,
            entry.spilled_bytes,
            entry.owing_groups,
            entry.owed,
        )
        for entry in step.processors
    )


@dataclass(slots=True)
class Story:
    """Batches in order. `expected_rows` is known only where somebody generated the input.

    `results` is None if they were not counted in some batch. `processors` are as they are now, after the last batch or
    what came after it; `spills` says whether any has spilled so far. `events` counts them by kind.
    """

    expected_rows: int | None = None
    batches: deque[BatchSeen] = field(default_factory=lambda: deque(maxlen=KEPT_BATCHES))
    processors: tuple[ProcessorView, ...] = ()
    spills: bool = False
    events: Counter[EventKind] = field(default_factory=Counter)
    count: int = 0
    rows: int = 0
    results: int | None = 0
    combinations: int = 0
    late: int = 0
    rejected: int = 0
    peak_bytes: int = 0

    @property
    def last(self) -> BatchSeen | None:
        """The newest batch, if there is one."""
        return self.batches[-1] if self.batches else None

    def add(self, batch: BatchSeen) -> bool:
        """Take a batch in; False if it, or a later one, was taken in before."""
        if self.last is not None and batch.number <= self.last.number:
            return False
        self.see(batch.processors)
        self.batches.append(batch)
        self.count += 1
        self.rows += batch.rows
        self.results = None if self.results is None or batch.results is None else self.results + batch.results
        self.combinations += batch.combinations
        self.late += batch.late
        self.rejected += batch.rejected
        self.peak_bytes = max(self.peak_bytes, batch.state_bytes)
        return True

    def see(self, processors: tuple[ProcessorView, ...]) -> None:
        """Take in what the processors are like now."""
        self.processors = processors
        self.spills = self.spills or any(entry.spilled_rows or entry.owing_groups for entry in processors)

    def add_event(self, event: Event) -> None:
        """Count an event, and what was answered beside the batches: at the end of the input, and by clean-up."""
        self.events[event.kind] += 1
        answered = event.details.get(ANSWERED_IN.get(event.kind, ""))
        if answered is not None:
            # -1 where nobody counted
            self.results = None if self.results is None or answered < 0 else self.results + answered

    @property
    def median_seconds(self) -> float:
        """Median batch time of the batches kept, those without input left out."""
        filled = [batch.seconds for batch in self.batches if batch.rows] or [batch.seconds for batch in self.batches]
        return median(filled) if filled else 0.0

    @property
    def recent_rate(self) -> float:
        """Rows per second in the last seconds before the newest batch ended, pauses between batches included.

        What a batch brings has come since the one before, so time is counted from the end of that one; a long pause
        counts only in part, and a run's first batch, which takes longest, only as long as it is alone.
        """
        if not self.batches:
            return 0.0
        batches, last = list(self.batches), self.batches[-1]
        recent = [batch for batch in batches if batch.ended > last.ended - RECENT_SECONDS] or [last]
        if len(batches) == 1:
            return per_second(last.rows, last.seconds)
        before = batches[-len(recent) - 1] if len(recent) < len(batches) else recent.pop(0)
        since = min(recent[0].started, max(before.ended, last.ended - 2 * RECENT_SECONDS))
        return per_second(sum(batch.rows for batch in recent), last.ended - since)
