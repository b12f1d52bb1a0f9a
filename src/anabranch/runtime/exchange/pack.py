"""Pack: from the streams' own rows to the one schema that crosses the exchange, in Spark expressions only.

Predicates over one stream and the exclusion of null keys happen here, before anything is shuffled. A bad row, whose
event time is missing or out of range or on which a condition or a key fails, is not dropped: it travels with a note
(`reject`) that names stream, column and the row, and the processor decides whether the run stops or the row goes to
quarantine. A row that some other condition excludes, or whose key is null, is not looked at further.
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
from anabranch.runtime.compile.layout import Exchange, InputLayout, Lane, Layout, Slot
from anabranch.runtime.rows.carried import from_carried, type_text
from anabranch.runtime.rows.derived import Sources, passing
from anabranch.runtime.rows.fallible import VALUE, attempt
from anabranch.runtime.rows.notes import NOTE, bad_row, literal
from anabranch.state.run import HASH, TS

# What attempts give, by the text of the expression that can fail.
Attempts = dict[str, Column]

_EPOCH = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"


def pack(layout: Layout, sources: Sources, read: Sequence[str] = ()) -> DataFrame:
    """All sources of a network as one streaming DataFrame of packed rows.

    Streams come in the order in which they are `read`, also those that nothing is needed of any more.
    """
    packed = []
    for name in dict.fromkeys([*read, *(entry.source.stream for entry in layout.inputs)]):
        used = [(number, entry) for number, entry in enumerate(layout.inputs) if entry.source.stream == name]
        for number, entry in used:
            rows = sources.frame(entry.source, entry.source_time, entry.types)
            packed.append(_pack_input(layout, number, entry, rows))
        if not used:
            packed.append(_pack_nothing(layout, sources.registered[name]))
    return reduce(DataFrame.union, packed)


def pack_between(exchange: Exchange, yielded: DataFrame) -> DataFrame:
    """What processors yield into an exchange as packed rows of the next round: selected, hashed, with keys."""
    rows = yielded.selectExpr("*", *(text for lane in exchange.lanes for text in joined_columns(lane)))
    conditions = {lane.tag: all_of(lane.conditions) or "true" for lane in exchange.lanes}
    if any(lane.conditions for lane in exchange.lanes):
        rows = rows.where(_by_lane(conditions, exchange))
    known = [name for name in (INPUT, TS) if name in yielded.columns]
    hashes = {lane.tag: f"xxhash64({', '.join(lane.hashed)})" for lane in exchange.lanes}
    made = [f"{_by_lane(hashes, exchange)} AS {HASH}", *known]
    for slot in exchange.slots:
        texts = {lane.tag: text for lane in exchange.lanes for place, text in lane.computed if place == slot.name}
        if slot.name in exchange.yielded.names and texts:
            texts = {lane.tag: texts.get(lane.tag, slot.name) for lane in exchange.lanes}
        made.append(
            f"CAST({_by_lane(texts, exchange)} AS {type_text(slot.type)}) AS {slot.name}" if texts else slot.name
        )
    return rows.selectExpr(*made)


def joined_columns(lane: Lane) -> list[str]:
    """The columns of what travels to a port, by their names above the joins and in their own types."""
    return [f"{from_carried(column.slot, column.type)} AS {quote(column.name)}" for column in lane.columns]


def _by_lane(texts: dict[int, str], exchange: Exchange) -> str:
    """An expression that depends on the lane that a row is in; of rows in other lanes nothing is computed."""
    if len(exchange.lanes) == 1:
        return next(iter(texts.values()))
    return f"CASE {INPUT} {' '.join(f'WHEN {tag} THEN {text}' for tag, text in texts.items())} END"


def _pack_input(layout: Layout, number: int, entry: InputLayout, frame: DataFrame) -> DataFrame:
    attempts = {
        expression.text: attempt(frame.sparkSession, expression)
        for expression in entry.expressions
        if expression.can_fail
    }
    rows = _taking_part(entry, frame, attempts)
    keys = [_value(key.text, attempts) for key in entry.keys]
    hashed = [*keys, *(key.isNull() for key in keys)] if entry.grouped and len(keys) > 1 else keys
    columns = [F.expr(f"{number}S AS {INPUT}"), F.xxhash64(*hashed).alias(HASH)]
    if layout.timed:
        columns.append(_time_column(entry).alias(TS))
    if layout.can_reject:
        columns.append(_reject_column(entry, frame, attempts).alias(REJECT))
    values = dict(entry.values)
    columns.extend(_slot_column(slot, values, attempts) for slot in layout.slots)
    return rows.select(*columns)


def _pack_nothing(layout: Layout, frame: DataFrame) -> DataFrame:
    """No row of a stream, as packed rows."""
    columns = [F.lit(0).cast("smallint").alias(INPUT), F.lit(0).cast("bigint").alias(HASH)]
    if layout.timed:
        columns.append(F.lit(0).cast("bigint").alias(TS))
    if layout.can_reject:
        columns.append(F.lit(None).cast("string").alias(REJECT))
    columns += [F.lit(None).cast(slot.type).alias(slot.name) for slot in layout.slots]
    return frame.where("false").select(*columns)


def _taking_part(entry: InputLayout, frame: DataFrame, attempts: Attempts) -> DataFrame:
    """The rows that no condition excludes and that have a key, as far as that can be told."""
    keyed = () if entry.grouped else entry.keys
    asked = [F.expr(condition.text) for condition in entry.conditions if not condition.can_fail]
    asked += [
        F.expr(f"({written}) IS NOT NULL")
        for written, key in zip(entry.input.key, keyed, strict=False)
        if not key.can_fail
    ]
    for condition in entry.conditions:
        if condition.can_fail:
            tried = attempts[condition.text]
            asked.append(tried.isNull() | tried[VALUE])
    for key in keyed:
        if key.can_fail:
            tried = attempts[key.text]
            asked.append(tried.isNull() | tried[VALUE].isNotNull())
    return passing(frame, asked)


def _value(text: str, attempts: Attempts) -> Column:
    return attempts[text][VALUE] if text in attempts else F.expr(text)


def _slot_column(slot: Slot, values: dict[str, str], attempts: Attempts) -> Column:
    if slot.name not in values:
        return F.lit(None).cast(slot.type).alias(slot.name)
    text = values[slot.name]
    return attempts[text][VALUE].alias(slot.name) if text in attempts else F.expr(f"{text} AS {slot.name}")


def _time_column(entry: InputLayout) -> Column:
    """Event time in microseconds; 0 where it is unusable or there is none."""
    if entry.time is None or entry.time_type is None:
        return F.expr("0L")
    micros, in_range = _micros(entry.time, entry.time_type, entry.source.stream)
    return F.expr(f"IF(coalesce({in_range}, false), {micros}, 0L)")


def _reject_column(entry: InputLayout, frame: DataFrame, attempts: Attempts) -> Column:
    """The note on what is wrong with a row, or null."""
    nothing = F.lit(None).cast("string")
    written = [f"the condition {condition.text}" for condition in entry.conditions]
    written += [f"the key {key}" for key in entry.input.key]
    written += [f"the argument {argument.text}" for argument in entry.arguments]
    stream = entry.source.stream
    notes = [F.col(quote(NOTE))] if NOTE in frame.columns else []
    notes += [
        F.when(
            attempts[expression.text].isNull(),
            bad_row(frame, stream, ", ".join(expression.reads), literal(f"{what} cannot be evaluated")),
        )
        for what, expression in zip(written, entry.expressions, strict=True)
        if expression.can_fail
    ]
    if entry.time is not None and entry.time_type is not None:
        _, in_range = _micros(entry.time, entry.time_type, entry.source.stream)
        unusable = f"IF({quote(entry.time)} IS NULL, 'null', 'out of range')"
        problem = f"concat('its event time is ', {unusable})"
        good = F.expr(f"coalesce({in_range}, false)")
        column = entry.source_time or entry.time
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
