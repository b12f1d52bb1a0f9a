"""The report of a processor on one round of a step: counts, its new state, and which rows wait for later rounds.

A processor runs once per round of the plan. Each run writes one report; together the reports of a processor say what it
did in the step. State is divided among them: a manifest lists only the ports of operators that ran in its round.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from typing import Any

from anabranch.state.manifest import Manifest
from anabranch.state.runs.run import RunFile
from anabranch.state.store import Json

# Runs that wait for the round in which their operator runs, by port.
Parked = dict[int, RunFile]


@dataclass(slots=True)
class Report:
    """The counts of a processor in one step; a list has one entry per source, operator or outlet.

    `results` and `result_files` are per outlet, `combinations` are all rows that results were selected of. Per operator
    are the rows that it has `worked` on, what it has `produced` and, of this, what was `owed`, and the CPU time that it
    took (`operator_cpu_ms`). What diffusion costs is per operator, too: how many of the rows it worked on were
    `copied`, since another processor counts and keeps them, and the rows and bytes that it has `borrowed`.
    `late_joined` counts joined rows that came after what they would have changed was answered. `held` rows wait,
    `arrived` are those that came through the round's exchange; if `long_rows` were among them nothing was done
    (`exchange/long_rows`). `cpu_ms` is the CPU time of `busy_ms`. `cuts` tell where partition groups begin in new files
    (`FileCuts.texts`), so that the driver need not look into them to move groups.
    """

    processor: int
    received: list[int]
    late: list[int]
    rejected: list[int]
    results: list[int]
    newest: list[int | None]
    result_files: list[str | None]
    active_rows: int
    active_bytes: int
    busy_ms: float
    late_file: str | None = None
    rejected_file: str | None = None
    late_joined: int = 0
    round: int = 0
    produced: list[int] = field(default_factory=list)
    owed: list[int] = field(default_factory=list)
    worked: list[int] = field(default_factory=list)
    operator_cpu_ms: list[float] = field(default_factory=list)
    copied: list[int] = field(default_factory=list)
    borrowed_rows: list[int] = field(default_factory=list)
    borrowed_bytes: list[int] = field(default_factory=list)
    spilled_rows: int = 0
    spilled_bytes: int = 0
    generations: int = 0
    held_rows: int = 0
    held_bytes: int = 0
    arrived: int = 0
    combinations: int = 0
    long_rows: bool = False
    cpu_ms: float = 0.0
    cuts: dict[str, str] = field(default_factory=dict)

    def count_state(self, manifest: Manifest) -> None:
        """Count the rows and bytes of a manifest's state."""
        self.active_rows, self.active_bytes = manifest.rows, manifest.bytes
        self.spilled_rows = sum(one.rows for state in manifest.operators for one in state.generations)
        self.spilled_bytes = manifest.spilled_bytes
        self.generations = sum(len(state.generations) for state in manifest.operators)
        self.held_rows = sum(piece.rows for piece in manifest.held())
        self.held_bytes = sum(piece.bytes for piece in manifest.held())

    @classmethod
    def empty(cls, processor: int, inputs: int, operators: int, outlets: int, number: int = 0) -> Report:
        """A report in which all counts are 0."""
        return cls(
            processor=processor,
            received=[0] * inputs,
            late=[0] * inputs,
            rejected=[0] * inputs,
            results=[0] * outlets,
            newest=[None] * inputs,
            result_files=[None] * outlets,
            active_rows=0,
            active_bytes=0,
            busy_ms=0.0,
            round=number,
            produced=[0] * operators,
            owed=[0] * operators,
            worked=[0] * operators,
            operator_cpu_ms=[0.0] * operators,
            copied=[0] * operators,
            borrowed_rows=[0] * operators,
            borrowed_bytes=[0] * operators,
        )

    def plus(self, other: Report) -> Report:
        """Add the report on another round of the same processor."""
        return Report(
            processor=self.processor,
            received=_sums(self.received, other.received),
            late=_sums(self.late, other.late),
            rejected=_sums(self.rejected, other.rejected),
            results=_sums(self.results, other.results),
            newest=[
                a if b is None else b if a is None else max(a, b)
                for a, b in zip(self.newest, other.newest, strict=True)
            ],
            result_files=[a or b for a, b in zip(self.result_files, other.result_files, strict=True)],
            active_rows=self.active_rows + other.active_rows,
            active_bytes=self.active_bytes + other.active_bytes,
            busy_ms=self.busy_ms + other.busy_ms,
            late_file=self.late_file or other.late_file,
            rejected_file=self.rejected_file or other.rejected_file,
            late_joined=self.late_joined + other.late_joined,
            produced=_sums(self.produced, other.produced),
            owed=_sums(self.owed, other.owed),
            worked=_sums(self.worked, other.worked),
            operator_cpu_ms=[a + b for a, b in zip(self.operator_cpu_ms, other.operator_cpu_ms, strict=True)],
            copied=_sums(self.copied, other.copied),
            borrowed_rows=_sums(self.borrowed_rows, other.borrowed_rows),
            borrowed_bytes=_sums(self.borrowed_bytes, other.borrowed_bytes),
            spilled_rows=self.spilled_rows + other.spilled_rows,
            spilled_bytes=self.spilled_bytes + other.spilled_bytes,
            generations=self.generations + other.generations,
            held_rows=self.held_rows + other.held_rows,
            held_bytes=self.held_bytes + other.held_bytes,
            arrived=self.arrived + other.arrived,
            combinations=self.combinations + other.combinations,
            long_rows=self.long_rows or other.long_rows,
            cpu_ms=self.cpu_ms + other.cpu_ms,
            cuts=self.cuts | other.cuts,
        )


def report_body(report: Report, manifest: Manifest, parked: Parked | None = None, earlier: Sequence[str] = ()) -> Json:
    """The document of a report. `earlier` names the reports of the processor's earlier rounds that it goes on from."""
    waiting = {str(port): {"name": file.name, "file": file.to_json()} for port, file in (parked or {}).items()}
    return {"report": asdict(report), "manifest": manifest.to_json(), "parked": waiting, "earlier": list(earlier)}


def parse_report(body: dict[str, Any]) -> tuple[Report, Manifest]:
    """The report and the manifest from a report's document."""
    return Report(**body["report"]), Manifest.from_json(body["manifest"])


def parse_parked(body: dict[str, Any]) -> Parked:
    """The runs that wait for later rounds, from a report's document."""
    return {int(port): RunFile.from_json(entry["name"], entry["file"]) for port, entry in body["parked"].items()}


def combine(reports: Iterable[tuple[Report, Manifest]]) -> list[tuple[Report, Manifest]]:
    """One report and one manifest per processor, out of those of all rounds."""
    rounds: dict[int, list[tuple[Report, Manifest]]] = {}
    for report, manifest in reports:
        rounds.setdefault(report.processor, []).append((report, manifest))
    return [
        (reduce(Report.plus, [r for r, _ in rounds[p]]), reduce(Manifest.union, [m for _, m in rounds[p]]))
        for p in sorted(rounds)
    ]


def _sums(some: list[int], others: list[int]) -> list[int]:
    return [a + b for a, b in zip(some, others, strict=True)]
