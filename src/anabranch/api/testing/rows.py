"""Rows as a test writes them, checked and brought to the types of their stream: tuples, dicts or Arrow.

Times, dates and decimal numbers may be texts, as in "2026-01-01 00:00:00". A time without a zone is in the time zone of
the session, as everywhere in Spark. A value that does not fit is refused here, with stream, row and column; Spark would
refuse it later, and in more words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, tzinfo
from decimal import Decimal, DecimalException
from functools import partial
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from anabranch.errors import BadRowError, did_you_mean

# A row: its values in the order of the columns, or by name; what is not named is null.
Row: TypeAlias = Sequence[Any] | Mapping[str, Any]
Rows: TypeAlias = pa.Table | pa.RecordBatch | Iterable[Row]

_REFUSED = (pa.ArrowException, TypeError, ValueError, OverflowError, DecimalException)


def table_of(stream: str, rows: Rows, schema: pa.Schema, zone: str) -> pa.Table:
    """The rows of a stream as an Arrow table of its schema; `zone` is the session's time zone."""
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        return _cast(stream, rows, schema)
    if isinstance(rows, str | Mapping) or not isinstance(rows, Iterable):
        raise BadRowError(f"stream {stream!r}: give a list of rows, tuples or dicts, or an Arrow table, not {rows!r}")
    values = [_values(f"stream {stream!r}, row {n}", row, schema.names) for n, row in enumerate(rows)]
    columns = list(zip(*values, strict=True)) or [()] * len(schema)
    moments = _zone(zone)
    arrays = [_array(stream, field, column, moments) for field, column in zip(schema, columns, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _cast(stream: str, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    missing = [name for name in schema.names if rows.schema.names.count(name) != 1]
    surplus = [name for name in rows.schema.names if name not in schema.names]
    if missing or surplus:
        raise BadRowError(f"stream {stream!r} has the columns {_listed(schema)}; the table has {_listed(rows.schema)}")
    try:
        return rows.select(schema.names).cast(schema)
    except _REFUSED as error:
        raise BadRowError(f"stream {stream!r}: the table's columns do not fit: {error}") from None


def _values(where: str, row: Row, names: Sequence[str]) -> Sequence[Any]:
    """A row's values in the order of the columns."""
    if isinstance(row, Mapping):
        for name in row:
            if name not in names:
                raise BadRowError(f"{where}: there is no column {name!r}; {did_you_mean(str(name), names)}")
        return [row.get(name) for name in names]
    if isinstance(row, str | bytes) or not isinstance(row, Sequence):
        raise BadRowError(f"{where}: a row is a tuple of {', '.join(names)}, or a dict, not {row!r}")
    if len(row) != len(names):
        raise BadRowError(
            f"{where} has {_several(len(row), 'value')}, but the stream has {_several(len(names), 'column')}: "
            f"{', '.join(names)}; give one value for each, None for null"
        )
    return row


def _array(stream: str, field: pa.Field, values: Sequence[Any], zone: tzinfo) -> pa.Array:
    read = _reader(field.type, zone)

    def made(some: Sequence[Any]) -> pa.Array:
        return pa.array([None if value is None else read(value) for value in some], field.type)

    try:
        return made(values)
    except _REFUSED:
        for n, value in enumerate(values):
            try:
                made([value])
            except _REFUSED as error:
                raise BadRowError(
                    f"stream {stream!r}, row {n}: {value!r} is no value of the column {field.name!r}, which is "
                    f"{field.type}: {error}"
                ) from None
        raise


def _reader(kind: pa.DataType, zone: tzinfo) -> Callable[[Any], Any]:
    """A function that turns a value as a test writes it into one of a column's type."""
    if pa.types.is_timestamp(kind):
        return partial(_moment, zone=zone if kind.tz is not None else None)
    if pa.types.is_date(kind):
        return lambda value: date.fromisoformat(value) if isinstance(value, str) else value
    if pa.types.is_decimal(kind):
        return lambda value: Decimal(str(value)) if isinstance(value, str | float) else value
    return lambda value: value


def _moment(value: Any, zone: tzinfo | None) -> Any:
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    if isinstance(moment, datetime) and zone is None and moment.tzinfo is not None:
        raise ValueError("the column has no time zone, so leave that of the value out")
    if isinstance(moment, datetime) and zone is not None and moment.tzinfo is None:
        return moment.replace(tzinfo=zone)
    return moment


def _zone(name: str) -> tzinfo:
    """A time zone as Spark names it: Europe/Rome, or +01:00 with or without GMT before it."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        zone = datetime.strptime(name.removeprefix("GMT").removeprefix("UTC"), "%z").tzinfo
        assert zone is not None, "%z is a zone"
        return zone


def _listed(schema: pa.Schema) -> str:
    return ", ".join(schema.names) or "no columns"


def _several(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
