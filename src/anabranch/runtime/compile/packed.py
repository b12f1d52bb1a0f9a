"""The packed layout: what Spark's streaming query reads and packs, for as long as it runs.

Every stream is read once, however many inputs take rows of it: its rows that meet the conditions all these inputs have
in common, with their event time, a note if something is wrong with a row, and the values that inputs need, in slots.
There is no key hash in it and no word of operators. Which input a row is for, by which key it is exchanged and what of
it is stored is the rounds layout's, which may change between two batches (`splitting`).

An expression that can fail on a row is evaluated here, since a note tells of the whole row. Inputs share a reading only
if they have the same expressions that can fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from pyspark.sql import types as T

from anabranch.plan.names import unquoted
from anabranch.plan.query import Source, quote
from anabranch.plan.texts import is_name
from anabranch.runtime.compile.layout import InputLayout, Layout, Slot
from anabranch.runtime.compile.rounds.lanes import assign_slots
from anabranch.runtime.rows.carried import carried_type, to_carried
from anabranch.runtime.rows.fallible import Judged


class Must(Enum):
    """The value that an expression must have for a row to take part."""

    BE_TRUE = "true"
    BE_THERE = "not null"
    BE_ANYTHING = "anything"


@dataclass(frozen=True, slots=True)
class Fallible:
    """An expression that can fail on a row, its name in the note on such a row, and the value that it must have."""

    expression: Judged
    what: str
    must: Must


@dataclass(frozen=True, slots=True)
class Value:
    """A value in a slot of the packed row: its text over the rows of the source.

    If it is a plain column in carried form, `column` is its name and `type` its own type.
    """

    text: str
    slot: str
    column: str | None = None
    type: T.DataType | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """How an input reads its rows. Inputs with equal readings share a packed source: same rows, same time, same
    failures.

    A sub-query may have `noted` that a row is bad. Such a row meets no further conditions, so then all of these have to
    be met before rows are packed, and have to be equal, too (`selected`).
    """

    source: Source
    source_time: str | None
    types: T.StructType | None
    time: str | None
    time_type: T.DataType | None
    fallible: tuple[Fallible, ...]
    noted: bool
    selected: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PackedSource:
    """A stream as it is packed: rows that meet all `conditions`, which cannot fail, and their `values`.

    Conditions that not all inputs have in common are among the values. A column that is a key is packed as it is, null
    or not: another plan may carry it, hash it as another type, or join on another one.
    """

    reading: Reading
    conditions: tuple[str, ...]
    values: tuple[Value, ...]

    @property
    def stream(self) -> str:
        """The registered stream that is read."""
        return self.reading.source.stream


@dataclass(frozen=True, slots=True)
class PackedLayout:
    """Everything that lives as long as Spark's streaming query. A packed row has the number of its source."""

    sources: tuple[PackedSource, ...]
    slots: tuple[Slot, ...]
    timed: bool

    @property
    def can_reject(self) -> bool:
        """Whether a row can be bad: by its event time, or by an expression that fails on it."""
        return self.timed or any(source.reading.fallible or source.reading.noted for source in self.sources)


def packed_layout(layout: Layout) -> PackedLayout:
    """The packed layout for the inputs of a plan, and no others."""
    slots: list[Slot] = []
    by_reading: dict[Reading, list[InputLayout]] = {}
    for entry in layout.inputs:
        by_reading.setdefault(reading_of(entry), []).append(entry)
    types = {slot.name: slot.type for slot in layout.slots}
    sources = tuple(_source(reading, inputs, types, slots) for reading, inputs in by_reading.items())
    return PackedLayout(sources, tuple(slots), layout.timed)


def reading_of(entry: InputLayout) -> Reading:
    """The reading of an input."""
    fallible = [
        Fallible(condition, f"the condition {condition.text}", Must.BE_TRUE)
        for condition in entry.conditions
        if condition.can_fail
    ]
    must = Must.BE_ANYTHING if entry.grouped else Must.BE_THERE
    for written, key in zip(entry.input.key, entry.keys, strict=True):
        if key.can_fail:
            fallible.append(Fallible(key, f"the key {written}", must))
    for argument in entry.arguments:
        if argument.can_fail:
            fallible.append(Fallible(argument, f"the argument {argument.text}", Must.BE_ANYTHING))
    return Reading(
        entry.source,
        entry.source_time,
        entry.types,
        entry.time,
        entry.time_type,
        tuple(fallible),
        entry.noted,
        tuple(sorted(conditions_of(entry))) if entry.noted else (),
    )


def conditions_of(entry: InputLayout) -> tuple[str, ...]:
    """The conditions on rows of an input that cannot fail; a row without a key takes part only where it is grouped."""
    conditions = [condition.text for condition in entry.conditions if not condition.can_fail]
    if not entry.grouped:
        pairs = zip(entry.input.key, entry.keys, strict=True)
        conditions += [has_key(written) for written, key in pairs if not key.can_fail]
    return tuple(dict.fromkeys(conditions))


def has_key(written: str) -> str:
    """The condition that a row has a value for a column of a key; of a plain one as everybody writes it."""
    return f"{written} IS NOT NULL" if is_name(written) else f"({written}) IS NOT NULL"


def _source(
    reading: Reading, inputs: Sequence[InputLayout], types: dict[str, T.DataType], slots: list[Slot]
) -> PackedSource:
    own = [conditions_of(entry) for entry in inputs]
    packed = {name for entry in inputs for name, _ in (*entry.columns, *entry.key_columns)}
    left = () if reading.noted else tuple(map(has_key, map(quote, packed)))
    common = tuple(condition for condition in own[0] if condition not in left and all(condition in o for o in own))
    wanted: dict[str, T.DataType] = {}
    columns: dict[str, tuple[str, T.DataType]] = {}
    for entry, conditions in zip(inputs, own, strict=True):
        wanted |= {condition: T.BooleanType() for condition in conditions if condition not in (*common, *left)}
        keys = {quote(name): (name, data_type) for name, data_type in entry.key_columns}
        for written, key, key_type in zip(entry.input.key, entry.keys, entry.key_types, strict=True):
            if key.can_fail or written not in keys:
                wanted[key.text] = key_type
        wanted |= {text: types[slot] for slot, text in entry.values}
        for name, data_type in (*keys.values(), *entry.columns):
            text = to_carried(quote(name), data_type)
            wanted[text] = carried_type(data_type)
            columns[text] = name, data_type
    placed = assign_slots(slots, list(wanted.values()))
    for text in filter(is_name, wanted):
        columns.setdefault(text, (unquoted(text), wanted[text]))
    values = (Value(text, slot, *columns.get(text, (None, None))) for text, slot in zip(wanted, placed, strict=True))
    return PackedSource(reading, common, tuple(values))
