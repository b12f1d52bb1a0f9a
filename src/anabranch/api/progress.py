"""What a run tells of its steps, in plain values: Anabranch's part of `lastProgress` and `recentProgress`."""

from __future__ import annotations

from typing import Any

from anabranch.runtime.outcome import StepResult


def totals(result: StepResult) -> dict[str, Any]:
    """Totals since the beginning; rows of all answers together, None if nobody counted those of one."""
    results = result.totals["results"].values()
    return {**result.totals, "results": None if None in results else sum(results)}


def describe(result: StepResult) -> dict[str, Any]:
    """A step."""

    def per_input(name: str) -> dict[str, int]:
        counts = zip(*(getattr(report, name) for report in result.reports), strict=True)
        return {label: sum(values) for label, values in zip(result.labels, counts, strict=True)}

    return {
        "step": result.step,
        "queries": {
            name: {"numOutputRows": rows, "results": result.totals["results"][name]}
            for name, rows in result.output_rows.items()
        },
        "receivedRows": per_input("received"),
        "lateRows": per_input("late"),
        "lateJoinedRows": sum(report.late_joined for report in result.reports),
        "quarantinedRows": per_input("rejected"),
        "newestEventTime": dict(zip(result.labels, result.newest, strict=True)),
        "totals": totals(result),
        "processors": processors(result),
    }


def processors(result: StepResult) -> list[dict[str, Any]]:
    """The processors after a step, and what they did in it."""
    return [
        {
            "processor": report.processor,
            "activeRows": report.active_rows,
            "activeBytes": report.active_bytes,
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
            **({"groups": result.groups[nth]} if result.groups else {}),
        }
        for nth, (report, use) in enumerate(zip(result.reports, result.memory, strict=True))
    ]
