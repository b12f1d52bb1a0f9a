"""The plan of a query for people: a tree from the answer down to the streams, with what was measured once it has run.

The tree is a picture to be rendered: as text here, as SVG in `svg`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.observe.numbers import format_bytes
from anabranch.plan.logical import ContinuousQuery, Grouping, JoinInput, JoinOperator, Source, StreamSchema, all_of
from anabranch.plan.watermark import can_expire, input_times


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run has done so far, in `seconds`: rows `received` per source, `produced` per operator.

    `state` is what lies there now, per part: rows and bytes.
    """

    seconds: float
    received: tuple[int, ...]
    produced: tuple[int, ...]
    state: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A part of the plan: what it is, more about it, what was measured of it, and what stands below."""

    title: str
    details: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    below: tuple[Node, ...] = ()

    @property
    def text(self) -> str:
        """All in one line."""
        told = ", ".join([self.title, *self.details])
        return f"{told}; {', '.join(self.measured)}" if self.measured else told


@dataclass(frozen=True, slots=True)
class Picture:
    """A plan as a tree, and how it is exchanged."""

    root: Node
    exchange: str

    def __str__(self) -> str:
        """As text."""
        lines: list[str] = []

        def draw(node: Node, depth: int) -> None:
            lines.append(f"{'   ' * (depth - 1)}+- {node.text}" if depth else node.text)
            for below in node.below:
                draw(below, depth + 1)

        draw(self.root, 0)
        return "\n".join([*lines, self.exchange])


def explain(
    query: ContinuousQuery,
    streams: Mapping[str, StreamSchema],
    *,
    key_types: Sequence[Sequence[str]],
    rounds: Sequence[int],
    groups: int,
    processors: int,
    measured: Measured | None = None,
) -> Picture:
    """The picture of a plan; `key_types` and `rounds` are per operator, the grouping last."""
    root = _Drawing(query, streams, key_types, rounds, measured).answer()
    needed = "1 round" if max(rounds) == 0 else f"{max(rounds) + 1} rounds"
    return Picture(root, f"{groups} partition groups on {processors} processor(s), exchanged by key hash in {needed}")


class _Drawing:
    def __init__(
        self,
        query: ContinuousQuery,
        streams: Mapping[str, StreamSchema],
        key_types: Sequence[Sequence[str]],
        rounds: Sequence[int],
        measured: Measured | None,
    ) -> None:
        self._query = query
        self._streams = streams
        self._key_types = key_types
        self._rounds = rounds
        self._measured = measured
        self._times = input_times(query, streams)
        self._leaves = len(query.inputs)

    def answer(self) -> Node:
        query = self._query
        node = self._part(query.root)
        if query.grouping is not None:
            n = len(query.operators)
            told = (*_explain_grouping(query.grouping, self._key_types[-1]), f"round {self._rounds[-1] + 1}")
            node = Node(told[0], told[1:], self._rates(n, (query.root,)), (node,))
            node = _filtered(query.residual, node)
        return Node(f"Project [{', '.join(output.name for output in query.outputs)}]", below=(node,))

    def _part(self, part: int) -> Node:
        if part < self._leaves:
            return self._input(part)
        n = part - self._leaves
        operator = self._query.operators[n]
        title = _explain_operator(self._query, operator, self._key_types[n])
        below = tuple(self._part(other) for other in operator.parts)
        node = Node(title, (f"round {self._rounds[n] + 1}",), self._rates(n, operator.parts), below)
        return _filtered(all_of(operator.conditions), node)

    def _input(self, part: int) -> Node:
        entry = self._query.inputs[part]
        rows = self._query.grouping.rows if self._query.grouping is not None else None
        told = _explain_input(entry, self._streams[entry.stream], rows, can_expire(self._times, part))
        numbers = self._sources(part)
        below = tuple(
            Node(*_explain_source(source, self._streams[source.stream]), self._received([number]))
            for number, source in zip(numbers, entry.sources if entry.is_derived else (), strict=False)
        )
        measured = () if below else self._received(numbers)
        return Node(told[0], tuple(told[1:]), (*measured, *self._state(part)), below)

    def _sources(self, part: int) -> range:
        """The numbers of the sources that feed an input."""
        first = sum(len(before.sources) for before in self._query.inputs[:part])
        return range(first, first + len(self._query.inputs[part].sources))

    def _received(self, numbers: Sequence[int]) -> tuple[str, ...]:
        found = self._measured
        if found is None:
            return ()
        rows = sum(found.received[number] for number in numbers)
        return (f"{rows:,} rows in, {rows / max(found.seconds, 1e-9):,.0f}/s",)

    def _rates(self, n: int, parts: Sequence[int]) -> tuple[str, ...]:
        """What an operator gave, per second and per row that arrived at it; what of it is stored above."""
        found = self._measured
        if found is None:
            return ()
        rows = found.produced[n]
        arrived = sum(self._arrived(part) for part in parts)
        told = f"{rows:,} rows out, {rows / max(found.seconds, 1e-9):,.0f}/s, {rows / max(arrived, 1):.3g} per row in"
        return (told, *self._state(self._leaves + n))

    def _arrived(self, part: int) -> int:
        assert self._measured is not None, "asked only where something was measured"
        if part >= self._leaves:
            return self._measured.produced[part - self._leaves]
        return sum(self._measured.received[number] for number in self._sources(part))

    def _state(self, part: int) -> tuple[str, ...]:
        found = self._measured
        if found is None or part >= len(found.state):
            return ()
        rows, size = found.state[part]
        return (f"state {rows:,} rows, {format_bytes(size)}",)


def _filtered(condition: str | None, node: Node) -> Node:
    return node if condition is None else Node(f"Filter [{condition}]", below=(node,))


def _explain_operator(query: ContinuousQuery, operator: JoinOperator, key_types: Sequence[str]) -> str:
    def shown(port: int, n: int) -> str:
        part, text = operator.parts[port], operator.keys[port][n]
        return f"{query.inputs[part].alias}.{text}" if part < len(query.inputs) else text

    columns = ["=".join(shown(port, n) for port in range(len(operator.parts))) for n in range(len(key_types))]
    key = " AND ".join(f"{text} ({data_type})" for text, data_type in zip(columns, key_types, strict=True))
    kind = "BinaryJoin" if len(operator.parts) == 2 else f"MultiwayJoin of {len(operator.parts)}"
    return f"{kind} on {key}"


def _explain_grouping(grouping: Grouping, key_types: Sequence[str]) -> tuple[str, ...]:
    keys = ", ".join(f"{key} ({data_type})" for key, data_type in zip(grouping.keys, key_types, strict=True))
    if grouping.applied is not None:
        return (f"Operator {grouping.applied.name} by {keys}", f"keeps [{', '.join(grouping.applied.columns)}]")
    if grouping.distinct:
        return (f"Distinct [{keys}]",)
    calls = ", ".join(f"{call.function.upper()}({call.argument or '*'})" for call in grouping.calls)
    window = "" if grouping.rows is None else f" over the last {grouping.rows} rows of each"
    answered = "once per batch" if grouping.once else "for every tuple"
    return (f"Aggregate [{calls}] by {keys}{window}", f"answered {answered}")


def _explain_source(source: Source, stream: StreamSchema) -> tuple[str, tuple[str, ...]]:
    """A registered stream, and what a sub-query makes of its rows, last selection first."""
    steps = []
    for selection in reversed(source.steps):
        shown = ", ".join(f"{output.expression} AS {output.name}" for output in selection.outputs)
        kept = all_of(selection.conditions)
        steps.append(f"Select [{shown}]" + (f" where {kept}" if kept else ""))
    return f"{' of '.join(steps)} of Stream {stream.name}", tuple(_explain_time(stream))


def _explain_time(stream: StreamSchema) -> list[str]:
    if stream.time is None:
        return []
    lateness = "never late" if stream.lateness is None else f"lateness {_seconds(stream.lateness)}"
    return [f"time {stream.time} ({lateness})"]


def _explain_input(entry: JoinInput, stream: StreamSchema, rows: int | None, expires: bool) -> list[str]:
    window = "unbounded" if entry.window is None else f"RANGE {_seconds(entry.window)}"
    window = window if rows is None else f"ROWS {rows}"
    if entry.is_derived:
        parts = [f"{'Union' if len(entry.sources) > 1 else 'Sub-query'} {entry.alias}", f"[{window}]"]
    else:
        named = f" AS {entry.alias}" if entry.alias != entry.stream else ""
        parts = [f"Stream {entry.stream}{named}", f"[{window}]", *_explain_time(stream)]
    if entry.predicate:
        parts.append(f"where {entry.predicate}")
    if entry.columns:
        parts.append(f"keeps [{', '.join(entry.columns)}]")
    parts.append("purged behind the window" if expires or rows is not None else "never purged")
    return parts


def _seconds(micros: int) -> str:
    return f"{micros / 1_000_000:g} s"
