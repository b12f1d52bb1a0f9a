"""The pictures of figures 13 to 16 of paper 3: intermediate rows by batch, and output by batch with its delays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from anabranch.bench.experiments.rig.draw import Curves, Line, Lines
from anabranch.bench.experiments.zhu.parts.trace import MigrationTrace, StepCounts
from anabranch.bench.experiments.zhu.parts.work_clock import WorkClock


def intermediate_rows() -> tuple[Lines]:
    """Intermediate rows of each batch."""
    return (Lines("intermediate rows per batch", _after_first(lambda step: step.intermediate)),)


def output_on(clock: Callable[[Sequence[MigrationTrace]], WorkClock]) -> tuple[Lines, Curves]:
    """The answers to each batch, and their delays on a machine; `clock` makes it from the runs."""
    return (
        Lines("answers per batch", _after_first(lambda step: step.answers)),
        Curves("from a batch's last row to its answer, ms", "event time of the last row, ms", delays_on(clock)),
    )


def _after_first(of: Callable[[StepCounts], float]) -> Callable[[MigrationTrace], Iterator[Line]]:
    """A line per run: a count of each batch, with that of the steps without a batch that came before it.

    The first batch is left out, since it is longer.
    """

    def line(trace: MigrationTrace) -> Iterator[Line]:
        yield trace.name, by_batch(trace, of)[1:]

    return line


def by_batch(trace: MigrationTrace, of: Callable[[StepCounts], float]) -> list[float]:
    """A count of each batch, with that of the steps without a batch that came before it."""
    counts, before = [], 0.0
    for step in trace.steps:
        before += of(step)
        if step.arrived is not None:
            counts.append(before)
            before = 0.0
    return counts


def delays_on(
    clock: Callable[[Sequence[MigrationTrace]], WorkClock],
) -> Callable[[Sequence[MigrationTrace]], dict[str, dict[int, float]]]:
    """Curves of the delay between a batch and its answer, for all batches but the first; `clock` makes the machine from
    the runs."""

    def curves(traces: Sequence[MigrationTrace]) -> dict[str, dict[int, float]]:
        machine = clock(traces)
        return {
            trace.name: {
                arrived: delay for arrived, delay in machine.delays(trace).items() if arrived > trace.setting.window
            }
            for trace in traces
        }

    return curves
