"""Findings as a picture: one line per variant over the batches of the run, as the papers have it."""

from __future__ import annotations

from pathlib import Path

from anabranch.bench.experiments.experiment import Findings
from anabranch.errors import BenchmarkError

LABELS = {"results": "results before clean-up, millions", "active_bytes": "active state, MB"}
UNIT = 1_000_000


def draw(findings: Findings, quantities: tuple[str, ...], folder: Path) -> Path:
    """A PNG with a panel per quantity."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BenchmarkError(f"pictures need matplotlib ({error}); pip install 'anabranch[bench]'") from None
    figure = Figure(figsize=(7.0 * len(quantities), 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    for number, quantity in enumerate(quantities, start=1):
        axes = figure.add_subplot(1, len(quantities), number)
        for trace in findings.traces:
            values = [getattr(moment, quantity) / UNIT for moment in trace.moments]
            axes.plot([moment.batch + 1 for moment in trace.moments], values, label=trace.name, marker=".")
        axes.set_xlabel("batch")
        axes.set_ylabel(LABELS[quantity])
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend()
    figure.suptitle(findings.experiment)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{findings.experiment}.png"
    figure.savefig(path, dpi=120)
    return path
