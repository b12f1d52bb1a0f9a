"""A query processor: one Spark task per step, a pure function of (its manifest, arriving rows).

It receives packed rows, rejects the late and the bad, joins the rest with its state, yields results in bounded
chunks, and only then writes new runs and its report: a document with the new manifest and what was counted. Run
files and reports have names of their own per attempt, so repeated and speculative attempts never meet. Every
attempt of a step computes the same multiset of results and the same state, so any complete report will do.

If Spark stops reading results early, no report is written and the step is completed by another attempt.
"""

from __future__ import annotations

import gc
import json
import time
import traceback
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from anabranch.errors import AnabranchError, BadRowError
from anabranch.kernel.delta import INPUT, Projection, keep_after, sort_delta
from anabranch.kernel.multiway import JoinShape, Matches, join_deltas
from anabranch.runtime.failpoints import failpoint
from anabranch.state.manifest import Manifest
from anabranch.state.run import TS, RunCache, RunFile, Segment, write_run
from anabranch.state.spine import Slice, Spine
from anabranch.state.store import Json, encode_document, sync, write_file

REJECT = "reject"
# A merge of FAN_IN runs of r rows has to be done before FAN_IN more have arrived, so each merge under way has to move
# at least as many rows per batch as the batch brings; half as many again leaves room for uneven batches.
MERGE_FACTOR = 1.5
MIN_MERGE_ROWS = 32_768

_cache = RunCache()
_settled = False


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of the results: its name, and the input and state column it is taken from."""

    name: str
    input: int
    column: str


@dataclass(frozen=True, slots=True)
class ProcessorPlan:
    """What stays the same for a whole run.

    `late_projections` say what to show of late rows, if they are wanted: the key also where it is not stored.
    With `parquet` (a compression) the processor writes results itself, as files that its report names, and yields
    none: they need not go through the JVM to end in a file.
    """

    aliases: tuple[str, ...]
    projections: tuple[Projection, ...]
    shape: JoinShape
    results: tuple[ResultColumn, ...]
    max_spans: tuple[int | None, ...]
    keep_rejected: bool
    late_projections: tuple[Projection, ...] | None = None
    parquet: str | None = None


@dataclass(frozen=True, slots=True)
class StepTask:
    """What one step asks of one processor. `manifest` is JSON, to travel lightly."""

    state: str
    reports: str
    results: str | None
    step: int
    processor: int
    manifest: Json
    late: tuple[int | None, ...]
    purge: tuple[int | None, ...]


@dataclass(slots=True)
class Report:
    """What a processor counted in one step; per input where it is a list."""

    processor: int
    received: list[int]
    late: list[int]
    rejected: list[int]
    results: int
    newest: list[int | None]
    active_rows: int
    active_bytes: int
    busy_ms: float
    result_file: str | None = None
    late_file: str | None = None
    rejected_file: str | None = None


def settle_worker() -> None:
    """Keep what a Python worker has imported out of its garbage collections, once per process.

    Spark makes a worker collect its garbage after every task, before it takes the next. Going through the objects of
    all imported modules took 50 ms each time, on cores that were wanted for the next batch.
    """
    global _settled
    if not _settled:
        gc.freeze()
        _settled = True


def run_processor(plan: ProcessorPlan, task: StepTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Process one step; if it fails, leave word of the cause where the driver looks for it."""
    try:
        yield from _Attempt(plan, task).run(batches)
    except AnabranchError as error:
        path = Path(task.reports) / f"failed-{task.processor}-{uuid.uuid4().hex[:8]}.json"
        body = {"error": type(error).__name__, "message": str(error), "trace": traceback.format_exc()}
        write_file(path, encode_document(body))
        raise


