"""A query processor: one Spark task per round of a step, a pure function of (its manifest, arriving rows).

It receives packed rows, rejects the late and the bad, runs the operators of the round on the rest and its state, writes
results in bounded chunks, or yields them into the next exchange, and only then writes new runs and its report: a
document with the new manifest and what was counted. What arrives for an operator of a later round waits in a run that
the report names (`parked`). Run files and reports have names of their own per attempt, so repeated and speculative
attempts never meet. Every attempt of a round computes the same multiset of results and the same state, so any complete
report will do. In the last round a processor yields nothing but the name of its report.

A row of a partition group that is not this processor's means that rows were not brought where they belong: the step
fails, and nothing of it counts.
"""

from __future__ import annotations

import time
import traceback
import uuid
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.errors import AnabranchError, InconsistentStepError
from anabranch.kernel.delta import INPUT, keep_after, sort_delta, sort_rows
from anabranch.kernel.operator import Counted, Settled, SpillableOperator, answers_later
from anabranch.kernel.probe import blocks
from anabranch.processor.answering import Answering
from anabranch.processor.arrivals import Arrivals, check_owned
from anabranch.processor.long_rows import has_long_rows
from anabranch.processor.outlets import Outlets
from anabranch.processor.parked import find_reports, round_prefix
from anabranch.processor.run_files import RunFiles
from anabranch.processor.segments import all_among, of_groups, rows_of, with_columns
from anabranch.processor.tasks import Goes, OperatorPlan, ProcessorPlan, StepTask
from anabranch.state.arrays.row_bytes import concatenated
from anabranch.state.expiry import Spared, keep_alive
from anabranch.state.failpoints import failpoint
from anabranch.state.generation import by_since, spilled_groups
from anabranch.state.groups import GroupSet, group_counts
from anabranch.state.manifest import Manifest, OperatorState
from anabranch.state.merge import merge_segments
from anabranch.state.merge_budget import merge_rows
from anabranch.state.report import Report, parse_parked, report_body
from anabranch.state.run import HASH, TS, RunFile, Segment
from anabranch.state.slice import Only, Slice, slices_of_groups
from anabranch.state.spill import (
    Held,
    Reunited,
    all_generations,
    bytes_by_group,
    drop_expired,
    leave_spilled,
    present_groups,
    reunite,
    spared,
    spilled_bytes,
)
from anabranch.state.spine import Spine
from anabranch.state.statistics import DECAY, Statistics
from anabranch.state.store import encode_document, full_disk, read_document, sync, write_file

# The only column of what processors yield in the last round: the name of their report.
REPORT = "report"
# State that is read at once by clean-up.
CLEAN_UP_BYTES = 64 << 20

NOTHING = Segment.of(pa.record_batch({HASH: pa.array([], pa.uint64()), TS: pa.array([], pa.int64())}))


