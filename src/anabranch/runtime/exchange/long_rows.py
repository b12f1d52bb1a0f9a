"""Rows that are too long for a full Arrow batch, found before Spark makes one.

Spark can bound the bytes of the batches that it hands to Python, but then it measures the batch at every row, which
costs more than writing the row. So as long as rows are short their number is the only bound, and rows that are not are
replaced by a mark on the way: the processor that meets one says so in its report and does nothing else, and the step is
made again with batches that are bounded by bytes, as are all steps of the run from then on. There a value that is too
long for any batch is marked as well, and the processor that meets it says which stream it came from.

Only top-level strings and binaries are measured. Where arrays, maps or structs travel, batches are always bounded by
bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from anabranch.kernel.delta import INPUT
from anabranch.processor import long_rows as marks
from anabranch.runtime.spark.selection import Select, SelectionStep
from anabranch.state.runs.run import HASH

# Rows per Arrow batch on the way to a processor, if all columns have a fixed width, and if not.
NARROW_ROWS = 65_536
WIDE_ROWS = 4_096
NO_BYTE_LIMIT = (1 << 31) - 1
BATCH_BYTES = 64 << 20
# What a row may have of strings and binaries, so that WIDE_ROWS of them are a batch.
SHORT = BATCH_BYTES // WIDE_ROWS

_TEXTS = (T.StringType, T.BinaryType, T.CharType, T.VarcharType)
_NESTED = (T.ArrayType, T.MapType, T.StructType, T.VariantType)


def must_limit(schema: T.StructType) -> bool:
    """Whether rows have columns that are not measured."""
    return any(isinstance(field.dataType, _NESTED) for field in schema)


def limit_batches(session: SparkSession, *, narrow: bool, limited: bool) -> None:
    """Tell a session how many rows, or bytes, make an Arrow batch; `narrow` rows have columns of fixed width only."""
    rows = WIDE_ROWS if not narrow and not limited else NARROW_ROWS
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(rows))
    session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(BATCH_BYTES if limited else NO_BYTE_LIMIT))


def marking(columns: Mapping[str, T.DataType], *, limited: bool) -> tuple[SelectionStep, ...]:
    """From packed rows with these columns to the same, with marks in place of those that are too long for a batch."""
    texts = [name for name, data_type in columns.items() if isinstance(data_type, _TEXTS)]
    if not texts:
        return ()
    sizes = [f"coalesce(octet_length({name}), 0)" for name in texts]
    if limited:
        largest = f"greatest({', '.join([*sizes, '0'])})"
        is_marked, mark = f"{largest} > {marks.LARGEST_VALUE}", f"{marks.TOO_LARGE} - {INPUT}"
    else:
        largest = "0"
        is_marked, mark = f"{' + '.join(f'CAST({size} AS BIGINT)' for size in sizes)} > {SHORT}", str(marks.LONG)
    changed = {
        INPUT: f"CAST(IF({is_marked}, {mark}, {INPUT}) AS SMALLINT)",
        HASH: f"IF({is_marked}, CAST({largest} AS BIGINT), {HASH})",
        **{name: f"IF({is_marked}, NULL, {name})" for name in texts},
    }
    return (Select(tuple(f"{changed.get(name, name)} AS {name}" for name in columns)),)
