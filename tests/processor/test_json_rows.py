"""Rows that are put aside as JSON: no value makes writing fail, and a JSON reader takes each of them back."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.processor.json_rows import json_rows
from tests.oracle.profiles import examples

DAYS = st.integers(-(2**31), 2**31 - 1)
MICROS = st.integers(-(2**63), 2**63 - 1)


def of_bits(kind: pa.DataType, bits: st.SearchStrategy[int], storage: pa.DataType) -> tuple:
    """Values of a type, made of whole numbers: Python's own types could not hold all of them."""
    return kind, bits, storage


LEAVES = {
    "null": (pa.null(), st.none(), pa.null()),
    "boolean": (pa.bool_(), st.booleans(), pa.bool_()),
    "tinyint": (pa.int8(), st.integers(-128, 127), pa.int8()),
    "bigint": (pa.int64(), MICROS, pa.int64()),
    "float": (pa.float32(), st.floats(width=32), pa.float32()),
    "double": (pa.float64(), st.floats(), pa.float64()),
    "decimal": (pa.decimal128(38, 18), st.decimals(-(10**19), 10**19, places=18), pa.decimal128(38, 18)),
    "string": (pa.string(), st.binary(max_size=4), pa.binary()),
    "large string": (pa.large_string(), st.binary(max_size=4), pa.large_binary()),
    "binary": (pa.binary(), st.binary(max_size=4), pa.binary()),
    "date": of_bits(pa.date32(), DAYS, pa.int32()),
    "timestamp": of_bits(pa.timestamp("us", "Europe/Berlin"), MICROS, pa.int64()),
    "timestamp_ntz": of_bits(pa.timestamp("us"), MICROS, pa.int64()),
    "time": of_bits(pa.time64("ns"), st.integers(0, 86_400 * 10**9 - 1), pa.int64()),
    "interval": of_bits(pa.duration("us"), MICROS, pa.int64()),
}


@st.composite
def arrays(draw: st.DrawFn, rows: int, depth: int = 2) -> pa.Array:
    """An array of any type that travels, with nulls."""
    nested = draw(st.sampled_from(["leaf", "list", "struct", "map"])) if depth else "leaf"
    missing = pa.array(draw(st.lists(st.booleans(), min_size=rows, max_size=rows)), pa.bool_())
    if nested == "struct":
        parts = [draw(arrays(rows, depth - 1)) for _ in range(draw(st.integers(0, 2)))]
        fields = [pa.field(name, part.type) for name, part in zip("ab", parts, strict=False)]
        if not fields:
            return pa.array([None if gone else {} for gone in missing.to_pylist()], pa.struct([]))
        return pa.StructArray.from_arrays(parts, fields=fields, mask=missing)
    if nested in ("list", "map"):
        lengths = draw(st.lists(st.integers(0, 2), min_size=rows, max_size=rows))
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), pa.int32())
        elements = draw(arrays(sum(lengths), depth - 1))
        if nested == "list":
            return pa.ListArray.from_arrays(offsets, elements, mask=missing)
        keys = pa.array([b"\xff%d" % n for n in range(len(elements))], pa.binary()).view(pa.string())
        return pa.MapArray.from_arrays(offsets, keys, elements, mask=missing)
    kind, values, storage = LEAVES[draw(st.sampled_from(sorted(LEAVES)))]
    chosen = draw(st.lists(st.none() | values, min_size=rows, max_size=rows))
    return pa.array(chosen, storage).view(kind) if kind != storage else pa.array(chosen, storage)


def refuse_constant(text: str) -> None:
    raise AssertionError(f"{text} is not JSON")


def back(text: str) -> Any:
    """As a strict reader of JSON reads it."""
    return json.loads(text, parse_constant=refuse_constant)


