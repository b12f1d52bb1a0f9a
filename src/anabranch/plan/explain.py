"""The plan of a query for people: a tree from the answer down to the streams, with what was measured once it has run.

The tree is a picture to be rendered: as text here, as SVG in `svg`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.observe.numbers import format_bytes
from anabranch.plan.network import Answer, Network, Operator, Port
from anabranch.plan.placement import Placement, placement_text
from anabranch.plan.query import Grouping, JoinInput, Source, StreamSchema, all_of
from anabranch.plan.rounds import Dataflow


@dataclass(frozen=True, slots=True)
class Measured:
    """Counts of a run since it began, `seconds` ago: rows `received` per source, `produced` per operator.

    `state` is what lies there now, per port: rows and bytes.
    """

    seconds: float
    received: tuple[int, ...]
    produced: tuple[int, ...]
    state: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A box of the picture: its title, details, what was measured, and the boxes below it."""

    title: str
    details: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    below: tuple[Node, ...] = ()

    @property
    def text(self) -> str:
        """All in one line."""
        line = ", ".join([self.title, *self.details])
        return f"{line}; {', '.join(self.measured)}" if self.measured else line


@dataclass(frozen=True, slots=True)
class Picture:
    """A plan as a tree, and how it is exchanged."""

    root: Node
    exchange: str

    def __str__(self) -> str:
        """The picture as text, one line per box."""
        return "\n".join([*_tree(self.root, lambda node: node.text), self.exchange])

    @property
    def outline(self) -> str:
        """The boxes' titles alone, as text."""
        return "\n".join(_tree(self.root, lambda node: node.title))


def _tree(node: Node, shown: Callable[[Node], str], depth: int = 0) -> Iterator[str]:
    yield f"{'   ' * (depth - 1)}+- {shown(node)}" if depth else shown(node)
    for below in node.below:
        yield from _tree(below, shown, depth + 1)


def explain(
    network: Network,
    streams: Mapping[str, StreamSchema],
    *,
    key_types: Sequence[Sequence[str]],
    rounds: Sequence[int],
    placements: Sequence[Placement],
    groups: int,
    processors: int,
    measured: Measured | None = None,
    flow: Dataflow | None = None,
    parted: Sequence[str] = (),
    clusters: Sequence[str | None] = (),
) -> Picture:
    """The picture of a plan; `key_types`, `rounds` and `placements` are per operator. With the `flow` of rows between
    operators it says what the placement costs. Operators that are `parted` run apart from others that they could run
    fused with. There may be `clusters` of processors: the name of that of each operator."""
    places = [
        f"round {number + 1} {placement_text(p, processors)}" for number, p in zip(rounds, placements, strict=True)
    ]
    if clusters:
        places = [f"{place}, cluster {name!r}" for place, name in zip(places, clusters, strict=True)]
    drawing = _Drawing(network, streams, key_types, places, measured)
    answers = tuple(drawing.answer(answer) for answer in network.answers)
    root = answers[0] if len(answers) == 1 else Node(f"{len(answers)} queries", below=answers)
    needed = "1 round" if max(rounds) == 0 else f"{max(rounds) + 1} rounds"
    cost = "" if flow is None else _placement_cost(flow, placements, clusters)
    if parted:
        cost += f"; placed like their kin, {', '.join(parted)} would need no round of their own"
    where = f"{groups} partition groups on {processors} processor(s)"
    return Picture(root, f"{where}, exchanged by key hash in {needed}{cost}")


def _placement_cost(flow: Dataflow, placements: Sequence[Placement], clusters: Sequence[str | None]) -> str:
    """The edges between operators that cross processors, and whether another placement would need fewer rounds."""
    if clusters and any(clusters[edge.lower] != clusters[edge.upper] for edge in flow.edges):
        return "; some edges between operators cross clusters, since queries share operators"
    named = "pattern" if clusters else "placement"
    counts, least = flow.count(placements), flow.rounds().count
    text = f"; {counts.crossing} of {len(flow.edges)} edges between operators cross processors" if flow.edges else ""
    if counts.rounds > least:
        text += f", and {least} round{'s' if least > 1 else ''} would do with {named}='fewest-rounds'"
    return text


