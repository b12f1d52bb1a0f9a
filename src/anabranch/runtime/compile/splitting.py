"""From packed rows to the rows of inputs: the part of the rounds layout that lies before the first exchange.

A packed row goes to every input that is served by its source and whose conditions it meets. What the input stores and
what it is hashed on is picked from slots, or computed of them. All of it is over packed rows, so it can be made anew
between two batches: another plan is served by the same packed layout if all that it needs is in there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.plan.names import Names
from anabranch.plan.query import quote
from anabranch.plan.texts import substituted
from anabranch.runtime.compile.layout import InputLayout, Layout
from anabranch.runtime.compile.packed import PackedLayout, PackedSource, conditions_of, reading_of
from anabranch.runtime.rows.carried import from_carried


@dataclass(frozen=True, slots=True)
class Share:
    """The packed rows that an input takes: those of a source that meet `conditions`.

    Their hash is computed from `hashed`; `values` are pairs of a slot of the exchange and what is put there. Texts are
    over the slots of packed rows.
    """

    source: int
    conditions: tuple[str, ...]
    hashed: tuple[str, ...]
    values: tuple[tuple[str, str], ...]


def shares_of(layout: Layout, packed: PackedLayout) -> tuple[Share, ...] | None:
    """The share of each input of a plan; None if something that one of them needs is not packed."""
    if layout.timed and not packed.timed:
        return None
    shares = []
    for entry in layout.inputs:
        candidates = (_share(entry, n, source) for n, source in enumerate(packed.sources))
        share = next((share for share in candidates if share is not None), None)
        if share is None:
            return None
        shares.append(share)
    return tuple(shares)


def _share(entry: InputLayout, number: int, source: PackedSource) -> Share | None:
    """The share of an input of one source; None if the source does not have all that the input needs."""
    conditions = conditions_of(entry)
    if source.reading != reading_of(entry) or not set(source.conditions) <= set(conditions):
        return None
    slots = {value.text: value.slot for value in source.values}
    columns = {
        value.column: from_carried(value.slot, value.type)
        for value in source.values
        if value.column is not None and value.type is not None
    }
    rest = [_over_slots(text, slots, columns) for text in conditions if text not in source.conditions]
    keys = [_over_slots(key.text, slots, columns) for key in entry.keys]
    values = [(slot, _over_slots(text, slots, columns)) for slot, text in entry.values]
    if None in rest or None in keys or any(text is None for _, text in values):
        return None
    present = [key for key in keys if key is not None]
    nulls = [f"({key}) IS NULL" for key in present] if entry.grouped and len(present) > 1 else []
    return Share(
        number,
        tuple(text for text in rest if text is not None),
        (*present, *nulls),
        tuple((slot, text) for slot, text in values if text is not None),
    )


def _over_slots(text: str, slots: Mapping[str, str], columns: Mapping[str, str]) -> str | None:
    """An expression over the rows of a source as one over packed rows; None if it reads what is not packed.

    It is there as a whole (`slots`), or all columns that it reads are (`columns`).
    """
    if text in slots:
        return slots[text]
    names = Names(text)
    reads = {names.tokens[n].called for n in names.columns()}
    if not reads <= columns.keys():
        return None
    return substituted(text, {quote(name): f"({columns[name]})" for name in reads})
