"""A query processor: one Spark task per round of a step, from its manifest and arriving rows to results and a report.

It receives packed rows, rejects the late and the bad, runs the operators of the round on the rest and its state, writes
results in bounded chunks, or yields them into the next exchange, and only then writes new runs and its report: a
document with the new manifest and what was counted. What arrives for an operator of a later round waits in a run that
the report names (`parked`). Run files and reports have names of their own per attempt, so repeated and speculative
attempts never meet. Every attempt of a round computes the same multiset of results and the same state, so any complete
report will do. In the last round a processor yields nothing but the name of its report.

Rows of a diffused group whose home is another processor may come as copies: they are joined, and then forgotten. What
they meet here and the home lists is borrowed for the step. Both are counted, written and rejected at the home alone.

A row of a partition group that this processor does not own has been routed wrongly: then the step fails, and nothing
of it counts.
"""

from __future__ import annotations

import time
import traceback
import uuid
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.errors import AnabranchError
from anabranch.processor.arrivals import take_arrived
from anabranch.processor.context import Attempt, new_attempt
from anabranch.processor.deltas import Deltas
from anabranch.processor.long_rows import has_long_rows
from anabranch.processor.operators.operator_step import run_operator
from anabranch.processor.parked import find_reports
from anabranch.processor.tasks import ProcessorPlan, StepTask
from anabranch.state.failpoints import failpoint
from anabranch.state.manifest import Manifest, OperatorState
from anabranch.state.report import parse_parked, report_body
from anabranch.state.runs.run import RunFile
from anabranch.state.runs.spine import Spine
from anabranch.state.spill import FullState
from anabranch.state.store import encode_document, full_disk, read_document, sync, write_file

# The only column of what processors yield in the last round: the name of their report.
REPORT = "report"


def run_processor(
    plan: ProcessorPlan, task: StepTask, number: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Process one round of a step. If it fails, write the cause to a file where the driver looks for it."""
    attempt = new_attempt(plan, task, number)
    try:
        yield from _run(attempt, batches)
    except (AnabranchError, OSError) as error:
        cause = error if isinstance(error, AnabranchError) else full_disk(error, task.state)
        if cause is None:
            raise
        path = Path(task.reports) / f"failed-{task.processor}-{uuid.uuid4().hex[:8]}.json"
        body = {"error": type(cause).__name__, "message": str(cause), "trace": traceback.format_exc()}
        with suppress(AnabranchError):  # a disk that is full may have no room for this either
            write_file(path, encode_document(body))
        raise cause from error
    finally:
        attempt.outlets.close()


def _run(attempt: Attempt, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    task, report = attempt.task, attempt.report
    arrived = [batch for batch in batches if batch.num_rows]
    started, waited = _clocks(), np.zeros(2)
    before = Manifest.from_json(task.manifest)
    attempt.files.start({piece.file for piece in chain(before.active(), *task.borrowed)})
    report.arrived = sum(map(len, arrived))
    report.long_rows = has_long_rows(arrived, attempt.plan.aliases if attempt.number == 0 else ())
    deltas, earlier = Deltas(attempt.plan.stored, task.copied), list[str]()
    if not report.long_rows:
        earlier = _take_parked(attempt, deltas)
        take_arrived(attempt, deltas, arrived)
    spines, states = [Spine()] * len(before.spines), [OperatorState()] * len(before.operators)
    for operator in attempt.round.operators:
        own = [before.spines[port] for port in operator.ports]
        begun = _clocks() - waited
        work = run_operator(attempt, deltas, operator, own, before.operators[operator.number])
        own, states[operator.number] = yield from _pass_on(work, waited)
        report.operator_cpu_ms[operator.number] = float((_clocks() - waited - begun)[1]) * 1000
        for port, spine in zip(operator.ports, own, strict=True):
            spines[port] = spine
    attempt.outlets.close()
    for file in task.warm:
        attempt.files.warm(file)
    parked = _park(attempt, deltas)
    manifest = Manifest(tuple(spines), tuple(states))
    report.count_state(manifest)
    report.cuts = attempt.cuts.texts(attempt.files.written)
    report.busy_ms, report.cpu_ms = ((_clocks() - started - waited) * 1000).tolist()
    failpoint("processor.report")
    if attempt.files.written:
        sync(attempt.files.directory)
    body = report_body(report, manifest, parked, earlier)
    write_file(Path(task.reports) / f"{attempt.name}.json", encode_document(body))
    if attempt.is_last_round:
        yield pa.record_batch({REPORT: [f"{attempt.name}.json"]})


def _pass_on(
    work: Generator[pa.RecordBatch, None, FullState], waited: NDArray[np.float64]
) -> Generator[pa.RecordBatch, None, FullState]:
    """Yield the results of an operator, and return what it returns; `waited` grows by the time the exchange takes."""
    while True:
        try:
            results = next(work)
        except StopIteration as stop:
            full_state: FullState = stop.value
            return full_state
        yielded = _clocks()
        yield results
        waited += _clocks() - yielded


def _take_parked(attempt: Attempt, deltas: Deltas) -> list[str]:
    """Take the rows that earlier rounds left for operators of this one; returns the names of their reports."""
    ports = {port for operator in attempt.round.operators for port in operator.ports}
    names = []
    for path in find_reports(attempt.task, attempt.number):
        names.append(path.name)
        for port, file in parse_parked(read_document(path)).items():
            if port in ports:
                deltas.add(port, attempt.files.open_run(port, file), file=file)
    return names


def _park(attempt: Attempt, deltas: Deltas) -> dict[int, RunFile]:
    """Leave new rows for the rounds of their operators: in runs, where they will be kept anyway."""
    ports = {port for operator in attempt.round.operators for port in operator.ports}
    parked = {}
    for port in deltas.ports():
        rows = deltas.new(port)
        if port not in ports and rows is not None:
            parked[port] = deltas.file_of(port, rows) or attempt.files.write(rows)
    return parked


def _clocks() -> NDArray[np.float64]:
    """The time, and the CPU time of this worker, which has one task at a time; both in seconds."""
    return np.array([time.perf_counter(), time.process_time()])
