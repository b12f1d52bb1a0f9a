"""Split: from packed rows to the rows of inputs that go into the first exchange, in Spark expressions only.

It is made for one plan, and used for every batch of it: which input a row is for, its key hash, and the slots of the
exchange. Where a source serves one input only, as it mostly does, rows are selected and projected; where it serves
several, a row is there once for each of them whose conditions it meets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.kernel.delta import INPUT
from anabranch.plan.query import all_of
from anabranch.processor.arrivals import REJECT
from anabranch.runtime.compile.layout import Layout
from anabranch.runtime.compile.packed import PackedLayout
from anabranch.runtime.compile.splitting import Share
from anabranch.runtime.exchange.pack import SOURCE
from anabranch.runtime.rows.carried import type_text
from anabranch.runtime.spark.selection import Select, SelectionStep, Where
from anabranch.state.runs.run import HASH, TS


def split(layout: Layout, packed: PackedLayout, shares: Sequence[Share]) -> tuple[SelectionStep, ...]:
    """From packed rows to the rows of all inputs of a plan."""
    served: dict[int, list[int]] = {}
    for number, share in enumerate(shares):
        served.setdefault(share.source, []).append(number)
    wanted = _wanted(packed, shares, served)
    hashes = {number: f"xxhash64({', '.join(share.hashed)})" for number, share in enumerate(shares)}
    made = [INPUT, f"{_by_input(hashes, shares)} AS {HASH}"]
    made += [TS] if layout.timed else []
    made += [REJECT] if packed.can_reject else []
    for slot in layout.slots:
        texts = {n: text for n, share in enumerate(shares) for name, text in share.values if name == slot.name}
        value = _by_input(texts, shares) if texts else f"CAST(NULL AS {type_text(slot.type)})"
        made.append(f"{value} AS {slot.name}")
    tagged = Select(("*", _inputs(shares, served)))
    return (*([] if wanted is None else [Where(wanted)]), tagged, Select(tuple(made)))


def _wanted(packed: PackedLayout, shares: Sequence[Share], served: Mapping[int, Sequence[int]]) -> str | None:
    """The condition on packed rows that sources have which serve one input, or none; None if all rows are wanted."""
    texts = {}
    for number in range(len(packed.sources)):
        inputs = served.get(number, ())
        if not inputs:
            texts[number] = "false"
        elif len(inputs) == 1 and shares[inputs[0]].conditions:
            texts[number] = all_of(shares[inputs[0]].conditions) or "true"
    if len(set(texts.values())) == 1 and len(texts) == len(packed.sources):
        return texts[0]
    if not texts:
        return None
    cases = " ".join(f"WHEN {number} THEN {text}" for number, text in texts.items())
    return f"CASE {SOURCE} {cases} ELSE true END"


def _inputs(shares: Sequence[Share], served: Mapping[int, Sequence[int]]) -> str:
    """The input that a packed row is for, or one row for each of them."""
    if all(len(inputs) == 1 for inputs in served.values()):
        tags = {source: inputs[0] for source, inputs in served.items()}
        if all(source == number for source, number in tags.items()):
            return f"{SOURCE} AS {INPUT}"
        cases = " ".join(f"WHEN {source} THEN {number}S" for source, number in tags.items())
        return f"CASE {SOURCE} {cases} END AS {INPUT}"
    arrays = []
    for source, inputs in served.items():
        listed = []
        for number in inputs:
            met = all_of(shares[number].conditions) if len(inputs) > 1 else None
            listed.append(f"{number}S" if met is None else f"IF({met}, {number}S, CAST(NULL AS SMALLINT))")
        arrays.append(f"WHEN {source} THEN array_compact(array({', '.join(listed)}))")
    return f"explode(CASE {SOURCE} {' '.join(arrays)} END) AS {INPUT}"


def _by_input(texts: Mapping[int, str], shares: Sequence[Share]) -> str:
    """An expression that depends on the input that a row is for; of rows of other inputs nothing is computed."""
    if len(texts) == len(shares) and len(set(texts.values())) == 1:
        return next(iter(texts.values()))
    return f"CASE {INPUT} {' '.join(f'WHEN {number} THEN {text}' for number, text in texts.items())} END"
