"""A query processor: one Spark task per round of a step, a pure function of (its manifest, arriving rows).

It receives packed rows, rejects the late and the bad, runs the operators of the round on the rest and its state, yields
results in bounded chunks, and only then writes new runs and its report: a document with the new manifest and what was
counted. What arrives for an operator of a later round waits in a run that the report names (`parked`). Run files and
reports have names of their own per attempt, so repeated and speculative attempts never meet. Every attempt of a round
computes the same multiset of results and the same state, so any complete report will do.

If Spark stops reading results early, no report is written and the step is completed by another attempt.
"""

from __future__ import annotations

import gc
import json
import time
import traceback
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from anabranch.errors import AnabranchError, BadRowError, CorruptStateError
from anabranch.kernel.delta import INPUT, Projection, keep_after, sort_delta, sort_rows
from anabranch.kernel.operator import Settled, StatefulOperator
from anabranch.runtime.failpoints import failpoint
from anabranch.runtime.report import Report, parse_parked, report_body
from anabranch.state.manifest import Manifest
from anabranch.state.run import HASH, TS, RunCache, RunFile, Segment, write_run
from anabranch.state.spine import Slice, Spine
from anabranch.state.store import Json, encode_document, read_document, sync, write_file

REJECT = "reject"
# A merge of FAN_IN runs of r rows has to be done before FAN_IN more have arrived, so each merge under way has to move
# at least as many rows per batch as the batch brings; half as many again leaves room for uneven batches.
MERGE_FACTOR = 1.5
MIN_MERGE_ROWS = 32_768

NOTHING = Segment.of(pa.record_batch({HASH: pa.array([], pa.uint64()), TS: pa.array([], pa.int64())}))

_cache = RunCache()
_settled = False


class Goes(StrEnum):
    """Where the results of an operator go: to the sink, through the next exchange, or to a part on this processor."""

    SINK = "sink"
    EXCHANGE = "exchange"
    HERE = "here"


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """An operator as a processor runs it: `number` is that of the part its results form, `parts` are at its ports."""

    number: int
    parts: tuple[int, ...]
    operator: StatefulOperator
    goes: Goes


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """The operators of a round, lower ones first, and what arrives for them: per part, its state columns by slot.

    `exchanged` is the schema of what goes through the exchange after this round; None after the last.
    """

    operators: tuple[OperatorPlan, ...]
    arrivals: dict[int, Projection]
    exchanged: pa.Schema | None = None


@dataclass(frozen=True, slots=True)
class ProcessorPlan:
    """What stays the same for a whole run.

    Parts are numbered: the inputs, then the results of each operator. `max_spans` are per part. Rows arrive from
    sources: `aliases` are what they are called, `leaves` the inputs that they feed.
    `late_projections` say what to show of late rows, if they are wanted: the key also where it is not stored.
    With `parquet` (a compression) the processor writes results itself, as files that its report names, and yields
    none: they need not go through the JVM to end in a file.
    """

    aliases: tuple[str, ...]
    leaves: tuple[int, ...]
    rounds: tuple[RoundPlan, ...]
    max_spans: tuple[int | None, ...]
    keep_rejected: bool
    late_projections: tuple[Projection, ...] | None = None
    parquet: str | None = None

    @property
    def parts(self) -> int:
        """How many parts have state: all but the answer."""
        return len(self.max_spans)

    @property
    def operators(self) -> int:
        """How many operators there are."""
        return sum(len(entry.operators) for entry in self.rounds)


@dataclass(frozen=True, slots=True)
class StepTask:
    """What one step asks of one processor; `late` is per source, `purge` per part.

    `manifest` is JSON, to travel lightly.
    """

    state: str
    reports: str
    results: str | None
    step: int
    processor: int
    manifest: Json
    late: tuple[int | None, ...]
    purge: tuple[int | None, ...]
    settled: Settled


def settle_worker() -> None:
    """Keep what a Python worker has imported out of its garbage collections, once per process.

    Spark makes a worker collect its garbage after every task, before it takes the next. Going through the objects of
    all imported modules took 50 ms each time, on cores that were wanted for the next batch.
    """
    global _settled
    if not _settled:
        gc.freeze()
        _settled = True


