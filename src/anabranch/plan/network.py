"""Several queries as one network of operators, in which what they have in common is there once.

An operator has ports. Through a port come the rows of a node: of an input (a stream occurrence) or of another operator.
What an operator gives may go to several ports and be the answer to several queries, each with conditions of its own on
it. State lies at ports.

Two queries share a join if the same streams come in with the same conditions, windows and rules of lateness, and are
joined on the same keys, whatever they are called and in whichever order they stand; a grouping, if they group the same
join by the same keys for the same aggregates. An operator's `identity` says all of that, so equal identities mean
equal state. What queries select from a shared join may differ: it carries what any of them needs.

Only queries that begin together (`since`) share: one that is added later must not see what came before it.

Nodes are numbered: inputs first, then operators, each after all that it takes rows from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch.plan.logical import (
    AggregateCall,
    ContinuousQuery,
    Grouping,
    JoinInput,
    Output,
    StreamSchema,
    joined_column,
    quote,
)
from anabranch.plan.texts import substituted
from anabranch.plan.watermark import can_be_late, input_times

# An alias and a column of it; or, among the terms of a key, an expression over its columns.
Column = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Request:
    """A query that is to be answered, by a name; `since` tells which ones begin together."""

    name: str
    query: ContinuousQuery
    since: int = 0


@dataclass(frozen=True, slots=True)
class Input:
    """A stream occurrence. Event time is read only if it is `timed`; its rows are late behind a watermark, or never."""

    entry: JoinInput
    timed: bool
    late: bool


@dataclass(frozen=True, slots=True)
class Port:
    """Where rows of a node come in that meet all conditions, exchanged by their keys. `columns` are stored.

    Rows of an input have met its own conditions, and have its key and columns.
    """

    node: int
    keys: tuple[str, ...]
    conditions: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True)
class Operator:
    """A join of all its ports, or a grouping of what comes in through its only one.

    `terms` are per column of a join's key: all that is compared with each other there. `columns` is what a join gives.
    """

    identity: str
    ports: tuple[Port, ...]
    terms: tuple[tuple[Column, ...], ...] = ()
    columns: tuple[Column, ...] = ()
    grouping: Grouping | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query selects of the rows of a node."""

    name: str
    node: int
    conditions: tuple[str, ...]
    outputs: tuple[Output, ...]


@dataclass(frozen=True, slots=True)
class Network:
    """All that an engine computes. Aliases are unique in it; `derived` are the streams that sub-queries make."""

    inputs: tuple[Input, ...]
    operators: tuple[Operator, ...]
    answers: tuple[Answer, ...]
    derived: tuple[StreamSchema, ...] = ()

    @property
    def ports(self) -> tuple[tuple[int, int], ...]:
        """All ports by number: the operator's number, and which of its ports it is."""
        return tuple((n, p) for n, operator in enumerate(self.operators) for p in range(len(operator.ports)))

    def operator_of(self, node: int) -> int | None:
        """The number of the operator whose rows a node has; None for an input."""
        return node - len(self.inputs) if node >= len(self.inputs) else None

    def inputs_of(self, node: int) -> tuple[int, ...]:
        """The inputs that a joined row is made of, or, of groups, that they are made of."""
        n = self.operator_of(node)
        return (node,) if n is None else tuple(i for port in self.operators[n].ports for i in self.inputs_of(port.node))

    def consumers(self, node: int) -> list[int]:
        """The numbers of the ports that the rows of a node go to."""
        return [number for number, (n, p) in enumerate(self.ports) if self.operators[n].ports[p].node == node]


def network_of(requests: Sequence[Request], streams: Mapping[str, StreamSchema]) -> Network:
    """The network that answers all queries."""
    builder = _Builder(streams)
    for request in requests:
        builder.add(request)
    return builder.network()


@dataclass(slots=True)
class _Draft:
    """An operator while queries are added. `aliases` are those of its inputs in canonical order."""

    identity: str
    aliases: tuple[str, ...]
    ports: list[Port]
    terms: tuple[tuple[Column, ...], ...] = ()
    columns: set[Column] = field(default_factory=set)
    grouping: Grouping | None = None


@dataclass(frozen=True, slots=True)
class _Described:
    """A part of a query apart from all names: its identity, its aliases and parts in canonical order, and its key's."""

    identity: str
    aliases: tuple[str, ...]
    parts: tuple[int, ...] = ()
    key: tuple[int, ...] = ()


