"""Pack: from the streams' own rows to the one schema of packed rows, in Spark expressions only.

What is read here lives as long as Spark's streaming query. Predicates over one stream and the exclusion of null keys
happen here if all inputs of the stream have them in common; the rest happens in `split`. A bad row, whose event time is
missing or out of range or on which a condition or a key fails, is not dropped: it travels with a note (`reject`) that
names stream, column and the row, and the processor decides whether the run stops or the row goes to quarantine. A row
that some other condition excludes, or whose key is null, is not looked at further.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from anabranch.errors import QueryError
from anabranch.kernel.delta import INPUT
from anabranch.kernel.join.combinations import MAX_TIME
from anabranch.plan.query import all_of, quote
from anabranch.processor.arrivals import REJECT
from anabranch.runtime.compile.layout import Exchange, Lane, Slot
from anabranch.runtime.compile.packed import Must, PackedLayout, PackedSource, Reading
from anabranch.runtime.rows.carried import from_carried, type_text
from anabranch.runtime.rows.derived import Sources, passing
from anabranch.runtime.rows.fallible import VALUE, try_value
from anabranch.runtime.rows.notes import NOTE, bad_row, literal
from anabranch.runtime.spark.selection import Select, SelectionStep, Where
from anabranch.state.runs.run import HASH, TS

# The number of a packed row's source.
SOURCE = "source"

# The tried values (`rows/fallible`), by the text of the expression that can fail.
TriedValues = dict[str, Column]

_EPOCH = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"


def pack(layout: PackedLayout, sources: Sources, read: Sequence[str] = ()) -> DataFrame:
    """All sources as one streaming DataFrame of packed rows.

    Streams come in the order in which they are `read`, also those of which no input takes rows any more.
    """
    packed = []
    for name in dict.fromkeys([*read, *(source.stream for source in layout.sources)]):
        used = [(number, source) for number, source in enumerate(layout.sources) if source.stream == name]
        for number, source in used:
            reading = source.reading
            rows = sources.frame(reading.source, reading.source_time, reading.types)
            packed.append(_pack_source(layout, number, source, rows))
        if not used:
            packed.append(_pack_nothing(layout, sources.registered[name]))
    return reduce(DataFrame.union, packed)


def pack_between(exchange: Exchange) -> tuple[SelectionStep, ...]:
    """From the rows that processors yield to packed rows of the next round: selected, with hashes and keys."""
    steps: list[SelectionStep] = [Select(("*", *(text for lane in exchange.lanes for text in joined_columns(lane))))]
    if any(lane.conditions for lane in exchange.lanes):
        conditions = {lane.tag: all_of(lane.conditions) or "true" for lane in exchange.lanes}
        steps.append(Where(_by_lane(conditions, exchange)))
    hashes = {lane.tag: _hash(lane) for lane in exchange.lanes}
    made = [f"{_by_lane(hashes, exchange)} AS {HASH}"]
    made += [name for name in (INPUT, TS) if name in exchange.yielded.names]
    for slot in exchange.slots:
        texts = {lane.tag: text for lane in exchange.lanes for place, text in lane.computed if place == slot.name}
        if slot.name in exchange.yielded.names and texts:
            texts = {lane.tag: texts.get(lane.tag, slot.name) for lane in exchange.lanes}
        made.append(
            f"CAST({_by_lane(texts, exchange)} AS {type_text(slot.type)}) AS {slot.name}" if texts else slot.name
        )
    return (*steps, Select(tuple(made)))


def _hash(lane: Lane) -> str:
    """The hash of rows in a lane: that of their key, or the one that they have already."""
    passed = {name: slot for slot, name in lane.passed}
    return passed.get(HASH) or f"xxhash64({', '.join(lane.hashed)})"


def joined_columns(lane: Lane) -> list[str]:
    """The columns of a lane, by their names above the joins and in their own types."""
    return [f"{from_carried(column.slot, column.type)} AS {quote(column.name)}" for column in lane.columns]


def _by_lane(texts: dict[int, str], exchange: Exchange) -> str:
    """An expression that depends on the lane that a row is in; of rows in other lanes nothing is computed."""
    if len(exchange.lanes) == 1:
        return next(iter(texts.values()))
    return f"CASE {INPUT} {' '.join(f'WHEN {tag} THEN {text}' for tag, text in texts.items())} END"


def _pack_source(layout: PackedLayout, number: int, source: PackedSource, frame: DataFrame) -> DataFrame:
    fallible = [entry.expression for entry in source.reading.fallible]
    tried_values = {expression.text: try_value(frame.sparkSession, expression) for expression in fallible}
    rows = _taking_part(source, frame, tried_values)
    columns = [F.expr(f"{number}S AS {SOURCE}")]
    if layout.timed:
        columns.append(_time_column(source.reading).alias(TS))
    if layout.can_reject:
        columns.append(_reject_column(source.reading, frame, tried_values).alias(REJECT))
    values = {value.slot: value.text for value in source.values}
    columns.extend(_slot_column(slot, values, tried_values) for slot in layout.slots)
    return rows.select(*columns)


def _pack_nothing(layout: PackedLayout, frame: DataFrame) -> DataFrame:
    """No row of a stream, as packed rows."""
    columns = [F.lit(0).cast("smallint").alias(SOURCE)]
    if layout.timed:
        columns.append(F.lit(0).cast("bigint").alias(TS))
    if layout.can_reject:
        columns.append(F.lit(None).cast("string").alias(REJECT))
    columns += [F.lit(None).cast(slot.type).alias(slot.name) for slot in layout.slots]
    return frame.where("false").select(*columns)


def _taking_part(source: PackedSource, frame: DataFrame, tried_values: TriedValues) -> DataFrame:
    """The rows that no condition excludes and that have a key, as far as that can be told."""
    conditions = [F.expr(condition) for condition in source.conditions]
    for entry in source.reading.fallible:
        tried = tried_values[entry.expression.text]
        if entry.must is Must.BE_TRUE:
            conditions.append(tried.isNull() | tried[VALUE])
        elif entry.must is Must.BE_THERE:
            conditions.append(tried.isNull() | tried[VALUE].isNotNull())
    return passing(frame, conditions)


def _slot_column(slot: Slot, values: dict[str, str], tried_values: TriedValues) -> Column:
    if slot.name not in values:
        return F.lit(None).cast(slot.type).alias(slot.name)
    text = values[slot.name]
    return tried_values[text][VALUE].alias(slot.name) if text in tried_values else F.expr(f"{text} AS {slot.name}")


def _time_column(reading: Reading) -> Column:
    """Event time in microseconds; 0 where it is unusable or there is none."""
    if reading.time is None or reading.time_type is None:
        return F.expr("0L")
    micros, in_range = _micros(reading.time, reading.time_type, reading.source.stream)
    return F.expr(f"IF(coalesce({in_range}, false), {micros}, 0L)")


def _reject_column(reading: Reading, frame: DataFrame, tried_values: TriedValues) -> Column:
    """The note on what is wrong with a row, or null."""
    nothing = F.lit(None).cast("string")
    stream = reading.source.stream
    notes = [F.col(quote(NOTE))] if NOTE in frame.columns else []
    notes += [
        F.when(
            tried_values[entry.expression.text].isNull(),
            bad_row(frame, stream, ", ".join(entry.expression.reads), literal(f"{entry.what} cannot be evaluated")),
        )
        for entry in reading.fallible
    ]
    if reading.time is not None and reading.time_type is not None:
        _, in_range = _micros(reading.time, reading.time_type, stream)
        unusable = f"IF({quote(reading.time)} IS NULL, 'null', 'out of range')"
        problem = f"concat('its event time is ', {unusable})"
        good = F.expr(f"coalesce({in_range}, false)")
        column = reading.source_time or reading.time
        notes.append(F.when(good, nothing).otherwise(bad_row(frame, stream, column, problem)))
    return F.coalesce(*notes) if len(notes) > 1 else notes[0] if notes else nothing


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