class _Attempt:
    """One attempt at one step of one processor."""

    def __init__(self, plan: ProcessorPlan, task: StepTask) -> None:
        self._plan = plan
        self._task = task
        self._name = f"{task.step:010d}-{task.processor:04d}-{uuid.uuid4().hex[:8]}"
        self._files = 0
        inputs = len(plan.aliases)
        self._report = Report(task.processor, [0] * inputs, [0] * inputs, [0] * inputs, 0, [None] * inputs, 0, 0, 0.0)

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan, task, report = self._plan, self._task, self._report
        arrived = [batch for batch in batches if batch.num_rows]
        started = time.perf_counter()
        waited = 0.0
        _cache.start_task()
        spines = Manifest.from_json(task.manifest).spines
        spines = tuple(spine.purge(t) for spine, t in zip(spines, task.purge, strict=True))
        deltas = self._sort_out(arrived)
        if deltas:
            old = [[self._open(piece) for piece in spine.slices()] for spine in spines]
            chunks = self._results(old, deltas)
            if plan.parquet is not None:
                self._write_parquet(chunks)
            else:
                for results in chunks:
                    yielded = time.perf_counter()
                    yield results
                    waited += time.perf_counter() - yielded
            spines = tuple(self._insert(i, spines[i], deltas[i]) for i in range(len(deltas)))
        manifest = Manifest(spines)
        report.active_rows, report.active_bytes = manifest.rows, manifest.bytes
        report.busy_ms = (time.perf_counter() - started - waited) * 1000
        failpoint("processor.report")
        if self._files:
            sync(Path(task.state))
        body = {"report": asdict(report), "manifest": manifest.to_json()}
        write_file(Path(task.reports) / f"{self._name}.json", encode_document(body))

    def _results(self, old: list[list[Segment]], deltas: list[Segment]) -> Iterator[pa.RecordBatch]:
        for matches in join_deltas(self._plan.shape, old, deltas):
            self._report.results += len(matches)
            failpoint("processor.results")
            yield self._project(matches)

    def _write_parquet(self, chunks: Iterator[pa.RecordBatch]) -> None:
        first = next(chunks, None)
        if first is None or self._task.results is None:
            return
        directory = Path(self._task.results)
        directory.mkdir(parents=True, exist_ok=True)
        self._report.result_file = f"{self._task.processor:04d}-{self._name[-8:]}.parquet"
        with (
            open(directory / self._report.result_file, "wb") as file,
            pq.ParquetWriter(file, first.schema, compression=self._plan.parquet) as writer,
        ):
            writer.write_batch(first)
            for chunk in chunks:
                writer.write_batch(chunk)

    def _sort_out(self, arrived: list[pa.RecordBatch]) -> list[Segment]:
        """Count, reject, and sort the arriving rows by input."""
        if not arrived:
            return []
        packed = pa.Table.from_batches(arrived).combine_chunks()
        tags = packed.column(INPUT).to_numpy()
        bad = self._bad_rows(packed)
        timed = TS in packed.column_names
        deltas, late_rows = [], []
        for i, projection in enumerate(self._plan.projections):
            mask = tags == i
            self._report.received[i] = int(mask.sum())
            if bad is not None:
                self._report.rejected[i] = int((mask & bad).sum())
                mask &= ~bad
            rows = np.flatnonzero(mask)
            if timed and len(rows):
                ts = packed.column(TS).to_numpy()
                self._report.newest[i] = int(ts[rows].max())
                threshold = self._task.late[i]
                if threshold is not None:
                    on_time = ts[rows] >= threshold
                    late_rows.append((i, rows[~on_time]))
                    self._report.late[i] = len(rows) - int(on_time.sum())
                    rows = rows[on_time]
            deltas.append(sort_delta(packed, rows, projection))
        if self._plan.late_projections is not None and any(len(rows) for _, rows in late_rows):
            self._report.late_file = self._write_late(packed, self._plan.late_projections, late_rows)
        return deltas

    def _bad_rows(self, packed: pa.Table) -> NDArray[np.bool_] | None:
        if REJECT not in packed.column_names:
            return None
        column = packed.column(REJECT)
        if column.null_count == len(column):
            return None
        mask: NDArray[np.bool_] = column.is_valid().to_numpy()
        if not self._plan.keep_rejected:
            sample = json.loads(column.filter(column.is_valid())[0].as_py())
            raise BadRowError(
                f"stream {sample['stream']}, column {sample['column']}: {int(mask.sum())} row(s) cannot be "
                f"processed because {sample['problem']}; for example {sample['row']}. Correct or filter the "
                "input, or set quarantine=PATH to put such rows aside and go on"
            )
        lines = [text for text in column.to_pylist() if text is not None]
        self._report.rejected_file = self._write_lines("rejected", lines)
        return mask

    def _write_late(
        self, packed: pa.Table, projections: tuple[Projection, ...], late: list[tuple[int, NDArray[np.int64]]]
    ) -> str:
        lines = []
        for i, rows in late:
            picked = packed.take(pa.array(rows))
            columns = {name: picked.column(slot).to_pylist() for name, slot in projections[i].columns}
            ts = picked.column(TS).to_pylist()
            for n, time_us in enumerate(ts):
                row = {name: values[n] for name, values in columns.items()}
                entry = {"input": self._plan.aliases[i], "ts": time_us, "row": row}
                lines.append(json.dumps(entry, default=str, sort_keys=True))
        return self._write_lines("late", lines)

    def _write_lines(self, kind: str, lines: list[str]) -> str:
        name = f"{kind}-{self._name}.jsonl"
        text = "".join(line + "\n" for line in sorted(lines))
        write_file(Path(self._task.reports) / name, text.encode())
        return name

    def _project(self, matches: Matches) -> pa.RecordBatch:
        rows = [pa.array(picked) for picked in matches.rows]
        arrays = [
            matches.tables[result.input].column(result.column).take(rows[result.input]) for result in self._plan.results
        ]
        return pa.RecordBatch.from_arrays(arrays, [result.name for result in self._plan.results])

    def _insert(self, i: int, spine: Spine, delta: Segment) -> Spine:
        threshold = self._task.purge[i]
        delta = keep_after(delta, threshold)
        if len(delta) == 0:
            return spine
        spine = spine.insert(self._write(delta))
        budget = max(MIN_MERGE_ROWS, int(MERGE_FACTOR * len(delta))) * max(1, len(spine.merges))
        return spine.compact(budget, self._open, self._write, threshold, self._plan.max_spans[i])

    def _open(self, piece: Slice) -> Segment:
        return _cache.open(Path(self._task.state), piece.file).slice(piece.start, piece.stop)

    def _write(self, segment: Segment) -> RunFile:
        self._files += 1
        return write_run(Path(self._task.state), f"{self._name}-{self._files}.arrow", segment)


def parse_report(body: dict[str, Any]) -> tuple[Report, Manifest]:
    """The content of a report document."""
    return Report(**body["report"]), Manifest.from_json(body["manifest"])
