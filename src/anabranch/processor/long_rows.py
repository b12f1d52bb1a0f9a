"""Marks that stand for rows that were too long to come as they are (`runtime/exchange/long_rows` makes them)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from anabranch.errors import BadRowError
from anabranch.kernel.delta import INPUT
from anabranch.observe.numbers import format_bytes
from anabranch.state.runs.run import HASH

LARGEST_VALUE = 256 << 20

# In place of the number of an input: a long row; and, less by its number, one with a value that is too large.
LONG = -1
TOO_LARGE = -2


def has_long_rows(arrived: Sequence[pa.RecordBatch], streams: tuple[str, ...]) -> bool:
    """Whether there are marks of long rows: then the step is made again. A value that is too large is refused."""
    long = False
    for batch in arrived:
        tags = batch.column(INPUT).to_numpy()
        least = int(tags.min())
        if least <= TOO_LARGE:
            number, size = TOO_LARGE - least, int(batch.column(HASH)[int(tags.argmin())].as_py())
            where = f"stream {streams[number]}" if number < len(streams) else "a joined row"
            raise BadRowError(
                f"{where}: a row has a value of {format_bytes(size)}, and a value may have at most "
                f"{format_bytes(LARGEST_VALUE)}. Leave such values out of what the query reads, or cut them, in the "
                "stream's DataFrame"
            )
        long |= least == LONG
    return long
