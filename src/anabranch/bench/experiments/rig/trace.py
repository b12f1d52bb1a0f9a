"""The trace of a variant: its numbers batch by batch, read from the progress and the events of its run.

Results are counted per batch. Those of clean-up are counted apart, and so are those of rows that waited for the end of
the input. Memory, load and waiting rows are recorded per processor after every batch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from anabranch.api.run import Run
from anabranch.observe.events import Event, EventKind
from anabranch.observe.numbers import format_bytes
from anabranch.observe.progress import BatchProgress, ProcessorProgress


@dataclass(frozen=True, slots=True)
class ProcessorMoment:
    """A processor after a batch: `busy` are its seconds of work in it, `cpu` those of CPU time; `held_rows` wait in the
    buffer."""

    active_bytes: int = 0
    spilled_bytes: int = 0
    busy: float = 0.0
    held_rows: int = 0
    cpu: float = 0.0


@dataclass(frozen=True, slots=True)
class Moment:
    """A variant after a batch: its seconds, rows of the input and results since the beginning, and all processors."""

    batch: int
    seconds: float
    rows: int
    results: int
    processors: tuple[ProcessorMoment, ...]

    @property
    def active_bytes(self) -> int:
        """Bytes of active state on all processors."""
        return sum(processor.active_bytes for processor in self.processors)

    @property
    def spilled_bytes(self) -> int:
        """Bytes of spilled state on all processors."""
        return sum(processor.spilled_bytes for processor in self.processors)

    @property
    def held_rows(self) -> int:
        """Rows that are held back on all processors."""
        return sum(processor.held_rows for processor in self.processors)

    @property
    def memory_ratio(self) -> float:
        """Ml/Mm, the least used memory over the most used (paper 1, section 5.1)."""
        used = [one.active_bytes for one in self.processors]
        return min(used) / max(*used, 1)


BEFORE = Moment(-1, 0.0, 0, 0, ())


@dataclass(frozen=True, slots=True)
class Relocated:
    """A relocation: its batch, the number of groups, their bytes, and the seconds that the protocol took."""

    batch: int
    groups: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Trace:
    """The trace of a variant, the `repeat`th time. `results` are those before clean-up and before the input's end.

    `last_seconds` pass from the end of the last batch to the end of the run, with clean-up.
    """

    name: str
    moments: tuple[Moment, ...]
    spills: int = 0
    spilled_bytes: int = 0
    relocations: tuple[Relocated, ...] = ()
    over_memory: int | None = None
    clean_up_results: int = 0
    end_results: int = 0
    last_seconds: float = 0.0
    repeat: int = 0

    @property
    def results(self) -> int:
        """Results before clean-up."""
        return self.moments[-1].results if self.moments else 0

    @property
    def all_results(self) -> int:
        """All results, those of clean-up and of the end of the input included."""
        return self.results + self.clean_up_results + self.end_results

    @property
    def run_seconds(self) -> float:
        """The time of all batches."""
        return self.moments[-1].seconds if self.moments else 0.0

    @property
    def clean_up_seconds(self) -> float:
        """The time of clean-up."""
        return self.last_seconds if self.clean_up_results else 0.0

    @property
    def most_active_bytes(self) -> int:
        """The most active state after any batch."""
        return max(moment.active_bytes for moment in self.moments)

    @property
    def batch_seconds(self) -> list[float]:
        """The time of each batch."""
        return [after.seconds - before.seconds for before, after in pairwise((BEFORE, *self.moments))]

    @property
    def batch_rows(self) -> list[int]:
        """The rows of each batch that were worked on: arrived ones, less those that wait in buffers after it."""
        done = [moment.rows - moment.held_rows for moment in (BEFORE, *self.moments)]
        return [after - before for before, after in pairwise(done)]

    @property
    def batch_results(self) -> list[int]:
        """The results of each batch."""
        return [after.results - before.results for before, after in pairwise((BEFORE, *self.moments))]

    def cells(self) -> dict[str, str]:
        """The cells of its row, by column."""
        return {
            "variant": self.name,
            "results": f"{self.results:,}",
            "cleaned up": f"{self.clean_up_results:,}",
            "pushes": str(self.spills),
            "pushed": format_bytes(self.spilled_bytes),
            "moves": str(len(self.relocations)),
            "moved": format_bytes(sum(move.bytes for move in self.relocations)),
            "active": format_bytes(self.most_active_bytes),
            "run": f"{self.run_seconds:.1f} s",
            "rest": f"{self.last_seconds:.1f} s",
        }


def read_trace(
    name: str, run: Run, ended: float, repeat: int = 0, batch_seconds: Sequence[float] | None = None
) -> Trace:
    """The trace of a run that ended at `ended`, by the clock. Without `batch_seconds` they are taken from Spark's
    progress."""
    batches = run.batches_since()
    ends = [batch.ended for batch in batches]
    events = run.events_since()
    spills = _of_kind(events, EventKind.SPILL)
    over = _of_kind(events, EventKind.MEMORY)
    moments = _moments(batches, batch_seconds or [batch.seconds for batch in batches])
    cleaned = sum(event.details["answered"] or 0 for event in _of_kind(events, EventKind.CLEAN_UP))
    everything = sum(rows or 0 for rows in run.progress.totals.results.values()) if run.progress is not None else 0
    return Trace(
        name,
        moments,
        spills=len({event.time for event in spills}),
        spilled_bytes=sum(event.details["bytes"] for event in spills),
        relocations=tuple(_relocated(event, ends) for event in _of_kind(events, EventKind.RELOCATE)),
        over_memory=bisect_left(ends, over[0].time) if over else None,
        clean_up_results=cleaned,
        end_results=everything - cleaned - (moments[-1].results if moments else 0),
        last_seconds=max(ended - ends[-1], 0.0) if ends else 0.0,
        repeat=repeat,
    )


def _moments(batches: Sequence[BatchProgress], batch_seconds: Sequence[float]) -> tuple[Moment, ...]:
    moments: list[Moment] = []
    for batch, seconds in zip(batches, batch_seconds, strict=False):
        step, before = batch.step, moments[-1] if moments else BEFORE
        moments.append(
            Moment(
                before.batch + 1,
                before.seconds + seconds,
                before.rows + sum(entry.received for entry in step.inputs),
                before.results + step.output_rows,
                tuple(_processor(entry) for entry in step.processors),
            )
        )
    return tuple(moments)


def _processor(entry: ProcessorProgress) -> ProcessorMoment:
    return ProcessorMoment(
        entry.active_bytes, entry.spilled_bytes, entry.busy_ms / 1000, entry.held_rows, entry.cpu_ms / 1000
    )


def _relocated(event: Event, ends: Sequence[float]) -> Relocated:
    details = event.details
    return Relocated(bisect_left(ends, event.time), len(details["groups"]), details["bytes"], details["seconds"])


def _of_kind(events: Sequence[Event], kind: EventKind) -> list[Event]:
    return [event for event in events if event.kind == kind]
