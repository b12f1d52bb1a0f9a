"""Streams that the tests of the language query."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anabranch.language import parse_query
from anabranch.plan.query import ContinuousQuery, StreamSchema

Bind = Callable[..., ContinuousQuery]

COLUMNS = ("k", "v", "ts", "payload", "arr", "m", "x", "y")

STREAMS = {
    **{name: StreamSchema(name, COLUMNS, time="ts") for name in ("s", "t", "u")},
    "w": StreamSchema("w", COLUMNS, time="ts", lateness=0),
    "z": StreamSchema("z", COLUMNS, time="ts", lateness=1_000_000),
    "timeless": StreamSchema("timeless", ("k", "price")),
    "odd": StreamSchema("odd", ("k", "a.b", "c`d", "end", "order", "V", "v", "day", "user"), time="day"),
}


@pytest.fixture
def bind() -> Bind:
    """Bind a query over the test streams."""
    return lambda text, joins="auto", emit="tuple": parse_query(text, STREAMS, joins, emit)
