"""Derived streams as Spark's DataFrames: the rows that sub-queries in FROM select from registered streams.

A source passes its selections one after the other, all of them Spark expressions. Beside the columns of the sub-query
travel the event time of the row it was made of, and a note if a condition or a column fails on it: such a row is not
lost, but goes on with what there is of it and is rejected where all bad rows are (`pack`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from anabranch.checkpoint.settings import Settings
from anabranch.plan.query import DERIVED_TIME, Output, Selection, Source, quote
from anabranch.runtime.rows.carried import type_text
from anabranch.runtime.rows.fallible import VALUE, judge, try_value
from anabranch.runtime.rows.notes import NOTE, bad_row, literal


class Sources:
    """The rows of sources, made of registered streams. Each is made once: that takes many calls into the JVM."""

    def __init__(self, registered: Mapping[str, DataFrame] | None = None) -> None:
        """Nothing is made yet. More streams may be registered later."""
        self.registered = dict(registered or {})
        self._made: dict[tuple[Source, str | None], DataFrame] = {}
        self._settings: Settings = {}

    def use(self, settings: Settings) -> None:
        """Make rows under these settings from now on: what was made under others keeps those."""
        if settings != self._settings:
            self._made.clear()
        self._settings = dict(settings)

    def frame(self, source: Source, time: str | None, types: T.StructType | None = None) -> DataFrame:
        """The rows of a source; those of a sub-query with their hidden columns, and with columns of the given types.

        `time` is the stream's event time, if it has one.
        """
        if not source.steps:
            return self.registered[source.stream]
        if (source, time) not in self._made:
            *others, last = source.steps
            before = self.frame(replace(source, steps=tuple(others)), time)
            own_time = DERIVED_TIME if others and time is not None else time
            self._made[source, time] = _select(before, last, source.stream, own_time)
        rows = self._made[source, time]
        return rows if types is None else self._in_types(source, time, rows.schema, types)

    def _in_types(self, source: Source, time: str | None, own: T.StructType, types: T.StructType) -> DataFrame:
        *others, last = source.steps
        cast = replace(last, outputs=in_types(last.outputs, own, types))
        return self.frame(replace(source, steps=(*others, cast)), time)


def passing(rows: DataFrame, conditions: Sequence[Column]) -> DataFrame:
    """The rows that meet all conditions, and those that are noted as bad already."""
    if not conditions:
        return rows
    met = reduce(and_, conditions)
    return rows.where(F.col(quote(NOTE)).isNotNull() | met if NOTE in rows.columns else met)


def in_types(outputs: Sequence[Output], own: T.StructType, types: T.StructType) -> tuple[Output, ...]:
    """Cast columns from their `own` types to others. A cast may fail on a row like any expression."""
    return tuple(
        output
        if own[output.name].dataType == types[output.name].dataType
        else replace(output, expression=f"CAST({output.expression} AS {type_text(types[output.name].dataType)})")
        for output in outputs
    )


def _select(rows: DataFrame, selection: Selection, stream: str, time: str | None) -> DataFrame:
    judged = judge(rows, [*selection.conditions, *(output.expression for output in selection.outputs)])
    tried_values = {one.text: try_value(rows.sparkSession, one) for one in judged if one.can_fail}
    notes = [F.col(quote(NOTE))] if NOTE in rows.columns else []
    for one in judged:
        if one.text in tried_values:
            what = "the condition" if one.text in selection.conditions else "the column"
            problem = literal(f"{what} {one.text} cannot be evaluated")
            notes.append(F.when(tried_values[one.text].isNull(), bad_row(rows, stream, ", ".join(one.reads), problem)))
    conditions = [
        F.expr(condition)
        if condition not in tried_values
        else tried_values[condition].isNull() | tried_values[condition][VALUE]
        for condition in selection.conditions
    ]
    columns = [
        tried_values[output.expression][VALUE].alias(output.name)
        if output.expression in tried_values
        else F.expr(f"{output.expression} AS {quote(output.name)}")
        for output in selection.outputs
    ]
    if time is not None:
        columns.append(F.expr(f"{quote(time)} AS {quote(DERIVED_TIME)}"))
    if notes:
        columns.append(F.coalesce(*notes).alias(NOTE))
    return passing(rows, conditions).select(*columns)
