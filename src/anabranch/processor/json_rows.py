"""Arrow rows as JSON texts that every JSON reader takes back, whatever values are in them.

No value is turned into a Python date, time or number that could refuse it: dates of any year, text that is not UTF-8,
NaN and binary come through. JSON has no form for some of them, so:

| value | in JSON |
|---|---|
| NaN, Infinity, -Infinity | the text `"NaN"`, `"Infinity"`, `"-Infinity"`, as Spark writes them |
| DECIMAL | text, all digits |
| BINARY | text, Base64 |
| DATE, TIMESTAMP, TIMESTAMP_NTZ, TIME | text as in ISO 8601; TIMESTAMP in UTC, with a Z; years beyond 9999 signed |
| INTERVAL DAY TO SECOND | a number: microseconds |
| map | a list of objects with `key` and `value` |
| STRING that is not UTF-8 | text with U+FFFD where bytes are wrong; `Texts.invalid` has the bytes in hexadecimal |
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

NULL = "null"
_DAYS_BEFORE_1970 = 719_162  # since the first day of year 1
_DAYS_OF_400_YEARS = 146_097  # after which the calendar repeats itself
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


@dataclass(frozen=True, slots=True)
class Texts:
    """The JSON text of every row; and of rows with text that is not UTF-8, its bytes by the place in the row.

    A place is the name of a column and what leads to the value, such as `tags[].name` or `counts[].key`.
    """

    rows: list[str]
    invalid: dict[int, dict[str, list[str]]] = field(default_factory=dict)


def json_rows(columns: dict[str, pa.Array], count: int) -> Texts:
    """Some rows as JSON objects, with the names in order."""
    texts = Texts([])
    encoded = {name: _encode(columns[name], name, range(count), texts) for name in sorted(columns)}
    texts.rows.extend(_objects(encoded, count))
    return texts


def _objects(encoded: dict[str, list[str]], count: int) -> Iterator[str]:
    names = [json.dumps(name) for name in encoded]
    for n in range(count):
        parts = (f"{name}: {values[n]}" for name, values in zip(names, encoded.values(), strict=True))
        yield f"{{{', '.join(parts)}}}"


def _encode(values: pa.Array, place: str, rows: Sequence[int], texts: Texts) -> list[str]:
    """The JSON text of every value; each belongs to the row whose number is in `rows`."""
    kind = values.type
    if pa.types.is_null(kind):
        return [NULL] * len(values)
    if pa.types.is_struct(kind):
        names = [kind.field(n).name for n in range(kind.num_fields)]
        parts = [
            _encode(part, f"{place}.{name}", rows, texts) for name, part in zip(names, values.flatten(), strict=True)
        ]
        made = list(_objects(dict(zip(names, parts, strict=True)), len(values)))
        return [text if valid else NULL for text, valid in zip(made, values.is_valid().to_pylist(), strict=True)]
    if pa.types.is_map(kind):
        return _encode_maps(values, place, rows, texts)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _encode_lists(values, place, rows, texts)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        raw = values.cast(pa.large_binary()).to_pylist()
        return [NULL if text is None else _text(text, place, row, texts) for text, row in zip(raw, rows, strict=True)]
    scalars, encode = _scalars(values)
    return [NULL if value is None else encode(value) for value in scalars]


def _encode_maps(values: pa.MapArray, place: str, rows: Sequence[int], texts: Texts) -> list[str]:
    """Maps as lists of entries.

    A cast to lists would do, but of maps inside of others pyarrow 26 makes arrays that it falls over itself.
    """
    bounds, valid = pairwise(values.offsets.to_pylist()), values.is_valid().to_pylist()
    entries = [range(first, last) if there else None for (first, last), there in zip(bounds, valid, strict=True)]
    owners = [row for row, own in zip(rows, entries, strict=True) for _ in own or ()]
    chosen = pa.array([entry for own in entries for entry in own or ()], pa.int64())
    parts = {"key": values.keys, "value": values.items}
    encoded = {name: _encode(part.take(chosen), f"{place}[].{name}", owners, texts) for name, part in parts.items()}
    elements = _objects(encoded, len(owners))
    return [NULL if own is None else f"[{', '.join(next(elements) for _ in own)}]" for own in entries]


def _encode_lists(values: pa.Array, place: str, rows: Sequence[int], texts: Texts) -> list[str]:
    lengths = pc.list_value_length(values).to_pylist()
    owners = [row for row, length in zip(rows, lengths, strict=True) for _ in range(length or 0)]
    elements = iter(_encode(values.flatten(), f"{place}[]", owners, texts))
    return [NULL if length is None else f"[{', '.join(next(elements) for _ in range(length))}]" for length in lengths]


def _scalars(values: pa.Array) -> tuple[list[Any], Callable[[Any], str]]:
    """Values as Python objects that can hold every one of them, and how each is written."""
    kind = values.type
    if pa.types.is_boolean(kind):
        return values.to_pylist(), lambda value: "true" if value else "false"
    if pa.types.is_integer(kind):
        return values.to_pylist(), str
    if pa.types.is_floating(kind):
        return values.cast(pa.float64()).to_pylist(), _float
    if pa.types.is_decimal(kind):
        return values.to_pylist(), lambda value: f'"{value:f}"'
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return values.to_pylist(), lambda value: f'"{base64.b64encode(value).decode()}"'
    if pa.types.is_date32(kind):
        return values.cast(pa.int32()).to_pylist(), lambda days: f'"{_date(days)}"'
    if pa.types.is_duration(kind):
        return values.cast(pa.int64()).to_pylist(), str
    if pa.types.is_time64(kind):
        per_second = _PER_SECOND[kind.unit]
        return values.cast(pa.int64()).to_pylist(), lambda units: f'"{_time(units, per_second)}"'
    if pa.types.is_timestamp(kind):
        per_second, zone = _PER_SECOND[kind.unit], "" if kind.tz is None else "Z"
        return values.cast(pa.int64()).to_pylist(), lambda units: f'"{_moment(units, per_second)}{zone}"'
    raise TypeError(f"a value of type {kind} has no form in JSON; Spark hands none over")


def _text(raw: bytes, place: str, row: int, texts: Texts) -> str:
    try:
        return json.dumps(raw.decode())
    except UnicodeDecodeError:
        texts.invalid.setdefault(row, {}).setdefault(place, []).append(raw.hex())
        return json.dumps(raw.decode(errors="replace"))


def _float(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


def _date(days: int) -> str:
    """A day of the Gregorian calendar, also before its beginning and beyond the years that Python knows."""
    cycles, rest = divmod(days + _DAYS_BEFORE_1970, _DAYS_OF_400_YEARS)
    day = dt.date.fromordinal(rest + 1)
    year = day.year + 400 * cycles
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{day.month:02d}-{day.day:02d}"


def _time(units: int, per_second: int) -> str:
    seconds, fraction = divmod(units, per_second)
    digits = f"{fraction:0{len(str(per_second)) - 1}d}" if per_second > 1 else ""
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{clock}.{digits}" if fraction else clock


def _moment(units: int, per_second: int) -> str:
    days, rest = divmod(units, 86_400 * per_second)
    return f"{_date(days)}T{_time(rest, per_second)}"
