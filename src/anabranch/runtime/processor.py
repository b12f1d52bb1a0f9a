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
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from anabranch.errors import AnabranchError, BadRowError, CorruptStateError
from anabranch.kernel.delta import INPUT, Projection, keep_after, sort_delta, sort_rows
from anabranch.kernel.expression import Fused, columns_of, evaluate, select
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


class Writer(Protocol):
    """What results are written with, in one format or the other."""

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Write some rows."""

    def close(self) -> None:
        """Write what is left, and close the file."""


class Goes(StrEnum):
    """Where results of an operator go: to a sink, through the next exchange, or to a port on this processor."""

    SINK = "sink"
    EXCHANGE = "exchange"
    HERE = "here"


@dataclass(frozen=True, slots=True)
class Destination:
    """What of an operator's results goes where: `number` is that of a port, the tag of a lane, or an outlet's.

    `picked` are pairs of a new name and the name in the results. Results that stay on the processor may have to meet
    conditions, and have columns that are `computed`.
    """

    goes: Goes
    number: int
    picked: tuple[tuple[str, str], ...]
    conditions: tuple[Fused, ...] = ()
    computed: tuple[tuple[str, Fused], ...] = ()

    @property
    def reads(self) -> set[str]:
        """The columns of the results that are needed."""
        evaluated = [*self.conditions, *(fused for _, fused in self.computed)]
        return {name for _, name in self.picked}.union(*(columns_of(fused.expression) for fused in evaluated))

    def take(self, results: pa.RecordBatch) -> pa.RecordBatch:
        """What goes there of some results."""
        missing = self.reads.difference(results.schema.names)
        if missing:
            given = results.schema.names
            raise AnabranchError(f"an operator gave columns {given}, and none that is called {min(missing)!r}")
        rows = select(self.conditions, results)
        arrays = {name: rows.column(found) for name, found in self.picked}
        arrays |= {name: evaluate(fused, rows) for name, fused in self.computed}
        return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """An operator as a processor runs it: its number, those of its ports, and where its results go."""

    number: int
    ports: tuple[int, ...]
    operator: StatefulOperator
    destinations: tuple[Destination, ...]


@dataclass(frozen=True, slots=True)
class Arrival:
    """Where rows go that arrive with a tag, and what of them is stored there."""

    port: int
    stored: Projection


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """The operators of a round, lower ones first, and what arrives before it, by tag: in the first, by source.

    `exchanged` is the schema of what goes through the exchange after this round; None after the last.
    """

    operators: tuple[OperatorPlan, ...]
    arrivals: dict[int, Arrival]
    exchanged: pa.Schema | None = None


# What comes out of an outlet is yielded, or written as Arrow for Spark to read, or as Parquet with a compression.
YIELDED = "yielded"
ARROW = "arrow"


@dataclass(frozen=True, slots=True)
class ProcessorPlan:
    """What stays the same for a whole run, or until it answers other queries.

    Rows arrive from sources, which are called `aliases`. `stored` and `max_spans` are per port: the columns of its
    state, and how much time a run may cover. `groupings` are the numbers of the operators that group.
    `late_projections` say what to show of late rows, if they are wanted: the key also where it is not stored.

    `written` says what becomes of what comes out of each outlet. Where a processor writes results itself its report
    names the files: they need not go through the JVM to end in a file, and several answers come out of one pass.
    """

    aliases: tuple[str, ...]
    rounds: tuple[RoundPlan, ...]
    stored: tuple[tuple[str, ...], ...]
    max_spans: tuple[int | None, ...]
    groupings: tuple[int, ...]
    keep_rejected: bool
    late_projections: tuple[Projection, ...] | None = None
    written: tuple[str, ...] = ()

    @property
    def ports(self) -> int:
        """How many ports have state."""
        return len(self.max_spans)

    @property
    def operators(self) -> int:
        """How many operators there are."""
        return sum(len(entry.operators) for entry in self.rounds)


@dataclass(frozen=True, slots=True)
class StepTask:
    """What one step asks of one processor; `late` is per source, `purge` per port, `settled` per grouping.

    `results` are the folders for what is written, per outlet. `manifest` is JSON, to travel lightly.
    """

    state: str
    reports: str
    results: tuple[str | None, ...]
    step: int
    processor: int
    manifest: Json
    late: tuple[int | None, ...]
    purge: tuple[int | None, ...]
    settled: tuple[Settled, ...]


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
    attempt = _Attempt(plan, task, number)
    try:
        yield from attempt.run(batches)
    except AnabranchError as error:
        path = Path(task.reports) / f"failed-{task.processor}-{uuid.uuid4().hex[:8]}.json"
        body = {"error": type(error).__name__, "message": str(error), "trace": traceback.format_exc()}
        write_file(path, encode_document(body))
        raise
    finally:
        attempt.close()


class _Attempt:
    """One attempt at one round of one step of one processor."""

    def __init__(self, plan: ProcessorPlan, task: StepTask, number: int) -> None:
        self._plan = plan
        self._task = task
        self._number = number
        self._round = plan.rounds[number]
        self._name = f"{round_prefix(task.step, number, task.processor)}{uuid.uuid4().hex[:8]}"
        self._files = 0
        self._report = Report.empty(task.processor, len(plan.aliases), plan.operators, len(plan.written), number)
        self._writers: dict[int, Writer] = {}  # by outlet
        self._deltas: dict[int, Segment] = {}  # what is new, by port
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
        mine = [port for operator in self._round.operators for port in operator.ports]
        for operator in self._round.operators:
            settled = self._settled(operator)
            for port in operator.ports:
                spines[port] = spines[port].purge(task.purge[port])
                self._drop_answered(port, settled)
            for results in self._run_operator(operator, spines, settled):
                yielded = time.perf_counter()
                yield results
                waited += time.perf_counter() - yielded
            for nth, port in enumerate(operator.ports):
                spines[port] = self._insert(operator, nth, spines[port], settled)
        self.close()
        waiting = sorted(port for port, delta in self._deltas.items() if port not in mine and len(delta))
        parked = {port: self._park(port) for port in waiting}
        manifest = Manifest(tuple(spine if port in mine else Spine() for port, spine in enumerate(spines)))
        report.active_rows, report.active_bytes = manifest.rows, manifest.bytes
        report.busy_ms = (time.perf_counter() - started - waited) * 1000
        failpoint("processor.report")
        if self._files:
            sync(Path(task.state))
        write_file(Path(task.reports) / f"{self._name}.json", encode_document(report_body(report, manifest, parked)))

    def close(self) -> None:
        """Close what results were written to."""
        while self._writers:
            self._writers.popitem()[1].close()

    def _settled(self, operator: OperatorPlan) -> Settled:
        groupings = self._plan.groupings
        return self._task.settled[groupings.index(operator.number)] if operator.number in groupings else Settled()

    def _drop_answered(self, port: int, settled: Settled) -> None:
        """Rows that are older than what was answered come too late: the input was taken for ended once.

        Those of streams are sorted out when they arrive.
        """
        if port in self._deltas and settled.since is not None:
            before = len(self._deltas[port])
            self._deltas[port] = keep_after(self._deltas[port], settled.since)
            dropped = before - len(self._deltas[port])
            if dropped:
                self._written.pop(port, None)
            self._report.late_joined += dropped

    def _take_parked(self) -> None:
        """What arrived or was made in earlier rounds for operators of this one. Any attempt's report will do."""
        for number in range(self._number):
            prefix = round_prefix(self._task.step, number, self._task.processor)
            path = min(Path(self._task.reports).glob(f"{prefix}*.json"), default=None)
            if path is None:
                raise CorruptStateError(f"{self._task.reports} has no report {prefix}*; the step cannot go on")
            for port, file in parse_parked(read_document(path)).items():
                if any(port in operator.ports for operator in self._round.operators):
                    self._add_delta(port, self._open_run(port, file), file)

    def _take_arrived(self, arrived: list[pa.RecordBatch]) -> None:
        if not arrived:
            return
        packed = pa.Table.from_batches(arrived).combine_chunks()
        if self._number == 0:
            for port, delta in self._sort_out(packed).items():
                self._add_delta(port, delta)
            return
        tags = packed.column(INPUT).to_numpy()
        for tag, arrival in self._round.arrivals.items():
            self._add_delta(arrival.port, sort_delta(packed, np.flatnonzero(tags == tag), arrival.stored))

    def _add_delta(self, port: int, delta: Segment, file: RunFile | None = None) -> None:
        """What has come to a port, beside what came there on other ways."""
        delta = _with_columns(delta, self._plan.stored[port])
        known = self._deltas.get(port)
        if known is not None and len(known) and len(delta):
            self._written.pop(port, None)
            self._deltas[port] = sort_rows(
                pa.Table.from_batches([known.rows, delta.rows.select(known.rows.schema.names)])
            )
        elif known is None or not len(known):
            self._deltas[port] = delta
            if file is not None:
                self._written[port] = file

    def _run_operator(self, operator: OperatorPlan, spines: list[Spine], settled: Settled) -> Iterator[pa.RecordBatch]:
        """Results that leave the processor; those that stay become the deltas of their ports, or go into files."""
        if not operator.operator.waits and not any(len(self._deltas.get(port, ())) for port in operator.ports):
            return
        old = [[self._open(port, piece) for piece in spines[port].slices()] for port in operator.ports]
        deltas = [
            self._deltas.get(port) or (segments[0].slice(0, 0) if segments else NOTHING)
            for port, segments in zip(operator.ports, old, strict=True)
        ]
        staying: dict[int, list[pa.RecordBatch]] = {}
        for chunk in operator.operator.process(old, deltas, settled):
            self._report.produced[operator.number] += len(chunk)
            failpoint("processor.results")
            for destination in operator.destinations:
                picked = destination.take(chunk)
                if destination.goes is Goes.HERE:
                    staying.setdefault(destination.number, []).append(picked)
                elif destination.goes is Goes.EXCHANGE:
                    yield self._outgoing(destination.number, picked)
                else:
                    self._report.results[destination.number] += len(picked)
                    if self._plan.written[destination.number] == YIELDED:
                        yield picked
                    else:
                        self._writer(destination.number, picked.schema).write_batch(picked)
        for port, made in staying.items():
            self._add_delta(port, sort_rows(pa.Table.from_batches(made).combine_chunks()))

    def _writer(self, outlet: int, schema: pa.Schema) -> Writer:
        """Where what comes out of an outlet is written."""
        if outlet not in self._writers:
            folder, form = self._task.results[outlet], self._plan.written[outlet]
            assert folder is not None, "what is written has a folder"
            Path(folder).mkdir(parents=True, exist_ok=True)
            suffix = "arrow" if form == ARROW else "parquet"
            name = f"{self._task.processor:04d}-{self._name[-8:]}-{outlet}.{suffix}"
            path = Path(folder) / name
            self._report.result_files[outlet] = name
            self._writers[outlet] = (
                pa.ipc.new_stream(str(path), schema)
                if form == ARROW
                else pq.ParquetWriter(str(path), schema, compression=form)
            )
        return self._writers[outlet]

    def _sort_out(self, packed: pa.Table) -> dict[int, Segment]:
        """Count and reject the arriving rows of streams by source, and sort them by port."""
        tags = packed.column(INPUT).to_numpy()
        bad = self._bad_rows(packed)
        timed = TS in packed.column_names
        taken: dict[int, list[NDArray[np.int64]]] = {}
        late_rows = []
        for i, arrival in self._round.arrivals.items():
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
            taken.setdefault(arrival.port, []).append(rows)
        if self._plan.late_projections is not None and any(len(rows) for _, rows in late_rows):
            self._report.late_file = self._write_late(packed, self._plan.late_projections, late_rows)
        stored = {arrival.port: arrival.stored for arrival in self._round.arrivals.values()}
        return {
            port: sort_delta(packed, np.concatenate(rows) if len(rows) > 1 else rows[0], stored[port])
            for port, rows in taken.items()
        }

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

    def _outgoing(self, tag: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Results of an operator in the schema that all of a round share in the exchange after it."""
        schema = self._round.exchanged
        assert schema is not None, "an exchange has a schema"
        number = pa.array(np.full(len(rows), tag, dtype=np.int16))
        no_time = pa.array(np.zeros(len(rows), dtype=np.int64))
        arrays = {INPUT: number, TS: no_time, **dict(zip(rows.schema.names, rows.columns, strict=True))}
        columns = [arrays[field.name] if field.name in arrays else pa.nulls(len(rows), field.type) for field in schema]
        return pa.RecordBatch.from_arrays(columns, schema.names)

    def _insert(self, operator: OperatorPlan, nth: int, spine: Spine, settled: Settled) -> Spine:
        port = operator.ports[nth]
        if port not in self._deltas:
            return spine
        threshold = self._task.purge[port]
        delta = self._deltas[port]
        file = self._written.get(port)
        if file is None:
            delta = keep_after(delta, threshold)
            if len(delta) == 0:
                return spine
            file = self._write(delta)
        spine = spine.insert(file)
        budget = max(MIN_MERGE_ROWS, int(MERGE_FACTOR * len(delta))) * max(1, len(spine.merges))

        def write(merged: Segment) -> RunFile:
            return self._write(operator.operator.keep(nth, merged, settled))

        def open_slice(piece: Slice) -> Segment:
            return self._open(port, piece)

        return spine.compact(budget, open_slice, write, threshold, self._plan.max_spans[port])

    def _park(self, port: int) -> RunFile:
        """Leave a delta for the round of its operator: in a run, where it will be kept anyway."""
        return self._written.get(port) or self._write(self._deltas[port])

    def _open(self, port: int, piece: Slice) -> Segment:
        return self._open_run(port, piece.file).slice(piece.start, piece.stop)

    def _open_run(self, port: int, file: RunFile) -> Segment:
        return _with_columns(_cache.open(Path(self._task.state), file), self._plan.stored[port])

    def _write(self, segment: Segment) -> RunFile:
        self._files += 1
        return write_run(Path(self._task.state), f"{self._name}-{self._files}.arrow", segment)


def _with_columns(segment: Segment, columns: tuple[str, ...]) -> Segment:
    """The segment with these columns in this order. Other queries may have kept more, or in another order."""
    if tuple(segment.rows.schema.names) == columns:
        return segment
    return replace(segment, rows=segment.rows.select(list(columns)))


def round_prefix(step: int, number: int, processor: int) -> str:
    """How the names of what an attempt at a round writes begin."""
    return f"{step:010d}-{number:02d}-{processor:04d}-"
