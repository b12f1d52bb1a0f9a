"""The story of a run so far: one entry per batch, and sums over all of them.

It is filled from the progress of batches (`observe/progress`), so that all views of a run start from the same numbers.
Rows that are answered beside batches, by clean-up and at the end of the input, come with events. Rows and results are
those of this run; totals over all runs are in the checkpoint.

Rows per second are per second that passes on the clock, waiting included: they never exceed the rate of the source.
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
# The detail of an event that has the number of rows that were answered beside the batches.
ANSWERED_IN = {EventKind.END: "results", EventKind.CLEAN_UP: "answered"}


@dataclass(frozen=True, slots=True)
class ProcessorSummary:
    """The state of one processor after a batch, and its work in the batch; `owed` is None if it cannot be estimated."""

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
class BatchSummary:
    """One batch. `rows` counts what the sources delivered; late and rejected rows are among them.

    `results` are rows of the answer; None if a residual predicate was applied and the rows after it were not counted.
    `started` is in seconds since 1970, `watermarks` are in microseconds, by alias.
    """

    number: int
    rows: int
    results: int | None
    late: int
    rejected: int
    started: float
    seconds: float
    processors: tuple[ProcessorSummary, ...]
    watermarks: Mapping[str, int | None] = field(default_factory=dict)
    operators: tuple[OperatorProgress, ...] = ()
    diffused: tuple[DiffusedGroups, ...] = ()

    @property
    def copied(self) -> int:
        """Rows that were received more than once, since their groups are diffused."""
        return sum(operator.copied for operator in self.operators)

    @property
    def ended(self) -> float:
        """The end of the batch, in seconds since 1970."""
        return self.started + self.seconds

    @property
    def combinations(self) -> int:
        """The combinations of rows that the join produced, before the residual predicate."""
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
    """Rows per second; 0 if no time has passed."""
    return rows / elapsed if elapsed > 0 else 0.0


def batch_summary(batch: BatchProgress) -> BatchSummary:
    """Sum up the progress of a batch."""
    step = batch.step
    return BatchSummary(
        number=batch.number,
        rows=batch.rows,
        results=step.output_rows if step.output_rows >= 0 else None,
        late=sum(entry.late for entry in step.inputs),
        rejected=sum(entry.rejected for entry in step.inputs),
        started=batch.started,
        seconds=batch.seconds,
        processors=processor_summaries(step),
        watermarks={entry.alias: entry.watermark for entry in step.inputs},
        operators=step.operators,
        diffused=step.diffused,
    )


def processor_summaries(step: Progress) -> tuple[ProcessorSummary, ...]:
    """Sum up the processors after a step."""
    return tuple(
        ProcessorSummary(
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
    """The batches of a run in order, and sums over them. `expected_rows` is set only if the input is generated.

    `results` is None if they were not counted in some batch. `processors` are those after the last step, with a batch
    or without; `spills` says whether any has spilled so far. `events` counts events by kind.
    """

    expected_rows: int | None = None
    batches: deque[BatchSummary] = field(default_factory=lambda: deque(maxlen=KEPT_BATCHES))
    processors: tuple[ProcessorSummary, ...] = ()
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
    def last(self) -> BatchSummary | None:
        """The newest batch, if there is one."""
        return self.batches[-1] if self.batches else None

    def add(self, batch: BatchSummary) -> bool:
        """Add a batch; False if it, or a later one, has been added before."""
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

    def see(self, processors: tuple[ProcessorSummary, ...]) -> None:
        """Replace the processors by their present state."""
        self.processors = processors
        self.spills = self.spills or any(entry.spilled_rows or entry.owing_groups for entry in processors)

    def add_event(self, event: Event) -> None:
        """Count an event, and the rows that it says were answered: at the end of the input, and by clean-up."""
        self.events[event.kind] += 1
        answered = event.details.get(ANSWERED_IN.get(event.kind, ""))
        if answered is not None:
            # -1 if they were not counted
            self.results = None if self.results is None or answered < 0 else self.results + answered

    @property
    def median_seconds(self) -> float:
        """Median batch time of the batches kept, those without input left out."""
        filled = [batch.seconds for batch in self.batches if batch.rows] or [batch.seconds for batch in self.batches]
        return median(filled) if filled else 0.0

    @property
    def recent_rate(self) -> float:
        """Rows per second in the last seconds before the newest batch ended, pauses between batches included.

        The rows of a batch have come since the one before, so time is counted from the end of that one. A long pause
        counts only in part. A run's first batch takes longest, and counts only until there is a second one.
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
