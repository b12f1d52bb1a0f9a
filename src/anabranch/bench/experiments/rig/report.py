"""Findings for people: a table, and a verdict for each claim."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from anabranch.bench.experiments.rig.experiment import Claim, Findings


def table(findings: Findings) -> Group:
    """The findings for people: a row per trace."""
    shown = Table(title=findings.experiment, title_justify="left", box=None, padding=(0, 2, 0, 0), header_style="dim")
    rows = [trace.cells() for trace in findings.traces]
    for heading in rows[0] if rows else ():
        shown.add_column(heading, justify="left" if heading == "variant" else "right", no_wrap=True)
    for cells in rows:
        shown.add_row(*cells.values())
    return Group(shown, *(_verdict(claim) for claim in findings.claims))


def _verdict(claim: Claim) -> Text:
    verdict, style = ("holds", "green") if claim.holds else ("DOES NOT HOLD", "red")
    return Text(f"{verdict}: {claim.text} ({claim.measured})", style)
