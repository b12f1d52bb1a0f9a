"""The progress of a run: what a step has done, and what there is after it, as one value.

Whoever shows a run reads this value. `as_dict` renders it once, as Anabranch's part of `lastProgress` and
`recentProgress`, whose keys programs rely on; their names follow those that Spark has there. Times of events are in
microseconds since 1970. Rows of an answer are None, or -1 in one batch, where nobody counted them.

Numbers per partition group would fill many screens; `Run.groups` has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from anabranch.observe.diffused import DiffusedGroups


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """A query: rows of its answer in this step, and since it began."""

    name: str
    output_rows: int
    results: int | None


@dataclass(frozen=True, slots=True)
class InputProgress:
    """An input: rows in this step, late and rejected ones among those received, and how far its event time is.

    `watermark` is None where no row can be late.
    """

    alias: str
    received: int
    late: int
    rejected: int
    newest: int | None
    watermark: int | None


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts since the checkpoint began: by query (`results`), by alias, or of all together."""

    combinations: int
    results: Mapping[str, int | None]
    received: Mapping[str, int]
    late: Mapping[str, int]
    rejected: Mapping[str, int]
    late_joined: int


@dataclass(frozen=True, slots=True)
class ProcessorProgress:
    """What a processor holds after a step, and what it did in it.

    It owes about as many results as `owed` says, or `owed_at_most` so many. Of `active_bytes`, `unspillable_bytes`
    cannot be pushed to disk. `results` are rows that it gave to answers, `held_rows` wait.
    """

    number: int
    active_rows: int
    active_bytes: int
    spilled_rows: int
    spilled_bytes: int
    generations: int
    unspillable_bytes: int
    owing_groups: int
    owed: int
    owed_at_most: bool
    results: int
    held_rows: int
    busy_ms: float
    cpu_ms: float
    idle_ms: float


@dataclass(frozen=True, slots=True)
class OperatorProgress:
    """What an operator did in a step, on all processors together: rows it worked on, rows it produced, CPU time.

    Of the rows some were `copied`: another processor received them, too, since their group is diffused.
    """

    name: str
    rows: int
    results: int
    cpu_ms: float
    copied: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """A step: what came, what was answered, and what there is after it; `diffused` are groups that are so after it."""

    step: int
    queries: tuple[QueryProgress, ...]
    inputs: tuple[InputProgress, ...]
    late_joined: int
    totals: Totals
    processors: tuple[ProcessorProgress, ...]
    operators: tuple[OperatorProgress, ...]
    diffused: tuple[DiffusedGroups, ...] = ()

    @property
    def copied(self) -> int:
        """Rows that were received more than once in this step, since their groups are diffused."""
        return sum(operator.copied for operator in self.operators)

    @property
    def output_rows(self) -> int:
        """Rows of all answers in this step; -1 if nobody counted those of one."""
        rows = [query.output_rows for query in self.queries]
        return -1 if -1 in rows else sum(rows)

    def as_of(self, last: Progress) -> Progress:
        """This step as it looks after the `last` one: totals and processors are as they are now."""
        return replace(
            self,
            queries=tuple(
                replace(query, results=last.totals.results.get(query.name, query.results)) for query in self.queries
            ),
            totals=last.totals,
            processors=last.processors,
            operators=last.operators,
            diffused=last.diffused,
        )


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """A batch of Spark's and the step that it became.

    `rows` are those that the sources delivered. It `started` so many seconds after 1970 and took so many `seconds`.
    """

    number: int
    rows: int
    started: float
    seconds: float
    step: Progress

    @property
    def ended(self) -> float:
        """When it was done, in seconds since 1970."""
        return self.started + self.seconds


def as_dict(progress: Progress) -> dict[str, Any]:
    """Anabranch's part of `lastProgress`: counts of inputs are dicts by alias, those of answers by query."""
    inputs = progress.inputs
    return {
        "step": progress.step,
        "queries": {
            query.name: {"numOutputRows": query.output_rows, "results": query.results} for query in progress.queries
        },
        "receivedRows": {entry.alias: entry.received for entry in inputs},
        "lateRows": {entry.alias: entry.late for entry in inputs},
        "lateJoinedRows": progress.late_joined,
        "quarantinedRows": {entry.alias: entry.rejected for entry in inputs},
        "newestEventTime": {entry.alias: entry.newest for entry in inputs},
        "watermark": {entry.alias: entry.watermark for entry in inputs},
        "totals": _totals(progress.totals),
        "processors": [_processor(entry) for entry in progress.processors],
        "operators": [_operator(entry) for entry in progress.operators],
        "diffused": [entry.as_dict() for entry in progress.diffused],
    }


def _totals(totals: Totals) -> dict[str, Any]:
    return {
        "combinations": totals.combinations,
        "results": dict(totals.results),
        "received": dict(totals.received),
        "late": dict(totals.late),
        "rejected": dict(totals.rejected),
        "late_joined": totals.late_joined,
    }


def _processor(entry: ProcessorProgress) -> dict[str, Any]:
    return {
        "processor": entry.number,
        "activeRows": entry.active_rows,
        "activeBytes": entry.active_bytes,
        "spilledRows": entry.spilled_rows,
        "spilledBytes": entry.spilled_bytes,
        "generations": entry.generations,
        "unspillableBytes": entry.unspillable_bytes,
        "owingGroups": entry.owing_groups,
        "owedResults": entry.owed,
        "owedResultsAre": "at most" if entry.owed_at_most else "about",
        "results": entry.results,
        "heldRows": entry.held_rows,
        "busyMs": round(entry.busy_ms, 1),
        "cpuMs": round(entry.cpu_ms, 1),
        "idleMs": round(entry.idle_ms, 1),
    }


def _operator(entry: OperatorProgress) -> dict[str, Any]:
    return {
        "operator": entry.name,
        "rows": entry.rows,
        "results": entry.results,
        "cpuMs": round(entry.cpu_ms, 1),
        "copiedRows": entry.copied,
    }