class _Drawing:
    def __init__(
        self,
        network: Network,
        streams: Mapping[str, StreamSchema],
        key_types: Sequence[Sequence[str]],
        places: Sequence[str],
        measured: Measured | None,
    ) -> None:
        self._network = network
        self._streams = streams
        self._key_types = key_types
        self._places = places
        self._measured = measured
        self._numbers = {place: number for number, place in enumerate(network.ports)}
        self._drawn: dict[int, str] = {}  # operators, and the query that they were drawn for first

    def answer(self, answer: Answer) -> Node:
        name = f"{answer.name}: " if len(self._network.answers) > 1 else ""
        parts = tuple(
            _filtered(all_of(branch.conditions), self._node(branch.node, answer.name)) for branch in answer.branches
        )
        union = "Union of " if len(parts) > 1 else ""
        return Node(f"{name}{union}Project [{', '.join(output.name for output in answer.outputs)}]", below=parts)

    def _node(self, node: int, query: str) -> Node:
        """Draw an operator; where another query shares it, only its title."""
        n = self._network.operator_of(node)
        assert n is not None, "inputs are drawn where they come in"
        operator = self._network.operators[n]
        if operator.grouping is not None:
            title, *more = _explain_grouping(operator.grouping, self._key_types[n])
        else:
            title, more = self._explain_join(operator, self._key_types[n]), []
        if n in self._drawn:
            return Node(title, (f"shared with {self._drawn[n]}",))
        self._drawn[n] = query
        below = tuple(self._port(n, p, query) for p in self._in_order(operator))
        return Node(title, (*more, self._places[n]), self._rates(n), below)

    def _port(self, n: int, p: int, query: str) -> Node:
        """Draw what feeds a port, with the state that is stored there."""
        operator, state = self._network.operators[n], self._state(n, p)
        port = operator.ports[p]
        if self._network.operator_of(port.node) is None:
            return self._input(n, p, state, query)
        below = self._node(port.node, query)
        return _filtered(all_of(port.conditions), replace(below, measured=(*below.measured, *state)))

    def _input(self, n: int, p: int, state: tuple[str, ...], query: str) -> Node:
        operator = self._network.operators[n]
        number = operator.ports[p].node
        entry, feeds = self._network.inputs[number].entry, self._network.inputs[number].feeds
        rows = operator.grouping.rows if operator.grouping is not None else None
        lines = _explain_input(entry, self._streams[entry.stream], rows, self._expires(n, p))
        numbers = iter(self._sources(number))
        below = []
        for source, feed in zip(entry.sources, feeds, strict=True) if entry.is_derived else ():
            if feed is None:
                measured = self._received([next(numbers)])
                below.append(Node(*_explain_source(source, self._streams[source.stream]), measured))
                continue
            shown = ", ".join(f"{output.expression} AS {output.name}" for output in feed.outputs)
            fed_by = _filtered(all_of(feed.conditions), self._node(feed.node, query))
            below.append(Node(f"Select [{shown}]", below=(fed_by,)))
        measured = () if below else self._received(list(numbers))
        return Node(lines[0], tuple(lines[1:]), (*measured, *state), tuple(below))

    def _expires(self, n: int, p: int) -> bool:
        """Whether rows at a port ever die: they have a window, and all that they could still meet is late some day."""
        operator = self._network.operators[n]
        inside = operator.ports[p].node
        if self._network.inputs[inside].entry.window is None:
            return False
        others = [i for q, port in enumerate(operator.ports) if q != p for i in self._network.inputs_of(port.node)]
        return all(self._network.inputs[i].late for i in others or [inside])

    def _explain_join(self, operator: Operator, key_types: Sequence[str]) -> str:
        def shown(port: Port, k: int) -> str:
            joined = self._network.operator_of(port.node) is not None
            return port.keys[k] if joined else f"{self._network.inputs[port.node].entry.alias}.{port.keys[k]}"

        ports = [operator.ports[p] for p in self._in_order(operator)]
        columns = ["=".join(shown(port, k) for port in ports) for k in range(len(key_types))]
        key = " AND ".join(f"{text} ({data_type})" for text, data_type in zip(columns, key_types, strict=True))
        kind = "BinaryJoin" if len(operator.ports) == 2 else f"MultiwayJoin of {len(operator.ports)}"
        return f"{kind} on {key}"

    def _in_order(self, operator: Operator) -> list[int]:
        """The ports as the query that was first has them in FROM."""
        ports = operator.ports
        return sorted(range(len(ports)), key=lambda p: min(self._network.inputs_of(ports[p].node)))

    def _sources(self, number: int) -> range:
        """The numbers of the sources that feed an input."""
        counts = [sum(source.block is None for source in entry.entry.sources) for entry in self._network.inputs]
        first = sum(counts[:number])
        return range(first, first + counts[number])

    def _received(self, numbers: Sequence[int]) -> tuple[str, ...]:
        measured = self._measured
        if measured is None:
            return ()
        rows = sum(measured.received[number] for number in numbers)
        return (f"{rows:,} rows in, {rows / max(measured.seconds, 1e-9):,.0f}/s",)

    def _rates(self, n: int) -> tuple[str, ...]:
        """The rows that came out of an operator, per second and per row that arrived at it."""
        measured = self._measured
        if measured is None:
            return ()
        rows = measured.produced[n]
        arrived = sum(self._arrived(port.node) for port in self._network.operators[n].ports)
        return (
            f"{rows:,} rows out, {rows / max(measured.seconds, 1e-9):,.0f}/s, {rows / max(arrived, 1):.3g} per row in",
        )

    def _arrived(self, node: int) -> int:
        assert self._measured is not None, "asked only where something was measured"
        n = self._network.operator_of(node)
        if n is not None:
            return self._measured.produced[n]
        feeds = [feed for feed in self._network.inputs[node].feeds if feed is not None]
        received = sum(self._measured.received[number] for number in self._sources(node))
        return received + sum(self._arrived(feed.node) for feed in feeds)

    def _state(self, n: int, p: int) -> tuple[str, ...]:
        if self._measured is None:
            return ()
        rows, size = self._measured.state[self._numbers[n, p]]
        return (f"state {rows:,} rows, {format_bytes(size)}",)


def _filtered(condition: str | None, node: Node) -> Node:
    return node if condition is None else Node(f"Filter [{condition}]", below=(node,))


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