def run_processor(
    plan: ProcessorPlan, task: StepTask, number: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Process one round of a step; if it fails, leave word of the cause where the driver looks for it."""
    attempt = _Attempt(plan, task, number)
    try:
        yield from attempt.run(batches)
    except (AnabranchError, OSError) as error:
        told = error if isinstance(error, AnabranchError) else full_disk(error, task.state)
        if told is None:
            raise
        path = Path(task.reports) / f"failed-{task.processor}-{uuid.uuid4().hex[:8]}.json"
        body = {"error": type(told).__name__, "message": str(told), "trace": traceback.format_exc()}
        with suppress(AnabranchError):  # a disk that is full may have no room for this either
            write_file(path, encode_document(body))
        raise told from error
    finally:
        attempt.outlets.close()


class _Attempt:
    """One attempt at one round of one step of one processor."""

    def __init__(self, plan: ProcessorPlan, task: StepTask, number: int) -> None:
        self._plan = plan
        self._task = task
        self._number = number
        self._round = plan.rounds[number]
        self._name = f"{round_prefix(task, number)}{uuid.uuid4().hex[:8]}"
        self._files = RunFiles(task.state, self._name, task.processor, plan.stored, plan.groups)
        self._earlier: list[str] = []  # the reports of this processor's earlier rounds
        self._report = Report.empty(task.processor, len(plan.aliases), plan.operators, len(plan.written), number)
        self._cuts = self._files.cuts
        self.outlets = Outlets(plan, task, self._report, self._name[-8:])
        self._deltas: dict[int, Segment] = {}  # what is new, by port
        self._written: dict[int, RunFile] = {}  # of these, what is in a run already
        self._drained: dict[int, Segment] = {}  # what has waited and is answered later, by port
        self._produced: NDArray[np.int64] = np.zeros(plan.groups, dtype=np.int64)  # by the operator at work, by group
        self._fresh = self._produced  # of these, results of what is new

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task, report = self._task, self._report
        arrived = [batch for batch in batches if batch.num_rows]
        started = _clocks()
        waited = np.zeros(2)
        before = Manifest.from_json(task.manifest)
        self._files.start({piece.file for piece in before.active()})
        spines, states = list(before.spines), [OperatorState()] * len(before.operators)
        report.arrived = sum(map(len, arrived))
        report.long_rows = has_long_rows(arrived, self._plan.aliases if self._number == 0 else ())
        if not report.long_rows:
            self._take_parked()
            self._take_arrived(arrived)
        mine = [port for operator in self._round.operators for port in operator.ports]
        for operator in self._round.operators:
            states[operator.number] = before.operators[operator.number]
            for results in self._work(operator, spines, states):
                yielded = _clocks()
                yield results
                waited += _clocks() - yielded
        self.outlets.close()
        for file in task.warm:
            self._files.warm(file)
        waiting = sorted(port for port, delta in self._deltas.items() if port not in mine and len(delta))
        parked = {port: self._park(port) for port in waiting}
        listed = tuple(spine if port in mine else Spine() for port, spine in enumerate(spines))
        manifest = Manifest(listed, tuple(states))
        report.look_at(manifest)
        report.cuts = self._cuts.texts(self._files.written)
        report.busy_ms, report.cpu_ms = ((_clocks() - started - waited) * 1000).tolist()
        failpoint("processor.report")
        if self._files.written:
            sync(self._files.directory)
        body = report_body(report, manifest, parked, self._earlier)
        write_file(Path(task.reports) / f"{self._name}.json", encode_document(body))
        if self._number == len(self._plan.rounds) - 1:
            yield pa.record_batch({REPORT: [f"{self._name}.json"]})

    def _work(
        self, operator: OperatorPlan, spines: list[Spine], states: list[OperatorState]
    ) -> Iterator[pa.RecordBatch]:
        """All that an operator does in a step; its spines and its state are changed in place."""
        settled = self._settled(operator)
        for port in operator.ports:
            self._drop_answered(port, settled)
        state = self._hold_back(operator, states[operator.number])
        answering = self._answering(operator, states[operator.number], state)
        had = [spines[port] for port in operator.ports]
        needed = spared(state, [self._plan.windows[port] for port in operator.ports])
        expired: list[Slice] = []
        for port in operator.ports:
            before = len(spines[port].retired)
            spines[port] = spines[port].purge(self._task.purge[port], needed, self._cuts)
            expired += spines[port].retired[before:]
        if expired:
            found = present_groups(expired, self._plan.groups, self._cuts)
            state = replace(state, retired=found if state.retired is None else found | state.retired)
        for port in operator.ports:
            spines[port] = self._consolidate(port, spines[port], needed)
        self._produced = np.zeros(self._plan.groups, dtype=np.int64)
        arrived = self._arrived(operator)
        touched = arrived > 0
        self._report.worked += int(arrived.sum())
        yield from self._route(operator, self._results(operator, spines, state, answering))
        self._fresh = self._produced.copy()
        for nth, port in enumerate(operator.ports):
            spines[port] = self._insert(operator, nth, spines[port], answering, needed)
        cleaning = self._task.clean_up.get(operator.number)
        own = spilled_groups(state.generations)
        if cleaning is not None and own is not None:
            held = [spines[port] for port in operator.ports], state
            for meant, stays in ((own & cleaning.groups - cleaning.back, True), (own & cleaning.back, False)):
                for groups, complete in answering.of_groups(meant):
                    for some in self._in_turn(held[1], groups):
                        held = yield from self._clean_up(operator, held, some, complete, stays=stays)
                touched |= meant.mask() & (not stays)
            for port, spine in zip(operator.ports, held[0], strict=True):
                spines[port] = spine
            state = held[1]
        cleaned = GroupSet(self._plan.groups, 0) if cleaning is None or own is None else own & cleaning.groups
        state = replace(state, overdue=answering.left(cleaned))
        now = [spines[port] for port in operator.ports]
        state = replace(state, statistics=self._count(state.statistics, had, now, arrived, touched))
        if operator.number not in self._plan.groupings:
            state = drop_expired(state, [self._task.purge[port] for port in operator.ports], self._cuts)
        states[operator.number] = state

    def _settled(self, operator: OperatorPlan) -> Settled:
        groupings = self._plan.groupings
        return self._task.settled[groupings.index(operator.number)] if operator.number in groupings else Settled()

    def _answering(self, operator: OperatorPlan, before: OperatorState, state: OperatorState) -> Answering:
        count, settled = self._plan.groups, self._settled(operator)
        if operator.number not in self._plan.groupings:
            return Answering.together(settled, count)
        return Answering.of(before, state, settled, count, self._cuts)

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
        """What arrived or was made in earlier rounds for operators of this one."""
        for path in find_reports(self._task, self._number):
            self._earlier.append(path.name)
            for port, file in parse_parked(read_document(path)).items():
                if any(port in operator.ports for operator in self._round.operators):
                    self._add_delta(port, self._files.open_run(port, file), file=file)

    def _take_arrived(self, arrived: list[pa.RecordBatch]) -> None:
        if not arrived:
            return
        packed = concatenated(arrived)
        if self._number == 0:
            sorting = Arrivals(self._plan, self._task, self._report, self._name)
            for port, delta in sorting.sort_out(packed, self._round.arrivals).items():
                check_owned(self._plan, self._task, port, delta)
                self._add_delta(port, delta)
            return
        tags = packed.column(INPUT).to_numpy()
        for tag, arrival in self._round.arrivals.items():
            delta = sort_delta(packed, np.flatnonzero(tags == tag), arrival.stored)
            check_owned(self._plan, self._task, arrival.port, delta)
            self._add_delta(arrival.port, delta)

    def _add_delta(self, port: int, *added: Segment, file: RunFile | None = None) -> None:
        """What has come to a port, beside what came there on other ways; all of it may be in a `file` already."""
        known = self._deltas.get(port)
        parts = [with_columns(part, self._plan.stored[port]) for part in added if len(part)]
        if known is not None and len(known) and parts:
            parts.insert(0, known)
        if len(parts) > 1:
            rows = [part.rows.select(parts[0].rows.schema.names) for part in parts]
            self._deltas[port] = sort_rows(concatenated(rows))
            self._written.pop(port, None)
        elif parts or known is None:
            self._deltas[port] = parts[0] if parts else with_columns(added[0], self._plan.stored[port])
            if file is not None:
                self._written[port] = file

    def _hold_back(self, operator: OperatorPlan, state: OperatorState) -> OperatorState:
        """Let rows of some groups wait, and let those come that have waited and need not any more."""
        waits = self._task.hold.get(operator.number, GroupSet(self._plan.groups, 0))
        if not waits and not state.held:
            return state
        goes_on, held = GroupSet.all(self._plan.groups) - waits, []
        for nth, port in enumerate(operator.ports):
            before = state.held[nth] if state.held else ()
            kept = list(slices_of_groups(before, waits, self._cuts))
            delta = self._deltas.get(port)
            if delta is not None and len(delta):
                waiting = waits.holds(delta.hashes)
                if waiting.any():
                    wait = rows_of(delta, waiting)
                    present = GroupSet.of(
                        self._plan.groups, np.flatnonzero(group_counts(wait.hashes, self._plan.groups))
                    )
                    file = self._files.write(wait)
                    kept.append(Slice(file, 0, file.rows, Only(present, file.rows)))
                    self._deltas[port] = rows_of(delta, ~waiting)
                    self._written.pop(port, None)
            come = [self._files.read(port, piece) for piece in slices_of_groups(before, goes_on, self._cuts)]
            if come and answers_later(operator.operator):
                # Not with what is new: then runs that follow each other would be of the same times.
                self._drained[port] = sort_rows(concatenated([part.rows for part in come]))
            elif come:
                self._add_delta(port, *come)
            held.append(tuple(kept))
        return replace(state, held=tuple(held) if any(held) else ())

    def _results(
        self, operator: OperatorPlan, spines: list[Spine], state: OperatorState, answering: Answering
    ) -> Iterator[pa.RecordBatch]:
        """What an operator makes of the active state and of what is new."""
        kernel = operator.operator
        if not kernel.waits and not any(len(self._deltas.get(port, ())) for port in operator.ports):
            return
        old = [[self._files.open(port, piece) for piece in spines[port].slices()] for port in operator.ports]
        deltas = [
            self._deltas.get(port) or (segments[0].slice(0, 0) if segments else NOTHING)
            for port, segments in zip(operator.ports, old, strict=True)
        ]
        if not isinstance(kernel, SpillableOperator):
            for groups, settled in (share for share in answering.shares if share[0]):
                # It may look at rows as it likes.
                seen = [[s.solid() for s in segments] for segments in all_among(old, groups)]
                yield from kernel.process(seen, [of_groups(delta, groups) for delta in deltas], settled)
            return
        frozen = spilled_groups(state.generations) if kernel.freezes else None
        active = old if frozen is None else all_among(old, GroupSet.all(self._plan.groups) - frozen)
        yield from self._counting(kernel.counted(active, deltas, answering.by_group, self._plan.groups))

    def _in_turn(self, state: OperatorState, groups: GroupSet) -> Iterator[GroupSet]:
        """Groups to be cleaned up, as many at a time as should be read at once."""
        count = self._plan.groups
        sizes = spilled_bytes(state.generations, count) + state.statistics.dense(count).bytes
        numbers = groups.numbers()
        for first, last in blocks(sizes[numbers], CLEAN_UP_BYTES):
            yield GroupSet.of(self._plan.groups, numbers[first:last])

    def _clean_up(
        self, operator: OperatorPlan, held: Held, groups: GroupSet, settled: Settled, *, stays: bool
    ) -> Generator[pa.RecordBatch, None, Held]:
        """Deliver what some groups owe, and write their rows as one run per port; returns what is held then.

        Only rows of these groups are read, and no file stays mapped.
        """
        kernel = operator.operator
        assert isinstance(kernel, SpillableOperator), "only what can be cleaned up is spilled"
        rows: list[list[Segment]] = [[] for _ in operator.ports]
        for since, some in by_since(held[1].generations, groups) if kernel.freezes else [(None, groups)]:
            generations = [
                [
                    [self._files.read(port, piece) for piece in slices]
                    for port, slices in zip(operator.ports, ports, strict=True)
                ]
                for ports in all_generations(*held, some, self._cuts)
            ]
            for ports in generations:
                for nth, segments in enumerate(ports):
                    rows[nth] += segments
            owed = kernel.owed(generations, Settled(since, settled.until), self._plan.groups)
            yield from self._route(operator, self._counting_owed(operator, owed))
        now = self._reunited(operator, held[1], groups, rows, settled)
        if not stays:
            self._produced[groups.numbers()] = now.produced
            self._produced -= held[1].statistics.dense(self._plan.groups).produced * groups.mask()
            return reunite(*held, now, self._cuts)
        self._produced[groups.numbers()] = 0
        since = settled.until if kernel.freezes else self._task.since[operator.number]
        return leave_spilled(*held, now, self._cuts, self._task.step, since)

    def _reunited(
        self,
        operator: OperatorPlan,
        state: OperatorState,
        groups: GroupSet,
        rows: list[list[Segment]],
        settled: Settled,
    ) -> Reunited:
        """Write what is left of the rows of some groups, and add up what they have given."""
        count, numbers = self._plan.groups, groups.numbers()
        slices: list[Slice | None] = []
        for nth, port in enumerate(operator.ports):
            threshold = self._task.purge[port]
            merged = merge_segments(rows[nth], threshold) if rows[nth] else None
            merged = None if merged is None else operator.operator.keep(nth, merged, settled)
            file = None if merged is None else self._files.write(merged)
            slices.append(None if file is None else Slice(file, 0, file.rows))
        produced = self._produced + state.statistics.dense(count).produced
        for generation in state.generations:
            produced = produced + generation.dense(generation.produced)
        sizes = bytes_by_group((piece for piece in slices if piece is not None), count, self._cuts)
        return Reunited(groups, tuple(slices), tuple(sizes[numbers].tolist()), tuple(produced[numbers].tolist()))

    def _counting_owed(self, operator: OperatorPlan, owed: Iterator[Counted]) -> Iterator[pa.RecordBatch]:
        for results in self._counting(owed):
            self._report.owed[operator.number] += len(results)
            yield results

    def _counting(self, counted: Iterator[Counted]) -> Iterator[pa.RecordBatch]:
        for results, counts in counted:
            if len(results) != counts.sum():
                raise InconsistentStepError(f"{counts.sum():,} results of an operator came as {len(results):,} rows")
            self._produced += counts
            yield results

    def _route(self, operator: OperatorPlan, chunks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Results that leave the processor; those that stay become the deltas of their ports, or go into files."""
        staying: dict[int, list[pa.RecordBatch]] = {}
        for chunk in chunks:
            self._report.produced[operator.number] += len(chunk)
            failpoint("processor.results")
            for destination in operator.destinations:
                picked = destination.take(chunk)
                if destination.goes is Goes.HERE:
                    staying.setdefault(destination.number, []).append(picked)
                elif destination.goes is Goes.EXCHANGE:
                    yield self._outgoing(destination.number, picked)
                else:
                    self.outlets.give(destination.number, picked, len(chunk))
        for port, made in staying.items():
            self._add_delta(port, sort_rows(concatenated(made)))

    def _arrived(self, operator: OperatorPlan) -> NDArray[np.int64]:
        """How many rows have come for each group of an operator."""
        found = np.zeros(self._plan.groups, dtype=np.int64)
        for rows in (rows for port in operator.ports for rows in self._come(port)):
            found += group_counts(rows.hashes, self._plan.groups)
        return found

    def _come(self, port: int) -> list[Segment]:
        """What has come to a port: rows that have waited, and new ones."""
        return [come[port] for come in (self._drained, self._deltas) if len(come.get(port, ()))]

    def _count(
        self,
        known: Statistics,
        had: list[Spine],
        spines: list[Spine],
        arrived: NDArray[np.int64],
        touched: NDArray[np.bool_],
    ) -> Statistics:
        """What is known of an operator's groups after the step, given rows by group and the groups that got any."""
        before = known.dense(self._plan.groups)
        sizes = before.bytes
        if spines != had:
            listed = (piece for spine in spines for piece in spine.slices())
            sizes = bytes_by_group(listed, self._plan.groups, self._cuts)
        return Statistics(
            before.groups,
            sizes,
            before.produced + self._produced,
            # What comes back from disk brings its old results along, and what stays there has none that count.
            before.recent * DECAY + np.minimum(self._produced, self._fresh),
            np.where(touched, self._task.now, before.inserted),
            before.arrived + arrived,
        ).present()

    def _outgoing(self, tag: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Results of an operator in the schema that all of a round share in the exchange after it."""
        schema = self._round.exchanged
        assert schema is not None, "an exchange has a schema"
        number = pa.array(np.full(len(rows), tag, dtype=np.int16))
        no_time = pa.array(np.zeros(len(rows), dtype=np.int64))
        arrays = {INPUT: number, TS: no_time, **dict(zip(rows.schema.names, rows.columns, strict=True))}
        columns = [arrays[field.name] if field.name in arrays else pa.nulls(len(rows), field.type) for field in schema]
        return pa.RecordBatch.from_arrays(columns, schema.names)

    def _insert(
        self, operator: OperatorPlan, nth: int, spine: Spine, answering: Answering, needed: Spared | None
    ) -> Spine:
        port = operator.ports[nth]
        ours = isinstance(operator.operator, SpillableOperator)
        settled = answering.afterwards if ours else answering.by_all
        threshold = self._task.purge[port]
        come, had = self._come(port), spine
        for rows in come:
            file = self._written.get(port) if rows is self._deltas.get(port) else None
            alive = keep_alive(rows, threshold, needed) if file is None else None
            if alive is not None:
                file = self._files.write(alive)
            if file is not None:
                spine = spine.insert(file)
        if spine is had:
            return spine
        budget = merge_rows(sum(map(len, come)), spine) * max(1, len(spine.merges))

        def write(merged: Segment) -> RunFile:
            # What a spilled group still needs is not known here.
            return self._files.write(merged if needed is not None else operator.operator.keep(nth, merged, settled))

        return spine.compact(budget, self._files.scan(port), write, threshold, self._plan.max_spans[port], needed)

    def _consolidate(self, port: int, spine: Spine, needed: Spared | None) -> Spine:
        """Write anew what has come in small parts, or is left of runs; nothing of this step is answered yet, so what an
        operator does not need any more after its answers (`keep`) is still there."""
        budget, threshold = merge_rows(sum(map(len, self._come(port))), spine), self._task.purge[port]
        files, span = self._files, self._plan.max_spans[port]
        return spine.consolidate(budget, files.scan(port), files.write, threshold, span, needed)

    def _park(self, port: int) -> RunFile:
        """Leave a delta for the round of its operator: in a run, where it will be kept anyway."""
        return self._written.get(port) or self._files.write(self._deltas[port])


def _clocks() -> NDArray[np.float64]:
    """The time, and the CPU time of this worker, which has one task at a time; both in seconds."""
    return np.array([time.perf_counter(), time.process_time()])
