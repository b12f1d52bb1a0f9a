"""Processors of a join without Spark: the rows of a batch are routed by NumPy, and each processor runs its task here.

Everything between two batches is the engine's own: what the driver asks of processors, and what people can change by
hand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from anabranch.kernel.delta import INPUT, Projection
from anabranch.kernel.join.combinations import UNBOUNDED
from anabranch.kernel.join.window_join import ResultColumn, WindowJoin
from anabranch.kernel.operator import Settled
from anabranch.manager.actions.change import Change, Context
from anabranch.manager.connection_manager import ConnectionManager
from anabranch.manager.distribution import Distribution
from anabranch.manager.plan_shape import Edge, OperatorShape, PlanShape
from anabranch.plan.placement import even_placement
from anabranch.plan.routing import owned_by, port_routings, processors_of
from anabranch.processor.attempt import REPORT, run_processor
from anabranch.processor.tasks import (
    ARROW,
    Arrival,
    Destination,
    DestinationKind,
    OperatorPlan,
    ProcessorPlan,
    RoundPlan,
    StepTask,
)
from anabranch.state.broken_shares import broken_shares
from anabranch.state.groups import GroupSet, groups_of
from anabranch.state.manifest import Manifest
from anabranch.state.report import Report, parse_report
from anabranch.state.runs import merge, merge_choice
from anabranch.state.runs.run import HASH, TS, FileCuts
from anabranch.state.share import borrowed_slices, copied_by_port, groups_by_port
from anabranch.state.spill import CleanUp
from anabranch.state.store import read_document
from tests.kernel.join.streams import Answer, Join

REJECT = "reject"


@contextmanager
def eager_and_careless() -> Iterator[None]:
    """Merge from the second run on, in small files; and do not wait for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge_choice, "FAN_IN", 2)
        patch.setattr(merge_choice, "SMALLEST_TIER", 1)
        patch.setattr(merge, "MAX_FILE_ROWS", 4)
        patch.setattr("os.fsync", lambda descriptor: None)
        yield


