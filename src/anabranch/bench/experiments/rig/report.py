"""Findings for people: a table, and a verdict for each claim."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Group
from rich.table import Table
from rich.text import Text

from anabranch.bench.experiments.rig.experiment import Claim, Findings
from anabranch.bench.experiments.rig.trace import Trace
from anabranch.observe.numbers import format_bytes

COLUMNS: dict[str, Callable[[Trace], str]] = {
    "variant": lambda trace: trace.name,
    "results": lambda trace: f"{trace.results:,}",
    "cleaned up": lambda trace: f"{trace.clean_up_results:,}",
    "pushes": lambda trace: str(trace.spills),
    "pushed": lambda trace: format_bytes(trace.spilled_bytes),
    "moves": lambda trace: str(len(trace.relocations)),
    "moved": lambda trace: format_bytes(sum(move.bytes for move in trace.relocations)),
    "active": lambda trace: format_bytes(trace.most_active_bytes),
    "run": lambda trace: f"{trace.run_seconds:.1f} s",
    "rest": lambda trace: f"{trace.last_seconds:.1f} s",
}


def table(findings: Findings) -> Group:
    """The findings for people."""
    shown = Table(title=findings.experiment, title_justify="left", box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in COLUMNS:
        shown.add_column(heading, justify="left" if heading == "variant" else "right", no_wrap=True)
    for trace in findings.traces:
        shown.add_row(*(cell(trace) for cell in COLUMNS.values()))
    return Group(shown, *(_verdict(claim) for claim in findings.claims))


def _verdict(claim: Claim) -> Text:
    verdict, style = ("holds", "green") if claim.holds else ("DOES NOT HOLD", "red")
    return Text(f"{verdict}: {claim.text} ({claim.measured})", style)
