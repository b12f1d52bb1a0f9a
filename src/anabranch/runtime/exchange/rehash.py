"""State hashed anew: the rows of a port as another port of a plan stores them, at their owners, in one pass of Spark.

A migration does this where an input is joined on another key first, and a change of the query where it has conditions
that the state has not met. Processors' files are read, one task each; Spark selects rows, computes the key and its
hash, unless it stays as it is, and sends the rows where their partition groups are; there they are sorted and written
as runs. Files of no step that is committed are removed by the next one, like those of a task that failed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from anabranch.errors import InconsistentStepError
from anabranch.kernel.delta import sort_rows
from anabranch.plan.query import RESERVED, all_of, quote
from anabranch.plan.routing import PortRouting
from anabranch.plan.sharing.leaf_state import columns_of
from anabranch.runtime.compile.prepared import PreparedPlan
from anabranch.runtime.exchange.long_rows import limit_batches
from anabranch.runtime.exchange.route import address
from anabranch.runtime.rows.carried import carried_type, from_carried, to_carried
from anabranch.runtime.rows.keys import canonical
from anabranch.runtime.spark.selection import Selection
from anabranch.runtime.spark.worker import settle_worker
from anabranch.state.arrays.row_bytes import concatenated, longest_row, narrowed, rows_at_once
from anabranch.state.groups import GroupSet
from anabranch.state.runs.run import HASH, TS, FileCuts, RunFile, map_run, write_run
from anabranch.state.runs.slice import Slice
from anabranch.state.store import sync

# About how large the runs are that are written, and how many rows are handed to Spark at once.
RUN_BYTES = 64 << 20
ROWS_AT_ONCE = 65_536
_TIME = f"{RESERVED}time"

Pieces = Sequence[Sequence[Slice]]


@dataclass(frozen=True, slots=True)
class Rewriting:
    """The rows of slices, listed per processor, as a `port` stores those of an input: those that meet all `conditions`.

    With the `same_key` they keep the hash that they have.
    """

    port: int
    pieces: Pieces
    conditions: tuple[str, ...] = ()
    same_key: bool = False


def rehash(
    session: SparkSession,
    plan: PreparedPlan,
    rewriting: Rewriting,
    routing: PortRouting,
    *,
    processors: int,
    state: Path,
    epoch: int,
) -> tuple[list[list[RunFile]], dict[str, str]]:
    """Write rows anew; returns the files per processor, and where partition groups begin in them."""
    port, pieces = rewriting.port, rewriting.pieces
    stored, groups = plan.layout.processor.stored[port], plan.layout.processor.groups
    n, p = plan.network.ports[port]
    entry = plan.network.operators[n].ports[p]
    alias = plan.network.inputs[entry.node].entry.alias
    names = {name for _, name in entry.columns}.union(
        *map(columns_of, (*rewriting.conditions, *(() if rewriting.same_key else entry.keys)))
    )
    types = {name: plan.columns.type_of((alias, name)) for name in sorted(names)}
    slots = {name: f"{RESERVED}{k}" for k, name in enumerate(types)}
    kept = _kept(plan, n, stored) if rewriting.same_key else {}
    kept_as = {name: f"{RESERVED}kept{k}" for k, name in enumerate(kept)}
    read = T.StructType(
        [
            *([T.StructField(_TIME, T.LongType())] if TS in stored else []),
            *(T.StructField(kept_as[name], data_type) for name, data_type in kept.items()),
            *(T.StructField(slots[name], carried_type(data_type)) for name, data_type in types.items()),
        ]
    )
    sent_as = kept_as | {f"col.{name}": slot for name, slot in slots.items()}
    limit_batches(session, narrow=plan.layout.narrow, limited=True)
    rows = session.range(0, len(pieces), numPartitions=max(len(pieces), 1)).mapInArrow(
        _reading(state, pieces, sent_as, groups, timed=TS in stored), read
    )
    texts = {name: quote(sent) for name, sent in kept_as.items()} or _key_texts(plan, n, entry.keys)
    hashed = _as_stored(_selected(rows, slots, types, rewriting.conditions), texts, slots, stored)
    columns: dict[str, T.DataType] = {HASH: T.LongType()}
    sent = Selection(*address({0: routing}, columns).exchanged(processors))(hashed)
    schema = T.StructType([T.StructField(name, T.StringType()) for name in ("file", "cuts")] + [_PROCESSOR])
    written = sent.mapInArrow(_writing(state, f"{epoch:06d}-rehashed-{uuid.uuid4().hex[:8]}", stored, groups), schema)
    files: list[list[RunFile]] = [[] for _ in range(processors)]
    cuts = {}
    for row in written.collect():
        body = json.loads(row["file"])
        files[row["processor"]].append(RunFile.from_json(body["name"], body))
        if row["cuts"]:
            cuts[body["name"]] = row["cuts"]
    if not rewriting.conditions:
        _check_count([piece.rows for own in pieces for piece in own], [file.rows for own in files for file in own])
    return files, cuts


def _check_count(read: Sequence[int], written: Sequence[int]) -> None:
    if sum(read) != sum(written):
        raise InconsistentStepError(
            f"{sum(read):,} rows were to be hashed anew, but {sum(written):,} were written. Nothing of it is used"
        )


_PROCESSOR = T.StructField("processor", T.IntegerType())


def _kept(plan: PreparedPlan, n: int, stored: Sequence[str]) -> dict[str, T.DataType]:
    """The hash, and the key where it is stored, with the types that they are sent in."""
    keys = {f"key.{k}": carried_type(data_type) for k, data_type in enumerate(plan.columns.key_types[n])}
    return {HASH: T.LongType(), **{name: data_type for name, data_type in keys.items() if name in stored}}


def _key_texts(plan: PreparedPlan, n: int, keys: Sequence[str]) -> dict[str, str]:
    """The expressions of the hash and of the key, over the columns of the stream."""
    made = [to_carried(canonical(key, t), t) for key, t in zip(keys, plan.columns.key_types[n], strict=True)]
    return {HASH: f"xxhash64({', '.join(made)})", **{f"key.{k}": text for k, text in enumerate(made)}}


def _selected(
    rows: DataFrame, slots: dict[str, str], types: dict[str, T.DataType], conditions: Sequence[str]
) -> DataFrame:
    """The rows that meet all conditions, with the columns of the stream in their own types beside the carried ones."""
    own = rows.selectExpr(
        "*", *(f"{from_carried(quote(slots[name]), data_type)} AS {quote(name)}" for name, data_type in types.items())
    )
    return own.where(all_of(conditions) or "true")


def _as_stored(rows: DataFrame, texts: dict[str, str], slots: dict[str, str], stored: Sequence[str]) -> DataFrame:
    """The rows as they are stored, in the order of stored columns; `texts` are those of the hash and the key."""
    texts = {TS: quote(_TIME), **texts, **{f"col.{name}": quote(slot) for name, slot in slots.items()}}
    return rows.selectExpr(*(f"{texts[name]} AS {quote(sent)}" for name, sent in _sent(stored).items()))


def _sent(stored: Sequence[str]) -> dict[str, str]:
    """What state columns are called on their way: mapInArrow reads names as expressions, and users' may be anything."""
    return {name: name if name == HASH else f"{RESERVED}{nth}" for nth, name in enumerate(stored)}


