"""Pack: from the streams' own rows to the one schema that crosses the exchange, in Spark expressions only.

Predicates over one stream and the exclusion of null keys happen here, before anything is shuffled. A row whose event
time is missing or out of range is not dropped: it travels with a note (`reject`) that names stream, column and the
row, and the processor decides whether the run stops or the row goes to quarantine.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from anabranch.errors import QueryError
from anabranch.kernel.delta import INPUT
from anabranch.kernel.multiway import MAX_TIME
from anabranch.runtime.carried import quote
from anabranch.runtime.layout import InputLayout, Layout, Slot, key_expressions
from anabranch.runtime.processor import REJECT
from anabranch.state.groups import Placement, even_placement, group_bits
from anabranch.state.run import HASH, TS

_EPOCH = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"


def pack(layout: Layout, frames: dict[str, DataFrame]) -> DataFrame:
    """All inputs of the query as one streaming DataFrame of packed rows."""
    packed = [
        _pack_input(layout, number, entry, frames[entry.input.stream]) for number, entry in enumerate(layout.inputs)
    ]
    return reduce(DataFrame.union, packed)


def processor_of(placement: Placement) -> Column:
    """The processor of a packed row: the routing table, as a literal of this batch's plan.

    Contiguous blocks are computed; a table of 256 literals would be walked by every rule of Spark's planner.
    """
    groups, processors = len(placement), max(placement) + 1
    bits = group_bits(groups)
    group = f"CAST(shiftrightunsigned({HASH}, {64 - bits}) AS INT)" if bits else "0"
    if placement == even_placement(groups, processors):
        return F.expr(f"CAST({group} * {processors} DIV {groups} AS INT)")
    return F.expr(f"get(array({','.join(map(str, placement))}), {group})")


def _pack_input(layout: Layout, number: int, entry: InputLayout, frame: DataFrame) -> DataFrame:
    keys = key_expressions(entry.input, layout.key_types)
    rows = frame.where(entry.input.predicate) if entry.input.predicate else frame
    for key in entry.input.key:
        rows = rows.where(f"({key}) IS NOT NULL")
    columns = [F.lit(number).cast("tinyint").alias(INPUT), F.expr(f"xxhash64({', '.join(keys)})").alias(HASH)]
    if layout.timed:
        columns.extend(_time_columns(entry, frame))
    values = dict(entry.values)
    columns.extend(_slot_column(slot, values) for slot in layout.slots)
    return rows.select(*columns)


def _slot_column(slot: Slot, values: dict[str, str]) -> Column:
    value = F.expr(values[slot.name]) if slot.name in values else F.lit(None).cast(slot.type)
    return value.alias(slot.name)


def _time_columns(entry: InputLayout, frame: DataFrame) -> list[Column]:
    if entry.time is None or entry.time_type is None:
        return [F.lit(0).cast("bigint").alias(TS), F.lit(None).cast("string").alias(REJECT)]
    micros, in_range = _micros(entry.time, entry.time_type, entry.input.stream)
    good = F.expr(f"coalesce({in_range}, false)")
    problem = F.when(F.expr(quote(entry.time)).isNull(), "its event time is null").otherwise(
        "its event time is out of range"
    )
    note = F.to_json(
        F.struct(
            F.lit(entry.input.stream).alias("stream"),
            F.lit(entry.time).alias("column"),
            problem.alias("problem"),
            _row_text(frame).alias("row"),
        )
    )
    return [
        F.when(good, F.expr(micros)).otherwise(F.lit(0).cast("bigint")).alias(TS),
        F.when(good, F.lit(None).cast("string")).otherwise(note).alias(REJECT),
    ]


def _row_text(frame: DataFrame) -> Column:
    """The whole row for people to read, in a form that every type has."""
    parts = []
    for field in frame.schema:
        name = quote(field.name)
        text = f"hex({name})" if isinstance(field.dataType, T.BinaryType) else f"CAST({name} AS STRING)"
        parts.append(F.concat(F.lit(f"{field.name}="), F.coalesce(F.expr(text), F.lit("null"))))
    return F.concat_ws(", ", *parts)


def _micros(column: str, data_type: T.DataType, stream: str) -> tuple[str, str]:
    """Event time as microseconds since the epoch, and the condition under which it is usable."""
    name = quote(column)
    if isinstance(data_type, T.TimestampType):
        value = f"unix_micros({name})"
    elif isinstance(data_type, T.TimestampNTZType):
        since = f"({name} - {_EPOCH})"
        value = (
            f"(CAST(extract(DAY FROM {since}) AS BIGINT) * 86400000000"
            f" + extract(HOUR FROM {since}) * 3600000000L + extract(MINUTE FROM {since}) * 60000000L"
            f" + CAST(extract(SECOND FROM {since}) * 1000000 AS BIGINT))"
        )
    elif isinstance(data_type, T.LongType):
        limit = MAX_TIME // 1000
        return f"{name} * 1000", f"{name} BETWEEN -{limit} AND {limit}"
    else:
        raise QueryError(
            f"the time column {column} of stream {stream} is {data_type.simpleString()}; "
            "event time must be TIMESTAMP, TIMESTAMP_NTZ or BIGINT milliseconds"
        )
    return value, f"{value} BETWEEN -{MAX_TIME} AND {MAX_TIME}"
