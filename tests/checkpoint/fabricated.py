"""A checkpoint made through the state API, as a run would leave it, without Spark."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from anabranch.checkpoint.folder.directory import Checkpoint
from anabranch.checkpoint.step import Step
from anabranch.plan.placement import even_placement
from anabranch.plan.routing import Routing
from anabranch.state.groups import group_bits
from anabranch.state.manifest import Manifest
from anabranch.state.report import Report, report_body
from anabranch.state.runs.run import Segment, write_run
from anabranch.state.runs.spine import Spine
from anabranch.state.share import home_groups
from anabranch.state.store import encode_document, write_file

GROUPS = 16
ROWS = 200
ALIASES = ("o", "p")
IDENTITY = {
    "engine version": "0.3",
    "groups": GROUPS,
    "session time zone": "UTC",
}
PLAN = {
    "queries": {"query": {"since": 1, "query": {"residual predicate": None}}},
    "sources": [
        {"identity": "j/0/0", "label": "o", "stream": "orders", "window (us)": 60_000_000, "lateness (us)": 10_000_000},
        {"identity": "j/1/0", "label": "p", "stream": "payments", "window (us)": None, "lateness (us)": None},
    ],
    "ports": [{"identity": f"j/{number}", "holds": alias} for number, alias in enumerate(ALIASES)],
    "operators": ["j"],
    "groupings": [],
    "read": [["orders", 1, 1], ["payments", 1, 1]],
}
NEWEST = 1_767_258_000_000_000


class Fabricated:
    """A checkpoint under construction: every step adds a run to each input of each processor."""

    def __init__(self, path: Path, processors: int = 2) -> None:
        self.checkpoint = Checkpoint(path)
        self.checkpoint.take(IDENTITY)
        self.checkpoint.adopt(PLAN)
        self.routing = Routing(even_placement(GROUPS, processors))
        self.manifests = [Manifest.empty(len(ALIASES), 1)] * processors
        self.last: Step | None = None
        self.retained: dict[int, list[Manifest]] = {}

    def add_step(self) -> Step:
        number = self.checkpoint.next_number
        for processor, manifest in enumerate(self.manifests):
            spines = tuple(self._insert(spine, number, processor, i) for i, spine in enumerate(manifest.spines))
            self.manifests[processor] = Manifest(spines, manifest.operators)
        return self.commit()

    def commit(self) -> Step:
        """Commit what the manifests list as a step."""
        number = self.checkpoint.next_number
        directory = self.checkpoint.prepare_step(number)
        names = []
        for processor, grown in enumerate(self.manifests):
            report = Report.empty(processor, len(ALIASES), 1, 1)
            report.received, report.results, report.newest = [ROWS] * 2, [7], [NEWEST, None]
            report.active_rows, report.active_bytes = grown.rows, grown.bytes
            names.append(f"{number:010d}-{processor:04d}.json")
            write_file(directory / names[-1], encode_document(report_body(report, grown)))
        batch_id = self.last.batch_id + 1 if self.last else 0
        rows = ROWS * (batch_id + 1) * len(self.manifests)
        step = self.checkpoint.next_step(
            self.last,
            batch_id=batch_id,
            processors=len(self.manifests),
            routings=(self.routing,),
            reports=tuple(names),
            newest=(NEWEST, None),
            totals={
                "combinations": 14 * (batch_id + 1),
                "results": {"query": 14 * (batch_id + 1)},
                "received": [rows, rows],
                "late": [3, 0],
                "rejected": [0, 1],
            },
            plan=self.checkpoint.plan_number,
        )
        self.checkpoint.commit(step)
        self.last = step
        self.retained[number] = list(self.manifests)
        self.checkpoint.remove_unreferenced(self.retained)
        return step

    def merge_all(self) -> None:
        """Rewrite every spine as one run, so that the next steps give up all files that exist now."""
        for processor, manifest in enumerate(self.manifests):
            self.manifests[processor] = Manifest(tuple(Spine() for _ in manifest.spines), manifest.operators)

    def _insert(self, spine: Spine, step: int, processor: int, number: int) -> Spine:
        rng = np.random.default_rng([step, processor, number])
        owned, width = home_groups(self.routing, processor).numbers(), 1 << (64 - group_bits(GROUPS))
        within = rng.integers(0, width - 1, ROWS, dtype=np.uint64, endpoint=True)
        hashes = np.sort(rng.choice(owned, ROWS).astype(np.uint64) * np.uint64(width) + within)
        rows = pa.record_batch({"hash": pa.array(hashes), "v": pa.array(np.arange(ROWS))})
        return spine.insert(
            write_run(
                self.checkpoint.state, f"{self.checkpoint.epoch}-{step}-{processor}-{number}.arrow", Segment.of(rows)
            )
        )