def _reading(state: Path, pieces: Pieces, slots: dict[str, str], groups: int, *, timed: bool):  # type: ignore[no-untyped-def]
    """A task that reads the rows of its processor's slices: some state columns, by the names they are sent under."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for numbers in batches:
            for number in numbers.column(0).to_pylist():
                for piece in pieces[number]:
                    segment = map_run(state, piece.file).slice(piece.start, piece.stop)
                    rows = segment.of_groups(piece.groups or GroupSet.all(groups)).only_selected().rows
                    named = {slot: rows.column(name) for name, slot in slots.items()}
                    if HASH in slots:
                        named[slots[HASH]] = rows.column(HASH).view(pa.int64())
                    if timed:
                        named = {_TIME: rows.column(TS), **named}
                    chosen = pa.RecordBatch.from_arrays(list(named.values()), list(named))
                    at_once = rows_at_once(ROWS_AT_ONCE, longest_row(chosen))
                    for first in range(0, len(chosen), at_once):
                        yield narrowed(chosen.slice(first, at_once))

    return read


def _writing(state: Path, prefix: str, stored: tuple[str, ...], groups: int):  # type: ignore[no-untyped-def]
    """A task that writes the rows that come to its processor."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "rows are written inside a Spark task"
        settle_worker()
        processor, cuts = context.partitionId(), FileCuts(state, groups)
        name = f"{prefix}-{processor:04d}-{context.attemptNumber()}-{uuid.uuid4().hex[:8]}"
        files, sent = [], _sent(stored)
        for number, rows in enumerate(_in_runs(batches)):
            hashes = rows.column(HASH).view(pa.uint64())
            arrays = [hashes if column == HASH else rows.column(sent[column]) for column in stored]
            segment = sort_rows(pa.RecordBatch.from_arrays(arrays, list(stored)))
            files.append(write_run(state, f"{name}-{number}.arrow", segment))
            cuts.learn(files[-1].name, segment.hashes)
        if files:
            sync(state)
        texts = cuts.texts(file.name for file in files)
        yield pa.record_batch(
            {
                "file": pa.array([json.dumps({"name": file.name, **file.to_json()}) for file in files], pa.string()),
                "cuts": pa.array([texts.get(file.name, "") for file in files], pa.string()),
                "processor": pa.array([processor] * len(files), pa.int32()),
            }
        )

    return write


def _in_runs(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of batches, as many at once as make up a run."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            size += batch.nbytes
        if size > RUN_BYTES:
            yield concatenated(waiting)
            waiting, size = [], 0
    if waiting:
        yield concatenated(waiting)