@examples(150)
@given(st.data())
def test_every_value_of_every_type_is_written_as_json(data: st.DataObject) -> None:
    rows = data.draw(st.integers(0, 4))
    columns = {name: data.draw(arrays(rows)) for name in ("b", 'an "odd" näme', "a")}
    start = data.draw(st.integers(0, rows))
    columns = {name: array[start:] for name, array in columns.items()}
    rows -= start
    texts = json_rows(columns, rows)
    assert [list(back(text)) for text in texts.rows] == [sorted(columns)] * rows
    for name, array in columns.items():
        for text, valid in zip(texts.rows, array.is_valid().to_pylist(), strict=True):
            assert (back(text)[name] is not None) == valid


@examples(100)
@given(number=st.floats(), digits=st.decimals(-(10**19), 10**19, places=18), raw=st.binary(max_size=6), time=MICROS)
def test_what_is_read_back_is_what_was_written(number: float, digits: Any, raw: bytes, time: int) -> None:
    columns = {
        "number": pa.array([number]),
        "digits": pa.array([digits], pa.decimal128(38, 18)),
        "binary": pa.array([raw]),
        "text": pa.array([raw]).view(pa.string()),
        "time": pa.array([time]).view(pa.timestamp("us")),
    }
    texts = json_rows(columns, 1)
    row = back(texts.rows[0])
    read = float(row["number"])
    assert read == number or (math.isnan(read) and math.isnan(number))
    assert pa.scalar(row["digits"]).cast(pa.decimal128(38, 18)).as_py() == digits
    assert base64.b64decode(row["binary"]) == raw
    assert bytes.fromhex(texts.invalid.get(0, {}).get("text", [row["text"].encode().hex()])[0]) == raw
    assert row["text"] == raw.decode(errors="replace")
    if abs(time) < 2**55:  # years that NumPy spells in the same way
        expected = np.datetime64(time, "us")
        assert np.datetime64(row["time"]) == expected or row["time"][0] in "+-"


def test_maps_inside_of_maps_are_written_wherever_their_array_begins() -> None:
    inner = pa.MapArray.from_arrays(
        pa.array([0, 1, 1, 3, 4], pa.int32()), pa.array(["a", "b", "c", "d"]), pa.array([1, 2, None, 4])
    )
    outer = pa.MapArray.from_arrays(
        pa.array([0, 2, 2, 4], pa.int32()), pa.array(["p", "q", "r", "s"]), inner, mask=pa.array([False, True, False])
    )
    texts = json_rows({"m": outer[1:]}, 2)
    first = [{"key": "b", "value": 2}, {"key": "c", "value": None}]
    second = [{"key": "d", "value": 4}]
    assert [back(text)["m"] for text in texts.rows] == [
        None,
        [{"key": "r", "value": first}, {"key": "s", "value": second}],
    ]


@pytest.mark.parametrize(
    ("days", "text"),
    [
        (0, "1970-01-01"),
        (-719_162, "0001-01-01"),
        (-719_163, "0000-12-31"),
        (-719_528, "0000-01-01"),
        (-719_529, "-0001-12-31"),
        (2_932_896, "9999-12-31"),
        (35804721, "+99999-12-31"),
    ],
)
def test_a_date_of_any_year_is_spelt_as_in_iso_8601(days: int, text: str) -> None:
    column = pa.array([days], pa.int32()).view(pa.date32())
    assert back(json_rows({"d": column}, 1).rows[0]) == {"d": text}


def test_text_that_is_not_utf8_is_told_by_its_place_wherever_it_is() -> None:
    wrong = pa.array([b"ok", b"\xff"]).view(pa.string())
    tags = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.StructArray.from_arrays([wrong], ["name"]))
    texts = json_rows({"tags": tags, "k": pa.array([1, 2])}, 2)
    assert [back(text) for text in texts.rows] == [
        {"k": 1, "tags": [{"name": "ok"}]},
        {"k": 2, "tags": [{"name": "\ufffd"}]},
    ]
    assert texts.invalid == {1: {"tags[].name": ["ff"]}}