@dataclass
class Cluster:
    """The processors of one join. `answer` are the results so far, as ids of rows; `reports` are those of the last
    step."""

    directory: Path
    join: Join
    processors: int = 2
    groups: int = 4
    late: list[int | None] = field(default_factory=list)
    purge: list[int | None] = field(default_factory=list)
    answer: Answer = field(default_factory=Counter)
    reports: list[Report] = field(default_factory=list)
    hold: dict[int, GroupSet] = field(default_factory=dict)
    steps: int = 0

    def __post_init__(self) -> None:
        inputs = range(len(self.join.windows))
        timed = [window is not None for window in self.join.windows]
        windows = [None if window == UNBOUNDED else window for window in self.join.windows]
        columns = [*self.join.key_columns, "id"]
        results = tuple(ResultColumn(f"id{i}", i, "id") for i in inputs)
        operator = WindowJoin(self.join.shape(), results)
        picked = tuple((f"id{i}", f"id{i}") for i in inputs)
        work = OperatorPlan(0, tuple(inputs), operator, (Destination(DestinationKind.SINK, 0, picked),))
        stored = Projection(tuple((name, name) for name in columns))
        arrivals = {i: Arrival(i, replace(stored, timed=timed[i])) for i in inputs}
        self.plan = ProcessorPlan(
            aliases=tuple(f"s{i}" for i in inputs),
            rounds=(RoundPlan((work,), arrivals),),
            stored=tuple((HASH, *([TS] if timed[i] else []), *columns) for i in inputs),
            max_spans=(None,) * len(inputs),
            windows=tuple(windows),
            owners=(0,) * len(inputs),
            groupings=(),
            groups=self.groups,
            keep_rejected=True,
            late_projections=(Projection((("id", "id"),)),) * len(inputs),
            written=(ARROW,),
        )
        edges = tuple(Edge(alias, (), ("k",)) for alias in self.plan.aliases)
        self.shape = PlanShape((OperatorShape(0, "join", tuple(inputs), edges=edges),), self.groups)
        self.state = self.directory / "state"
        self.state.mkdir(parents=True)
        self.cuts = FileCuts(self.state, self.groups)
        self.connections = ConnectionManager(self.shape, self.cuts, lambda: 0.0)
        nothing = (Manifest.empty(len(inputs), 1),) * self.processors
        self.distribution = Distribution(nothing, owned_by([even_placement(self.groups, self.processors)]))

    @property
    def context(self) -> Context:
        """What actions may look at."""
        return Context(self.shape, self.steps, (None,), 0.0, self.connections, self.cuts)

    def change(self, edit: Callable[[Distribution, Context], Change]) -> None:
        """Change the distribution between two steps, as people do."""
        self.distribution = edit(self.distribution, self.context).distribution
        self.check()

    def check(self) -> None:
        """Nothing breaks the rules of shares."""
        assert not [*broken_shares(self.distribution.manifests, self.distribution.routings, self.owners, self.cuts)]

    @property
    def owners(self) -> tuple[int, ...]:
        """The operator of each port."""
        return self.plan.owners

    def feed(self, rows: Sequence[pa.RecordBatch | None], clean_up: CleanUp | None = None) -> None:
        """Take a step: rows for each input, as the join's segments have them, perhaps with notes why they are bad."""
        self.steps += 1
        manifests, self.reports = [], []
        for p in range(self.distribution.processors):
            report, manifest = self._processed(p, rows, clean_up)
            self.reports.append(report)
            manifests.append(manifest)
        self.distribution = replace(self.distribution, manifests=tuple(manifests))
        for report in self.reports:
            self.cuts.learn_texts(report.cuts)
        self.check()

    def total(self, name: str) -> int:
        """A count of the last step, all processors, inputs and operators together."""
        values = (getattr(report, name) for report in self.reports)
        return sum(sum(value) if isinstance(value, list) else value for value in values)

    @property
    def rows(self) -> int:
        """All rows that are listed: active, retired, spilled and held back."""
        manifests = self.distribution.manifests
        return sum(
            sum(piece.rows for piece in (*manifest.active(), *manifest.spilled(), *manifest.held()))
            for manifest in manifests
        )

    def _processed(
        self, p: int, rows: Sequence[pa.RecordBatch | None], clean_up: CleanUp | None
    ) -> tuple[Report, Manifest]:
        arrived = self._routed(p, rows)
        reports = self.directory / f"reports-{self.steps}"
        reports.mkdir(exist_ok=True)
        routings, manifests = self.distribution.routings, self.distribution.manifests
        purge = tuple(self.purge or [None] * len(rows))
        task = StepTask(
            state=str(self.state),
            reports=str(reports),
            results=(str(reports / "results"),),
            epoch=1,
            step=self.steps,
            processor=p,
            owned=groups_by_port(routings, self.owners, p),
            manifest=manifests[p].to_json(),
            late=tuple(self.late or [None] * len(rows)),
            purge=purge,
            settled=(Settled(),),
            since=(None,),
            clean_up={} if clean_up is None else {0: clean_up},
            hold=self.hold,
            now=float(self.steps),
            copied=copied_by_port(routings, self.owners, p),
            borrowed=borrowed_slices(manifests, routings, self.owners, p, purge, self.cuts),
        )
        [named] = run_processor(self.plan, task, 0, [arrived])
        report, manifest = parse_report(read_document(reports / named.column(REPORT)[0].as_py()))
        assert report.arrived == len(arrived)
        self._collect(reports / "results", report)
        return report, manifest

    def _collect(self, folder: Path, report: Report) -> None:
        found = 0
        if report.result_files[0] is not None:
            table = pa.ipc.open_stream(folder / report.result_files[0]).read_all()
            found = len(table)
            self.answer.update(zip(*(column.to_pylist() for column in table.columns), strict=True))
        assert [found] == report.results == report.produced

    def _routed(self, p: int, rows: Sequence[pa.RecordBatch | None]) -> pa.RecordBatch:
        """The rows that go to a processor, as they come out of the exchange."""
        parts = []
        for i, (routing, batch) in enumerate(
            zip(port_routings(self.distribution.routings, self.owners), rows, strict=True)
        ):
            if batch is None:
                continue
            hashes = batch.column(HASH).to_numpy()
            content = content_hashes(batch.column("id").to_numpy(), i)
            numbers, processors = processors_of(routing, groups_of(hashes, self.groups), content)
            parts.append(self._packed(i, batch.take(pa.array(np.sort(numbers[processors == p])))))
        return pa.concat_batches(parts) if parts else pa.record_batch({INPUT: pa.array([], pa.int16())})

    def _packed(self, i: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        names = rows.schema.names
        no_notes = pa.nulls(len(rows), pa.string())
        arrays = {
            INPUT: pa.array(np.full(len(rows), i, dtype=np.int16)),
            HASH: rows.column(HASH).view(pa.int64()),
            TS: rows.column(TS) if TS in names else pa.array(np.zeros(len(rows), dtype=np.int64)),
            REJECT: rows.column(REJECT) if REJECT in names else no_notes,
            **{name: rows.column(name) for name in (*self.join.key_columns, "id")},
        }
        return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))


def content_hashes(ids: NDArray[np.int64], i: int) -> NDArray[np.uint64]:
    """A hash of the content of rows, which are told apart by their ids."""
    mixed = (ids.astype(np.uint64) + np.uint64(7 * i + 1)) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