class _Description:
    """The canonical form of a query's parts, and which of them it can share with other queries."""

    def __init__(self, request: Request, streams: Mapping[str, StreamSchema]) -> None:
        self._request = request
        self._query = query = request.query
        times = input_times(query, {**streams, **{schema.name: schema for schema in query.derived}})
        self.timed = query.grouping is not None or any(entry.window is not None for entry in query.inputs)
        self.late = [can_be_late(times, n) for n in range(len(query.inputs))]
        self._number = {entry.alias: n for n, entry in enumerate(query.inputs)}
        self._seen: dict[str, int] = {}
        self.parts: list[_Described] = [self._input(n) for n in range(len(query.inputs))]
        for n in range(len(query.operators)):
            self.parts.append(self._join(n))
        self.group = None if query.grouping is None else self._group(query.grouping)

    def conditions(self, part: int) -> tuple[str, ...]:
        """What joined rows have to meet to go on from a part."""
        leaves = len(self._query.inputs)
        return () if part < leaves else self._query.operators[part - leaves].conditions

    def _input(self, n: int) -> _Described:
        entry = self._query.inputs[n]
        sources = [
            [source.stream, [[s.conditions, [[o.name, o.expression] for o in s.outputs]] for s in source.steps]]
            for source in entry.sources
        ]
        told = [sources, sorted(entry.conditions), entry.window, self.timed, self.late[n]]
        return _Described(json.dumps(told), (entry.alias,))

    def _join(self, n: int) -> _Described:
        operator = self._query.operators[n]
        leaves = len(self._query.inputs)
        parts = sorted(operator.parts, key=lambda part: (part >= leaves, self.parts[part].identity, part))
        aliases = tuple(alias for part in parts for alias in self.parts[part].aliases)
        names = self._ranks(aliases)
        classes = [self._query.classes[c] for c in operator.classes]
        terms = [sorted(self._term(term, aliases) for term in those) for those in classes]
        # In the same order wherever this key is joined on: the hash depends on it.
        key = sorted(range(len(terms)), key=lambda k: sorted(self._term(term, ()) for term in classes[k]))
        told = [
            "join",
            [terms[k] for k in key],
            [
                [
                    self.parts[part].identity,
                    [substituted(operator.keys[operator.parts.index(part)][k], names) for k in key],
                    sorted(substituted(text, names) for text in self.conditions(part)),
                ]
                for part in parts
            ],
        ]
        return _Described(self._once(told), aliases, tuple(parts), tuple(key))

    def _group(self, grouping: Grouping) -> _Described:
        root = self.parts[-1]
        names = self._ranks(root.aliases) if len(root.aliases) > 1 else {}
        applied = grouping.applied
        told = [
            "group",
            root.identity,
            sorted(substituted(text, names) for text in self.conditions(len(self.parts) - 1)),
            [substituted(key, names) for key in grouping.keys],
            [[call.function, call.argument and substituted(call.argument, names)] for call in grouping.calls],
            [grouping.rows, grouping.distinct, grouping.once],
            None if applied is None else [repr(applied.operator), applied.columns, applied.gives],
        ]
        return _Described(self._once(told), root.aliases)

    def _term(self, term: Column, aliases: tuple[str, ...]) -> list[str]:
        """A term of a key: where it stands in the operator; or, if it is outside, its stream."""
        alias, text = term
        inside = f"{aliases.index(alias):04d}" if alias in aliases else self.parts[self._number[alias]].identity
        return [inside, text]

    def _ranks(self, aliases: tuple[str, ...]) -> dict[str, str]:
        """Joined columns by their places instead of their aliases."""
        return {
            quote(joined_column(alias, column)): quote(joined_column(str(rank), column))
            for rank, alias in enumerate(aliases)
            for column in self._query.inputs[self._number[alias]].columns
        }

    def _once(self, told: Sequence[object]) -> str:
        """The identity of what was told. The same thing twice in one query is two operators."""
        digest = hashlib.sha256(json.dumps([self._request.since, told]).encode()).hexdigest()[:20]
        times = self._seen[digest] = self._seen.get(digest, 0) + 1
        return digest if times == 1 else f"{digest}.{times}"


