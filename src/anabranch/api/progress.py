"""The progress of a run's steps, made from their results, and joined with Spark's progress of the batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from pyspark.sql.streaming.listener import StreamingQueryProgress

from anabranch.observe.progress import (
    BatchProgress,
    InputProgress,
    ManagerProgress,
    OperatorProgress,
    ProcessorProgress,
    Progress,
    QueryProgress,
    Totals,
    as_dict,
)
from anabranch.plan.query import RESERVED
from anabranch.runtime.compile.layout import Layout
from anabranch.runtime.driver.step.result import StepResult

Value = TypeVar("Value")


def progress_of(result: StepResult, lateness: Mapping[str, int]) -> Progress:
    """The progress of a step. `lateness` is in microseconds, by alias, of the inputs that can have late rows."""
    return Progress(
        step=result.step,
        queries=tuple(
            QueryProgress(name, rows, result.totals["results"][name]) for name, rows in result.output_rows.items()
        ),
        inputs=tuple(_inputs(result, lateness)),
        late_joined=sum(report.late_joined for report in result.reports),
        totals=_totals(result),
        processors=tuple(_processors(result)),
        operators=tuple(_operators(result)),
        manager=ManagerProgress(
            result.manager.cpu_seconds * 1000, result.manager.report_bytes, result.manager.memory_bytes
        ),
        diffused=result.diffused,
        exchanged=result.exchanged,
    )


def with_step(
    batch: dict[str, Any], results: Sequence[StepResult], lateness: Mapping[str, int], *, as_of_last: bool
) -> dict[str, Any]:
    """Spark's progress of a batch, with that of the batch's step if that is among the `results`.

    Totals and processors are those after this step or, `as_of_last`, after the last one.
    """
    progress = _step_of(batch["batchId"], results, lateness)
    if progress is not None:
        if as_of_last:
            progress = progress.as_of(progress_of(results[-1], lateness))
        batch.setdefault("sink", {})["numOutputRows"] = progress.output_rows
        batch["anabranch"] = as_dict(progress)
    return batch


def batches_of(
    spark: Iterable[StreamingQueryProgress],
    results: Sequence[StepResult],
    lateness: Mapping[str, int],
    number: int,
) -> list[BatchProgress]:
    """The batches in Spark's progress after batch `number`, if their steps are among the `results`.

    Entries that Spark adds while it is idle have no step.
    """
    batches = []
    for entry in spark:
        step = _step_of(entry.batchId, results, lateness) if entry.batchId > number else None
        if step is not None:
            started = datetime.fromisoformat(entry.timestamp).timestamp()
            seconds = entry.durationMs.get("triggerExecution", 0) / 1000
            batches.append(BatchProgress(entry.batchId, entry.numInputRows, started, seconds, step))
    return batches


def lateness_of(layout: Layout) -> dict[str, int]:
    """The lateness, by alias, of the inputs that can have late rows."""
    inputs = zip(layout.inputs, layout.sources, strict=True)
    return {entry.label: source.lateness for entry, source in inputs if source.lateness is not None}


def groups(result: StepResult) -> list[dict[str, Any]]:
    """The partition groups that have state after a step: a dict for each processor, operator and group."""
    return [
        {"processor": processor, "operator": operator, "group": group, **numbers}
        for processor, operators in enumerate(result.groups)
        for operator, states in operators.items()
        for group, numbers in states.items()
    ]


def _step_of(batch_id: int, results: Sequence[StepResult], lateness: Mapping[str, int]) -> Progress | None:
    result = next((result for result in reversed(results) if result.batch_id == batch_id), None)
    return None if result is None else progress_of(result, lateness)


def _inputs(result: StepResult, lateness: Mapping[str, int]) -> Iterator[InputProgress]:
    received, late, rejected = (
        _sums(getattr(report, name) for report in result.reports) for name in ("received", "late", "rejected")
    )
    for n, (alias, newest) in enumerate(zip(result.labels, result.newest, strict=True)):
        if alias.startswith(RESERVED):
            continue  # rows of a shadow are counted where they are answered
        watermark = None if newest is None or alias not in lateness else newest - lateness[alias]
        yield InputProgress(alias, received[n], late[n], rejected[n], newest, watermark)


def _totals(result: StepResult) -> Totals:
    counts = result.totals
    return Totals(
        combinations=counts["combinations"],
        results=dict(counts["results"]),
        received=_by_alias(result, counts["received"]),
        late=_by_alias(result, counts["late"]),
        rejected=_by_alias(result, counts["rejected"]),
        late_joined=counts["late_joined"],
    )


def _processors(result: StepResult) -> Iterator[ProcessorProgress]:
    for report, use in zip(result.reports, result.memory, strict=True):
        yield ProcessorProgress(
            number=report.processor,
            active_rows=report.active_rows,
            active_bytes=report.active_bytes,
            spilled_rows=report.spilled_rows,
            spilled_bytes=report.spilled_bytes,
            generations=report.generations,
            unspillable_bytes=use.unspillable,
            owing_groups=use.owing_groups,
            owed=use.owed,
            owed_at_most=use.at_most,
            results=sum(report.results),
            held_rows=report.held_rows,
            busy_ms=report.busy_ms,
            cpu_ms=report.cpu_ms,
            idle_ms=max(result.seconds * 1000 - report.busy_ms, 0.0),
            rows=sum(report.worked),
        )


def _operators(result: StepResult) -> Iterator[OperatorProgress]:
    def added_up(name: str) -> list[Any]:
        return _sums(getattr(report, name) for report in result.reports)

    columns = ("worked", "produced", "operator_cpu_ms", "copied")
    numbers = zip(*map(added_up, columns), strict=True)
    for name, (rows, results, cpu_ms, copied) in zip(result.operators, numbers, strict=True):
        yield OperatorProgress(name, rows, results, cpu_ms, copied)


def _sums(counts: Iterable[Sequence[Any]]) -> list[Any]:
    """Sums over processors."""
    return [sum(values) for values in zip(*counts, strict=True)]


def _by_alias(result: StepResult, values: Sequence[Value]) -> dict[str, Value]:
    pairs = zip(result.labels, values, strict=True)
    return {alias: value for alias, value in pairs if not alias.startswith(RESERVED)}
