"""Findings as a picture: a panel per quantity.

Most quantities are lines over the batches of the run, as in the papers: one per variant, or one per variant and
processor. Others are one number per variant, drawn as bars, or curves over the values of a setting. Of repeated runs
the first is drawn. Kinds of experiments have traces of their own, and functions that read these, hence `Any`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.bench.experiments.rig.experiment import Findings
from anabranch.bench.experiments.rig.timing import WARM_UP_BATCHES
from anabranch.bench.experiments.rig.trace import ProcessorMoment, Trace
from anabranch.errors import BenchmarkError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MILLION = 1_000_000
# With more lines than these their names stand beside the picture, not in it.
FEW_LINES = 6
# A line's label, and its value after each batch.
Line = tuple[str, list[float]]


@dataclass(frozen=True, slots=True)
class Lines:
    """A quantity that is drawn over the batches."""

    label: str
    of: Callable[[Any], Iterator[Line]]

    def draw(self, axes: Axes, traces: Sequence[Any]) -> None:
        """Draw a line, or several, of each variant."""
        for trace in traces:
            for label, values in self.of(trace):
                axes.plot(range(1, len(values) + 1), values, label=label, marker=".")
        axes.set_xlabel("batch")
        if len(axes.lines) > FEW_LINES:
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small")
        else:
            axes.legend()


@dataclass(frozen=True, slots=True)
class Bars:
    """A quantity that each variant has one of."""

    label: str
    of: Callable[[Any], float]

    def draw(self, axes: Axes, traces: Sequence[Any]) -> None:
        """Draw a bar for each variant."""
        axes.bar(range(len(traces)), [self.of(trace) for trace in traces])
        axes.set_xticks(range(len(traces)), [trace.name for trace in traces], rotation=20, ha="right")


@dataclass(frozen=True, slots=True)
class Curves:
    """A quantity for each value of a `setting`, with a curve per name."""

    label: str
    setting: str
    of: Callable[[Sequence[Any]], Mapping[str, Mapping[int, float]]]

    def draw(self, axes: Axes, traces: Sequence[Any]) -> None:
        """Draw all curves."""
        curves = self.of(traces)
        for name, curve in curves.items():
            axes.plot(*zip(*sorted(curve.items()), strict=True), label=name, marker="o")
        axes.set_xticks(sorted({value for curve in curves.values() for value in curve}))
        axes.set_xlabel(self.setting)
        axes.legend()


def _one(values: Callable[[Trace], list[float]]) -> Callable[[Trace], Iterator[Line]]:
    """One line per variant."""

    def lines(trace: Trace) -> Iterator[Line]:
        yield trace.name, values(trace)

    return lines


def _each(value: Callable[[ProcessorMoment], float]) -> Callable[[Trace], Iterator[Line]]:
    """One line per variant and processor."""

    def lines(trace: Trace) -> Iterator[Line]:
        for p in range(len(trace.moments[0].processors)):
            yield f"{trace.name}, processor {p}", [value(moment.processors[p]) for moment in trace.moments]

    return lines


def _after_warm_up(values: list[float]) -> list[float]:
    """The values without those of the first batches, which take so long that all others would look flat."""
    return [math.nan] * WARM_UP_BATCHES + values[WARM_UP_BATCHES:]


def _rate(counts: list[int], trace: Trace) -> list[float]:
    return [count / max(seconds, 1e-9) for count, seconds in zip(counts, trace.batch_seconds, strict=True)]


QUANTITIES: dict[str, Lines | Bars] = {
    "results": Lines(
        "results before clean-up, millions", _one(lambda trace: [one.results / MILLION for one in trace.moments])
    ),
    "active_bytes": Lines(
        "active state, MB", _one(lambda trace: [one.active_bytes / MILLION for one in trace.moments])
    ),
    "processor_bytes": Lines("active state, MB", _each(lambda one: one.active_bytes / MILLION)),
    "busy": Lines("busy per batch, s", _each(lambda one: one.busy)),
    "held_rows": Lines(
        "rows in buffers, thousands", _one(lambda trace: [one.held_rows / 1_000 for one in trace.moments])
    ),
    "throughput": Lines("rows/s", _one(lambda trace: _rate(trace.batch_rows, trace))),
    "answers": Lines("results/s", _one(lambda trace: _rate(trace.batch_results, trace))),
    "batch_seconds": Lines("time of a batch, s", _one(lambda trace: _after_warm_up(trace.batch_seconds))),
    "waiting": Lines(
        "rows without answer, thousands",
        _one(lambda trace: [(one.rows - one.results) / 1_000 for one in trace.moments]),
    ),
    "relocations": Bars("relocations", lambda trace: float(len(trace.relocations))),
}


def draw(findings: Findings, quantities: Sequence[str | Lines | Curves], folder: Path) -> Path:
    """Draw a PNG with a panel per quantity; return its path."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BenchmarkError(f"pictures need matplotlib ({error}); pip install 'anabranch[bench]'") from None
    figure = Figure(figsize=(7.0 * len(quantities), 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    traces = [trace for trace in findings.traces if trace.repeat == 0]
    for number, one in enumerate(quantities, start=1):
        axes = figure.add_subplot(1, len(quantities), number)
        quantity = QUANTITIES[one] if isinstance(one, str) else one
        quantity.draw(axes, traces)
        axes.set_ylabel(quantity.label)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    figure.suptitle(findings.experiment)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{findings.experiment}.png"
    figure.savefig(path, dpi=120)
    return path