class _Builder:
    """Operators while queries are added. Until all are there, an input i is node ~i, and an operator n is node n."""

    def __init__(self, streams: Mapping[str, StreamSchema]) -> None:
        self._streams = dict(streams)
        self._inputs: dict[str, Input] = {}  # by alias
        self._drafts: list[_Draft] = []
        self._answers: list[Answer] = []
        self._derived: list[StreamSchema] = []

    def add(self, request: Request) -> None:
        query, told = request.query, _Description(request, self._streams)
        leaves = len(query.inputs)
        known = {draft.identity: n for n, draft in enumerate(self._drafts)}
        aliases: dict[str, str] = {}
        for part in told.parts[leaves:]:
            if part.identity in known:
                aliases |= zip(part.aliases, self._drafts[known[part.identity]].aliases, strict=True)
        if told.group is not None and told.group.identity in known:
            aliases |= zip(told.group.aliases, self._drafts[known[told.group.identity]].aliases, strict=True)
        for n, entry in enumerate(query.inputs):
            if entry.alias not in aliases:
                aliases[entry.alias] = self._new_input(request, entry, told.timed, told.late[n])
        names = _Names(query, aliases)
        nodes = [~list(self._inputs).index(aliases[entry.alias]) for entry in query.inputs]
        for n, part in enumerate(told.parts[leaves:]):
            if part.identity not in known:
                known[part.identity] = len(self._drafts)
                self._drafts.append(self._join(query, n, part, told, nodes, names))
            nodes.append(known[part.identity])
            self._need(query, n, part, self._drafts[known[part.identity]], names)
        conditions = query.conditions
        if query.grouping is not None and told.group is not None:
            if told.group.identity not in known:
                known[told.group.identity] = len(self._drafts)
                below = tuple(names.text(text) for text in told.conditions(len(told.parts) - 1))
                self._drafts.append(self._group(query.grouping, told.group, nodes[-1], below, names))
            nodes.append(known[told.group.identity])
        outputs = tuple(Output(output.name, names.text(output.expression)) for output in query.outputs)
        self._answers.append(Answer(request.name, nodes[-1], tuple(map(names.text, conditions)), outputs))

    def network(self) -> Network:
        """All of it, with what is needed of each node known."""
        inputs = list(self._inputs.values())
        place = {
            (entry.entry.alias, column): (n, k)
            for n, entry in enumerate(inputs)
            for k, column in enumerate(self._streams[entry.entry.stream].columns)
        }

        def node(drafted: int) -> int:
            return ~drafted if drafted < 0 else len(inputs) + drafted

        def ordered(columns: set[Column]) -> tuple[Column, ...]:
            return tuple(sorted(columns, key=place.__getitem__))

        operators = []
        for draft in self._drafts:
            ports = []
            for port in draft.ports:
                below = {inputs[~port.node].entry.alias} if port.node < 0 else set(self._drafts[port.node].aliases)
                stored = set() if draft.grouping else {column for column in draft.columns if column[0] in below}
                ports.append(replace(port, node=node(port.node), columns=ordered(stored)))
                if port.node < 0 and draft.grouping is None:
                    entry = inputs[~port.node].entry
                    kept = replace(entry, columns=tuple(column for _, column in ordered(stored)))
                    inputs[~port.node] = replace(inputs[~port.node], entry=kept)
            columns = ordered(draft.columns)
            operators.append(Operator(draft.identity, tuple(ports), draft.terms, columns, draft.grouping))
        answers = tuple(replace(answer, node=node(answer.node)) for answer in self._answers)
        return Network(tuple(inputs), tuple(operators), answers, tuple(self._derived))

    def _new_input(self, request: Request, entry: JoinInput, timed: bool, late: bool) -> str:
        """Take an input in under a name that is free."""
        alias = next(name for name in _candidates(entry.alias, request.name) if name not in self._inputs)
        stream = entry.stream
        if entry.is_derived:
            stream = f"({alias})"
            made = next(schema for schema in request.query.derived if schema.name == entry.stream)
            self._derived.append(replace(made, name=stream))
            self._streams[stream] = self._derived[-1]
        self._inputs[alias] = Input(replace(entry, alias=alias, stream=stream), timed, late)
        return alias

    def _join(
        self, query: ContinuousQuery, n: int, part: _Described, told: _Description, nodes: list[int], names: _Names
    ) -> _Draft:
        operator = query.operators[n]
        ports = []
        for below in part.parts:
            texts = operator.keys[operator.parts.index(below)]
            keys = tuple(texts[k] for k in part.key)
            if below >= len(query.inputs):
                keys = tuple(map(names.text, keys))
            else:
                alias = names.aliases[query.inputs[below].alias]
                entry = self._inputs[alias]
                self._inputs[alias] = replace(entry, entry=replace(entry.entry, key=keys))
            ports.append(Port(nodes[below], keys, tuple(map(names.text, told.conditions(below)))))
        classes = [query.classes[operator.classes[k]] for k in part.key]
        terms = tuple(tuple((names.aliases[alias], text) for alias, text in terms) for terms in classes)
        return _Draft(part.identity, tuple(names.aliases[alias] for alias in part.aliases), ports, terms)

    def _need(self, query: ContinuousQuery, n: int, part: _Described, draft: _Draft, names: _Names) -> None:
        """Let an operator carry what a query needs of it."""
        draft.columns |= {(names.aliases[alias], column) for alias, column in query.operators[n].columns}

    def _group(
        self, grouping: Grouping, part: _Described, node: int, conditions: tuple[str, ...], names: _Names
    ) -> _Draft:
        keys = tuple(map(names.text, grouping.keys))
        calls = tuple(AggregateCall(c.function, c.argument and names.text(c.argument)) for c in grouping.calls)
        made = replace(grouping, keys=keys, calls=calls, conditions=())
        aliases = tuple(names.aliases[alias] for alias in part.aliases)
        return _Draft(part.identity, aliases, [Port(node, keys, conditions)], grouping=made)


class _Names:
    """A query's joined columns under the aliases that the network has for its own."""

    def __init__(self, query: ContinuousQuery, aliases: dict[str, str]) -> None:
        self.aliases = aliases
        self._texts = {
            quote(joined_column(entry.alias, column)): quote(joined_column(aliases[entry.alias], column))
            for entry in query.inputs
            for column in entry.columns
            if aliases[entry.alias] != entry.alias
        }

    def text(self, text: str) -> str:
        return substituted(text, self._texts)


def _candidates(alias: str, name: str) -> Iterator[str]:
    yield alias
    yield f"{alias} of {name}"
    number = 2
    while True:
        yield f"{alias} of {name}, {number}"
        number += 1
