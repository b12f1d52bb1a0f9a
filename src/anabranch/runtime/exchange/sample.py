"""Samples of the state at some ports, in one pass of Spark: the rows whose hash of a key lies in a range.

Each class of equal terms has a range of its own, the same at all ports (`plan/orders/join_sample` says what that is
good for). At a port that is hashed, and so sorted, on the only class that its rows have, the range is a slice of each
run: only that is handed on. At other ports all rows are read, and Spark computes the hashes. What comes back are hashes
only. A file is verified when a process reads it for the first time, so that costs a pass over the whole of it, once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from anabranch.plan.orders.join_sample import InputSample
from anabranch.plan.query import RESERVED, quote
from anabranch.runtime.exchange.long_rows import limit_batches
from anabranch.runtime.rows.carried import carried_type, from_carried, to_carried
from anabranch.runtime.rows.keys import canonical
from anabranch.state.groups import GroupSet
from anabranch.state.runs.run import HASH, map_run
from anabranch.state.runs.slice import Slice

ROWS_AT_ONCE = 65_536
_HASHED = f"{RESERVED}hash"
_ALL_HASHES = 1 << 64
# Ranges lie in the half of all hashes that are not negative to Spark.
_HALF = 1 << 63


@dataclass(frozen=True, slots=True)
class SampledPort:
    """A port to be sampled: its rows, as slices by processor, and the `terms` of its input, by class, with their key
    types. It may be `hashed` on the only class there is; else `columns` have the types of what the terms read."""

    pieces: Sequence[Sequence[Slice]]
    terms: Mapping[int, tuple[str, T.DataType]]
    hashed: int | None
    columns: Mapping[str, T.DataType]

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(piece.rows for pieces in self.pieces for piece in pieces)


@dataclass(frozen=True, slots=True)
class HashRange:
    """A range of hashes, from `start` on: a share of all that there are, at most a half, or all of them."""

    start: int
    share: float

    @classmethod
    def of(cls, share: float, place: float) -> HashRange:
        """A range with this share at a place, from 0 (first) to 1 (last)."""
        if share > 0.5:
            return cls(0, 1.0)
        return cls(int(place * (_HALF - share * _ALL_HASHES)), share)

    @property
    def stop(self) -> int:
        """The first hash behind it."""
        return self.start + int(self.share * _ALL_HASHES)

    @property
    def is_all(self) -> bool:
        """Whether it has every hash."""
        return self.share == 1.0


def sample(
    session: SparkSession, ports: Sequence[SampledPort], ranges: Mapping[int, HashRange], state: Path, groups: int
) -> tuple[InputSample, ...]:
    """The samples of some ports, in their order."""
    limit_batches(session, narrow=True, limited=True)
    frames = [
        _sampled(session, number, port, ranges, state, groups)
        for number, port in enumerate(ports)
        if port.rows and port.terms
    ]
    if not frames:
        return tuple(InputSample(port.rows, {}) for port in ports)
    rows = reduce(DataFrame.unionAll, frames).toArrow()
    of = rows.column("port").to_numpy()
    samples = []
    for number, port in enumerate(ports):
        own = rows.filter(pa.array(of == number))
        hashes = {c: own.column(_name(c)).fill_null(0).to_numpy().view(np.uint64) for c in port.terms}
        kept = {}
        for by in port.terms:
            inside = _is_inside(hashes[by], ranges[by])
            kept[by] = {c: values[inside] for c, values in hashes.items()}
        samples.append(InputSample(port.rows, kept))
    return tuple(samples)


def _sampled(
    session: SparkSession,
    number: int,
    port: SampledPort,
    ranges: Mapping[int, HashRange],
    state: Path,
    groups: int,
) -> DataFrame:
    """The hashes of rows of a port that are in any range of its classes."""
    slots = {f"col.{name}": f"{RESERVED}{k}" for k, name in enumerate(port.columns)} if port.hashed is None else {}
    fields = [T.StructField(slots[f"col.{name}"], carried_type(t)) for name, t in port.columns.items() if slots]
    only = None if port.hashed is None else ranges[port.hashed]
    read = T.StructType(fields or [T.StructField(_HASHED, T.LongType())])
    tasks = max(len(port.pieces), 1)
    rows = session.range(0, len(port.pieces), numPartitions=tasks).mapInArrow(
        _reading(state, port.pieces, slots, only, groups), read
    )
    if port.hashed is None:
        rows = rows.selectExpr(
            *(f"{from_carried(quote(slots[f'col.{name}']), t)} AS {quote(name)}" for name, t in port.columns.items())
        )
        texts = {c: f"xxhash64({to_carried(canonical(term, t), t)})" for c, (term, t) in port.terms.items()}
    else:
        texts = {port.hashed: quote(_HASHED)}
    hashes = [f"{texts.get(c, 'CAST(NULL AS BIGINT)')} AS {_name(c)}" for c in sorted(ranges)]
    inside = " OR ".join(_inside(c, ranges[c]) for c in port.terms)
    return rows.selectExpr(f"{number} AS port", *hashes).where(inside)


def _inside(c: int, hashes: HashRange) -> str:
    return "true" if hashes.is_all else f"({_name(c)} >= {hashes.start} AND {_name(c)} < {hashes.stop})"


def _is_inside(hashes: np.ndarray, only: HashRange) -> np.ndarray:
    if only.is_all:
        return np.ones(len(hashes), dtype=bool)
    return (hashes >= np.uint64(only.start)) & (hashes < np.uint64(only.stop))


def _name(c: int) -> str:
    return f"class_{c}"


def _reading(  # type: ignore[no-untyped-def]
    state: Path, pieces: Sequence[Sequence[Slice]], slots: Mapping[str, str], only: HashRange | None, groups: int
):
    """A task that reads some columns of its processor's slices, or the hashes in a range."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for numbers in batches:
            for number in numbers.column(0).to_pylist():
                for piece in pieces[number]:
                    segment = map_run(state, piece.file).slice(piece.start, piece.stop)
                    if only is not None and not only.is_all:
                        edges = np.array([only.start, only.stop], dtype=np.uint64)
                        segment = segment.slice(*np.searchsorted(segment.hashes, edges).tolist())
                    rows = segment.of_groups(piece.groups or GroupSet.all(groups)).only_selected().rows
                    if slots:
                        names, columns = list(slots.values()), [rows.column(name) for name in slots]
                    else:
                        names, columns = [_HASHED], [rows.column(HASH).view(pa.int64())]
                    chosen = pa.RecordBatch.from_arrays(columns, names)
                    for first in range(0, len(chosen), ROWS_AT_ONCE):
                        yield chosen.slice(first, ROWS_AT_ONCE)

    return read
