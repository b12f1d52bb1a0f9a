"""The progress of a run: the work of a step, and the state after it, as one value.

All views of a run read this value. `as_dict` renders it once, as Anabranch's part of `lastProgress` and
`recentProgress`. Programs rely on its keys; their names follow those of Spark. Event times are in microseconds since
1970. The rows of an answer are None, or -1 in one batch, if they were not counted.

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
    """An input: the rows received in this step, late and rejected ones among them, and its newest event time.

    `watermark` is None if no row can be late.
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
    """The state of a processor after a step, and its work in the step, in which its operators worked on so many `rows`.

    It owes about `owed` results; with `owed_at_most` that number is only a bound. Of `active_bytes`,
    `unspillable_bytes` cannot be pushed to disk. `results` are rows that it added to answers, `held_rows` wait.
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
    rows: int = 0


@dataclass(frozen=True, slots=True)
class OperatorProgress:
    """The work of an operator in a step, on all processors together: rows worked on, rows produced, CPU time.

    `copied` counts the rows worked on that another processor received, too, since their group is diffused.
    """

    name: str
    rows: int
    results: int
    cpu_ms: float
    copied: int = 0


@dataclass(frozen=True, slots=True)
class ManagerProgress:
    """What the manager took in a step to decide on adaptations, reading reports included, and what it has in memory."""

    cpu_ms: float = 0.0
    report_bytes: int = 0
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a step: received rows, answered rows, and the state after it, in which groups are `diffused`.

    `exchanged` are the rows that came through the exchange before each of its rounds: rows of streams come through the
    first, those between operators through the others.
    """

    step: int
    queries: tuple[QueryProgress, ...]
    inputs: tuple[InputProgress, ...]
    late_joined: int
    totals: Totals
    processors: tuple[ProcessorProgress, ...]
    operators: tuple[OperatorProgress, ...]
    manager: ManagerProgress = ManagerProgress()
    diffused: tuple[DiffusedGroups, ...] = ()
    exchanged: tuple[int, ...] = ()

    @property
    def copied(self) -> int:
        """Rows that were received more than once in this step, since their groups are diffused."""
        return sum(operator.copied for operator in self.operators)

    @property
    def output_rows(self) -> int:
        """Rows of all answers in this step; -1 if those of one answer were not counted."""
        rows = [query.output_rows for query in self.queries]
        return -1 if -1 in rows else sum(rows)

    def as_of(self, last: Progress) -> Progress:
        """This step with the totals and the processors of the `last` one."""
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

    `rows` are those that the sources delivered. `started` is in seconds since 1970; `seconds` is the time it took.
    """

    number: int
    rows: int
    started: float
    seconds: float
    step: Progress

    @property
    def ended(self) -> float:
        """The end of the batch, in seconds since 1970."""
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
        "manager": {
            "cpuMs": round(progress.manager.cpu_ms, 1),
            "reportBytes": progress.manager.report_bytes,
            "memoryBytes": progress.manager.memory_bytes,
        },
        "diffused": [entry.as_dict() for entry in progress.diffused],
        "exchangedRows": list(progress.exchanged),
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
        "rows": entry.rows,
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
