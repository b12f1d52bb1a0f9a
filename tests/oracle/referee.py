"""The referee: what a query must answer, computed by DuckDB from the complete input (SPEC section 0).

A join is written as the definition reads: equal keys, and every ts >= t* - w with t* the greatest ts of the
combination. There are no batches, no state and no hashes here, so whatever agrees with the referee for every batching
is independent of the batching. DuckDB, like Spark, takes NaN = NaN and -0.0 = 0.0, and matches no null keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import duckdb
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Stream:
    """The complete input of one stream.

    `keys` are its columns of the join key, in the same order for every stream. `ts` names its event time, if it has
    any: a timestamp or an integer. `window` is in microseconds for a timestamp, else in the integer's own unit; None
    is unbounded.
    """

    rows: pa.Table | pa.RecordBatch
    keys: Sequence[str]
    ts: str | None = None
    window: int | None = None


def join(streams: Mapping[str, Stream], select: Sequence[str] | None = None, where: str | None = None) -> pa.Table:
    """The answer as a table.

    `select` and `where` are DuckDB expressions over the streams' names; without `select` every column s.c comes out as
    s_c.
    """
    names = list(streams)
    first = streams[names[0]]
    conditions = [
        f"{_column(names[0], left)} = {_column(name, right)}"
        for name in names[1:]
        for left, right in zip(first.keys, streams[name].keys, strict=True)
    ]
    times = {name: _time(name, stream) for name, stream in streams.items() if stream.ts is not None}
    if times:
        newest = f"greatest({', '.join(times.values())})"
        conditions += [
            f"{times[name]} >= {newest} - CAST({stream.window} AS HUGEINT)"
            for name, stream in streams.items()
            if stream.window is not None
        ]
    if where is not None:
        conditions.append(f"({where})")
    everything = [
        f'{_column(name, column)} AS "{name}_{column}"'
        for name, stream in streams.items()
        for column in stream.rows.schema.names
    ]
    columns = ", ".join(everything if select is None else select)
    tables = ", ".join(f'"{name}"' for name in names)
    statement = f"SELECT {columns} FROM {tables} WHERE {' AND '.join(conditions) or 'true'}"
    return query(statement, {name: stream.rows for name, stream in streams.items()})


def difference(actual: pa.Table, expected: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Rows missing from `actual` and rows that are too many in it, both as multisets; columns by position."""
    tables = {"actual": actual, "expected": expected}
    missing = query("SELECT * FROM expected EXCEPT ALL SELECT * FROM actual", tables)
    surplus = query("SELECT * FROM actual EXCEPT ALL SELECT * FROM expected", tables)
    return missing, surplus


def assert_same_rows(actual: pa.Table, expected: pa.Table) -> None:
    """Fail with a few examples unless both tables hold the same multiset of rows."""
    missing, surplus = difference(actual, expected)
    assert len(missing) == len(surplus) == 0, (
        f"{len(actual)} rows, {len(expected)} expected: "
        f"{len(missing)} missing, such as {missing.slice(0, 3).to_pylist()}; "
        f"{len(surplus)} too many, such as {surplus.slice(0, 3).to_pylist()}"
    )


def query(statement: str, tables: Mapping[str, pa.Table | pa.RecordBatch]) -> pa.Table:
    """Run SQL over Arrow tables by name."""
    with _database().cursor() as cursor:
        for name, rows in tables.items():
            table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
            cursor.register(name, table)
        return cursor.sql(statement).to_arrow_table()


@cache
def _database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 2})


def _column(name: str, column: str) -> str:
    return f'"{name}"."{column}"'


def _time(name: str, stream: Stream) -> str:
    assert stream.ts is not None
    column = _column(name, stream.ts)
    is_timestamp = pa.types.is_timestamp(stream.rows.schema.field(stream.ts).type)
    return f"CAST({f'epoch_us({column})' if is_timestamp else column} AS HUGEINT)"