def run_processor(
    plan: ProcessorPlan, task: StepTask, number: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Process one round of a step; if it fails, leave word of the cause where the driver looks for it."""
    try:
        yield from _Attempt(plan, task, number).run(batches)
    except AnabranchError as error:
        path = Path(task.reports) / f"failed-{task.processor}-{uuid.uuid4().hex[:8]}.json"
        body = {"error": type(error).__name__, "message": str(error), "trace": traceback.format_exc()}
        write_file(path, encode_document(body))
        raise


class _Attempt:
    """One attempt at one round of one step of one processor."""

    def __init__(self, plan: ProcessorPlan, task: StepTask, number: int) -> None:
        self._plan = plan
        self._task = task
        self._number = number
        self._round = plan.rounds[number]
        self._name = f"{round_prefix(task.step, number, task.processor)}{uuid.uuid4().hex[:8]}"
        self._files = 0
        self._report = Report.empty(task.processor, len(plan.aliases), plan.operators, number)
        self._deltas: dict[int, Segment] = {}  # what is new, by part
        self._written: dict[int, RunFile] = {}  # of these, what is in a run already

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task, report = self._task, self._report
        arrived = [batch for batch in batches if batch.num_rows]
        started = time.perf_counter()
        waited = 0.0
        _cache.start_task()
        spines = list(Manifest.from_json(task.manifest).spines)
        self._take_parked()
        self._take_arrived(arrived)
        mine = [part for operator in self._round.operators for part in operator.parts]
        for operator in self._round.operators:
            for part in operator.parts:
                spines[part] = spines[part].purge(task.purge[part])
            for results in self._run_operator(operator, spines):
                yielded = time.perf_counter()
                yield results
                waited += time.perf_counter() - yielded
            for port, part in enumerate(operator.parts):
                spines[part] = self._insert(operator, port, spines[part])
        waiting = sorted(part for part, delta in self._deltas.items() if part not in mine and len(delta))
        parked = {part: self._park(part) for part in waiting}
        manifest = Manifest(tuple(spine if part in mine else Spine() for part, spine in enumerate(spines)))
        report.active_rows, report.active_bytes = manifest.rows, manifest.bytes
        report.busy_ms = (time.perf_counter() - started - waited) * 1000
        failpoint("processor.report")
        if self._files:
            sync(Path(task.state))
        write_file(Path(task.reports) / f"{self._name}.json", encode_document(report_body(report, manifest, parked)))

    def _take_parked(self) -> None:
        """What arrived or was made in earlier rounds for operators of this one. Any attempt's report will do."""
        for number in range(self._number):
            prefix = round_prefix(self._task.step, number, self._task.processor)
            path = min(Path(self._task.reports).glob(f"{prefix}*.json"), default=None)
            if path is None:
                raise CorruptStateError(f"{self._task.reports} has no report {prefix}*; the step cannot go on")
            for part, file in parse_parked(read_document(path)).items():
                if any(part in operator.parts for operator in self._round.operators):
                    self._written[part] = file
                    self._deltas[part] = _cache.open(Path(self._task.state), file)

    def _take_arrived(self, arrived: list[pa.RecordBatch]) -> None:
        if not arrived:
            return
        packed = pa.Table.from_batches(arrived).combine_chunks()
        if self._number == 0:
            self._deltas.update(enumerate(self._sort_out(packed)))
            return
        tags = packed.column(INPUT).to_numpy()
        for part, projection in self._round.arrivals.items():
            self._deltas[part] = sort_delta(packed, np.flatnonzero(tags == part), projection)

    def _run_operator(self, operator: OperatorPlan, spines: list[Spine]) -> Iterator[pa.RecordBatch]:
        """Results that leave the processor; those that stay become the delta of their part."""
        if not operator.operator.waits and not any(len(self._deltas.get(part, ())) for part in operator.parts):
            return
        old = [[self._open(piece) for piece in spines[part].slices()] for part in operator.parts]
        deltas = [
            self._deltas.get(part) or (segments[0].slice(0, 0) if segments else NOTHING)
            for part, segments in zip(operator.parts, old, strict=True)
        ]
        chunks = self._results(operator, old, deltas)
        if operator.goes is Goes.HERE:
            made = list(chunks)
            if made:
                rows = pa.Table.from_batches(made).combine_chunks()
                self._deltas[operator.number] = sort_rows(rows)
        elif operator.goes is Goes.EXCHANGE:
            yield from (self._outgoing(operator.number, chunk) for chunk in chunks)
        elif self._plan.parquet is not None:
            self._write_parquet(chunks)
        else:
            yield from chunks

    def _results(
        self, operator: OperatorPlan, old: list[list[Segment]], deltas: list[Segment]
    ) -> Iterator[pa.RecordBatch]:
        nth = operator.number - len(set(self._plan.leaves))
        for chunk in operator.operator.process(old, deltas, self._task.settled):
            self._report.produced[nth] += len(chunk)
            if operator.goes is Goes.SINK:
                self._report.results += len(chunk)
            failpoint("processor.results")
            yield chunk

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

    def _sort_out(self, packed: pa.Table) -> list[Segment]:
        """Count and reject the arriving rows of streams by source, and sort them by input."""
        tags = packed.column(INPUT).to_numpy()
        bad = self._bad_rows(packed)
        timed = TS in packed.column_names
        taken: dict[int, list[NDArray[np.int64]]] = {}
        late_rows = []
        for i, leaf in enumerate(self._plan.leaves):
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
            taken.setdefault(leaf, []).append(rows)
        if self._plan.late_projections is not None and any(len(rows) for _, rows in late_rows):
            self._report.late_file = self._write_late(packed, self._plan.late_projections, late_rows)
        return [
            sort_delta(packed, np.concatenate(rows) if len(rows) > 1 else rows[0], self._round.arrivals[leaf])
            for leaf, rows in sorted(taken.items())
        ]

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

    def _outgoing(self, part: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Results of an operator in the schema that all of a round share in the exchange after it."""
        schema = self._round.exchanged
        assert schema is not None, "an exchange has a schema"
        number = pa.array(np.full(len(rows), part, dtype=np.int8))
        arrays = {INPUT: number, **dict(zip(rows.schema.names, rows.columns, strict=True))}
        columns = [arrays[field.name] if field.name in arrays else pa.nulls(len(rows), field.type) for field in schema]
        return pa.RecordBatch.from_arrays(columns, schema.names)

    def _insert(self, operator: OperatorPlan, port: int, spine: Spine) -> Spine:
        part = operator.parts[port]
        if part not in self._deltas:
            return spine
        threshold = self._task.purge[part]
        delta = self._deltas[part]
        file = self._written.get(part)
        if file is None:
            delta = keep_after(delta, threshold)
            if len(delta) == 0:
                return spine
            file = self._write(delta)
        spine = spine.insert(file)
        budget = max(MIN_MERGE_ROWS, int(MERGE_FACTOR * len(delta))) * max(1, len(spine.merges))

        def write(merged: Segment) -> RunFile:
            return self._write(operator.operator.keep(port, merged, self._task.settled))

        return spine.compact(budget, self._open, write, threshold, self._plan.max_spans[part])

    def _park(self, part: int) -> RunFile:
        """Leave a delta for the round of its operator: in a run, where it will be kept anyway."""
        return self._written.get(part) or self._write(self._deltas[part])

    def _open(self, piece: Slice) -> Segment:
        return _cache.open(Path(self._task.state), piece.file).slice(piece.start, piece.stop)

    def _write(self, segment: Segment) -> RunFile:
        self._files += 1
        return write_run(Path(self._task.state), f"{self._name}-{self._files}.arrow", segment)


def round_prefix(step: int, number: int, processor: int) -> str:
    """How the names of what an attempt at a round writes begin."""
    return f"{step:010d}-{number:02d}-{processor:04d}-"
