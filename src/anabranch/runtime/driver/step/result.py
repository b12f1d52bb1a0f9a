"""The settings that a step needs, and the result that a committed step leaves for progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from anabranch.manager.allocation.properties import NO_PROPERTIES, Properties
from anabranch.manager.memory.manager_use import ManagerUse
from anabranch.manager.memory.memory_use import MemoryUse
from anabranch.manager.patterns import Pattern, Spread
from anabranch.manager.patterns.tier import clusters_of
from anabranch.manager.snapshot import Policy
from anabranch.manager.tiers.clusters import Clusters
from anabranch.observe.diffused import DiffusedGroups
from anabranch.runtime.exchange.processors import Reports
from anabranch.state.manifest import Manifest
from anabranch.state.report import Report, report_body
from anabranch.state.store import encode_document, make_folder, sync, write_file, write_unnamed

# Instead of a batch's id, for a step without a batch.
NO_BATCH = -1


@dataclass(frozen=True, slots=True)
class StepSettings:
    """The settings of the engine that matter to a step; `pattern` places operators anew when the run is rescaled."""

    processors: int
    groups: int
    memory: int | None
    quarantine: Path | None
    late_rows: Path | None
    policies: tuple[Policy, ...] = ()
    pattern: Pattern = field(default_factory=Spread)
    properties: Properties = NO_PROPERTIES

    @property
    def clusters(self) -> Clusters | None:
        """The clusters of processors, if the pattern has some."""
        return clusters_of(self.pattern)


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a committed step, from which progress is made.

    `output_rows` are by query; `operators` are names, in the order of reports. `memory` is per processor: the use of
    its memory, and what it owes. `groups` are per processor, too: the statistics of the partition groups of each
    operator, kept for the last step only. `diffused` are groups that are diffused after it. The step took `seconds`,
    and was committed at `time` by the driver's clock. `manager` is the manager's part in it. `exchanged` are the rows
    that came through the exchange before each round.
    """

    batch_id: int
    step: int
    reports: tuple[Report, ...]
    output_rows: dict[str, int]
    labels: tuple[str, ...]
    operators: tuple[str, ...]
    newest: tuple[int | None, ...]
    totals: dict[str, Any] = field(default_factory=dict)
    memory: tuple[MemoryUse, ...] = ()
    groups: tuple[dict[str, Any], ...] = ()
    diffused: tuple[DiffusedGroups, ...] = ()
    seconds: float = 0.0
    time: float = 0.0
    manager: ManagerUse = field(default_factory=ManagerUse)
    exchanged: tuple[int, ...] = ()

    def without_groups(self) -> StepResult:
        """The same result without statistics of partition groups, to be kept for longer."""
        return replace(self, groups=())


def add_totals(totals: dict[str, Any], reports: list[Report], output_rows: dict[str, int]) -> dict[str, Any]:
    """Totals after a step. The rows of an answer are None from the first batch on in which they were not counted."""
    results = dict(totals.get("results", {}))
    for name, rows in output_rows.items():
        before = results.get(name, 0)
        results[name] = None if before is None or rows < 0 else before + rows
    added: dict[str, Any] = {
        "combinations": totals.get("combinations", 0) + sum(report.combinations for report in reports),
        "results": results,
        "late_joined": totals.get("late_joined", 0) + sum(report.late_joined for report in reports),
    }
    for name in ("received", "late", "rejected"):
        per_input = [sum(counts) for counts in zip(*(getattr(report, name) for report in reports), strict=True)]
        before = totals.get(name, [0] * len(per_input))
        added[name] = [a + b for a, b in zip(before, per_input, strict=True)]
    return added


def publish(reports: list[Report], settings: StepSettings, tag: str, batch_id: int, directory: Path) -> None:
    """Publish rejected and late rows in the user's folders, in files whose names depend on the batch only."""
    for report in reports:
        for name, target in (
            (report.rejected_file, settings.quarantine),
            (report.late_file, settings.late_rows),
        ):
            if name is not None and target is not None:
                make_folder(target)
                published = target / f"{tag}-{batch_id:010d}-{report.processor:04d}.jsonl"
                write_file(published, (directory / name).read_bytes())


def unpublish(settings: StepSettings, tag: str, batch_id: int) -> None:
    """Remove the files that a crashed attempt at a batch may have published, perhaps with other processors."""
    for aside in filter(None, (settings.quarantine, settings.late_rows)):
        for leftover in aside.glob(f"{tag}-{batch_id:010d}-*"):
            leftover.unlink()


def latest(times: Sequence[Sequence[int | None]]) -> list[int | None]:
    """The latest time per source; None where there is none."""
    return [max((time for time in seen if time is not None), default=None) for seen in zip(*times, strict=True)]


def name_reports(
    number: int, reports: Reports, adapted: Mapping[int, tuple[Report, Manifest]], directory: Path
) -> tuple[str, ...]:
    """Name the reports that a step consists of; those of processors whose state was adapted are written anew."""
    names = [name for name, report, _ in reports.values() if report.processor not in adapted]
    for p, (report, manifest) in adapted.items():
        names.append(f"{number:010d}-{p:04d}-adapted.json")
        write_unnamed(directory / names[-1], encode_document(report_body(report, manifest)))
    if adapted:
        sync(directory)
    return tuple(sorted(names))
