"""What a run tells of its steps, in plain values: Anabranch's part of `lastProgress` and `recentProgress`.

Counts of inputs are dicts by alias, counts of answers dicts by the name of the query. Numbers per partition group would
fill many screens; they have a function of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.runtime.compile.layout import Layout
from anabranch.runtime.driver.step_result import StepResult


def totals(result: StepResult) -> dict[str, Any]:
    """Totals since the checkpoint began; the rows of an answer are None if nobody counted them in some batch."""
    counts = result.totals
    return {
        "combinations": counts["combinations"],
        "results": dict(counts["results"]),
        **{name: _by_input(result, counts[name]) for name in ("received", "late", "rejected")},
        "late_joined": counts["late_joined"],
    }


def describe(result: StepResult, lateness: Mapping[str, int]) -> dict[str, Any]:
    """A step; `lateness` is in microseconds, of the inputs of which rows can be late, by alias."""

    def added_up(name: str) -> dict[str, Any]:
        counts = zip(*(getattr(report, name) for report in result.reports), strict=True)
        return _by_input(result, [sum(values) for values in counts])

    newest = _by_input(result, result.newest)
    return {
        "step": result.step,
        "queries": {
            name: {"numOutputRows": rows, "results": result.totals["results"][name]}
            for name, rows in result.output_rows.items()
        },
        "receivedRows": added_up("received"),
        "lateRows": added_up("late"),
        "lateJoinedRows": sum(report.late_joined for report in result.reports),
        "quarantinedRows": added_up("rejected"),
        "newestEventTime": newest,
        "watermark": {
            alias: None if time is None or alias not in lateness else time - lateness[alias]
            for alias, time in newest.items()
        },
        "totals": totals(result),
        "processors": processors(result),
    }


def lateness_of(layout: Layout) -> dict[str, int]:
    """The lateness of the inputs of which rows can be late, by alias."""
    inputs = zip(layout.inputs, layout.sources, strict=True)
    return {entry.label: source.lateness for entry, source in inputs if source.lateness is not None}


def processors(result: StepResult) -> list[dict[str, Any]]:
    """The processors after a step, and what they did in it."""
    return [
        {
            "processor": report.processor,
            "activeRows": report.active_rows,
            "activeBytes": report.active_bytes,
            "spilledRows": report.spilled_rows,
            "spilledBytes": report.spilled_bytes,
            "generations": report.generations,
            "unspillableBytes": use.unspillable,
            "owingGroups": use.owing_groups,
            "owedResults": use.owed,
            "owedResultsAre": "at most" if use.at_most else "about",
            "results": sum(report.results),
            "heldRows": report.held_rows,
            "busyMs": round(report.busy_ms, 1),
            "cpuMs": round(report.cpu_ms, 1),
            "idleMs": round(max(result.seconds * 1000 - report.busy_ms, 0.0), 1),
        }
        for report, use in zip(result.reports, result.memory, strict=True)
    ]


def groups(result: StepResult) -> list[dict[str, Any]]:
    """The partition groups that have state after a step: a dict for each processor, operator and group."""
    return [
        {"processor": processor, "operator": operator, "group": group, **numbers}
        for processor, operators in enumerate(result.groups)
        for operator, states in operators.items()
        for group, numbers in states.items()
    ]


def _by_input(result: StepResult, values: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(result.labels, values, strict=True))
