"""Where the results of an operator go: into files, through the next exchange, or to ports on the same processor."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from anabranch.kernel.delta import INPUT, sort_rows
from anabranch.processor.operators.working import OperatorAtWork
from anabranch.processor.tasks import DestinationKind
from anabranch.state.arrays.row_bytes import concatenated
from anabranch.state.failpoints import failpoint
from anabranch.state.runs.run import TS


def send_results(work: OperatorAtWork, chunks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Send results to their destinations; yields those that go through the exchange.

    Results that stay on the processor become new rows of their ports; the others go to the outlets.
    """
    operator, attempt = work.operator, work.attempt
    staying: dict[int, list[pa.RecordBatch]] = {}
    for chunk in chunks:
        attempt.report.produced[operator.number] += len(chunk)
        failpoint("processor.results")
        for destination in operator.destinations:
            picked = destination.take(chunk)
            if destination.kind is DestinationKind.HERE:
                staying.setdefault(destination.number, []).append(picked)
            elif destination.kind is DestinationKind.EXCHANGE:
                yield _outgoing(attempt.round.exchanged, destination.number, picked)
            else:
                attempt.outlets.take(destination.number, picked, len(chunk))
    for port, batches in staying.items():
        work.deltas.add(port, sort_rows(concatenated(batches)))


def _outgoing(schema: pa.Schema | None, tag: int, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Results in the schema that all operators of a round share in the exchange after it."""
    assert schema is not None, "an exchange has a schema"
    number = pa.array(np.full(len(rows), tag, dtype=np.int16))
    no_time = pa.array(np.zeros(len(rows), dtype=np.int64))
    # Spark knows no unsigned numbers: a hash that is passed on travels as a signed one with the same bits.
    given = (column.view(pa.int64()) if column.type == pa.uint64() else column for column in rows.columns)
    arrays = {INPUT: number, TS: no_time, **dict(zip(rows.schema.names, given, strict=True))}
    columns = [arrays[field.name] if field.name in arrays else pa.nulls(len(rows), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema.names)
