"""Build one network that answers several queries. An operator whose identity is in the network already is shared.

A shared join carries all columns that any of its queries needs. Each query calls columns by its own aliases; in the
network every input has one alias, that of the query that was added first, and expressions of later queries are
rewritten to use it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch.plan.network import Answer, Column, Feed, Input, Network, Operator, Port, Request
from anabranch.plan.query import (
    RESERVED,
    AggregateCall,
    ContinuousQuery,
    Grouping,
    Output,
    StreamSchema,
    joined_column,
    quote,
)
from anabranch.plan.sharing.identity import CanonicalPart, CanonicalQuery, Demand
from anabranch.plan.sharing.port_state import PortState
from anabranch.plan.texts import inlined, substituted


def network_of(requests: Sequence[Request], streams: Mapping[str, StreamSchema]) -> Network:
    """The network that answers all queries."""
    builder = _Builder(streams)
    for request in requests:
        builder.add(request)
    return builder.network()


@dataclass(slots=True)
class _Draft:
    """An operator while queries are added. `aliases` are those of its inputs in canonical order.

    `ranks` are, per port of a join, the aliases whose rows it holds, in the order in which the port's identity names
    them.
    """

    identity: str
    aliases: tuple[str, ...]
    ports: list[Port]
    ranks: tuple[tuple[str, ...], ...] = ()
    terms: tuple[tuple[Column, ...], ...] = ()
    columns: set[Column] = field(default_factory=set)
    grouping: Grouping | None = None


class _Builder:
    """Operators while queries are added. Until all are there, an input i is node ~i, and an operator n is node n."""

    def __init__(self, streams: Mapping[str, StreamSchema]) -> None:
        self._streams = dict(streams)
        self._inputs: dict[str, Input] = {}  # by alias
        self._drafts: list[_Draft] = []
        self._answers: list[Answer] = []
        self._derived: list[StreamSchema] = []
        self._classes: dict[tuple[Column, ...], None] = {}
        self._kept: dict[str, set[str]] = {}  # by alias, the columns that any order of its query's joins needs

    def add(self, request: Request) -> None:
        if request.shadow:
            self._add(request.query, request, Demand(), request.track)
            return
        first = self._add(request.query, request, Demand(), request.track)
        others = [self._add(query, request, Demand()) for query in request.query.united]
        self._answers.append(Answer(request.name, (first, *others)))

    def _add(self, query: ContinuousQuery, request: Request, demand: Demand, track: int = 0) -> Feed:
        """The operators of a query or block, and what it selects of the last one's rows; of a shadow only its joins."""
        canonical = CanonicalQuery(query, request.rows_since, self._streams, demand, track)
        is_shadow = request.shadow and query is request.query
        leaves = len(query.inputs)
        operator_of = {draft.identity: n for n, draft in enumerate(self._drafts)}
        aliases: dict[str, str] = {}
        for part in [*canonical.parts[leaves:], canonical.root]:
            if part.identity in operator_of:
                aliases |= zip(part.aliases, self._drafts[operator_of[part.identity]].aliases, strict=True)
        for n, entry in enumerate(query.inputs):
            if entry.alias not in aliases:
                aliases[entry.alias] = self._new_input(query, n, request, canonical, shadow=is_shadow)
            self._kept.setdefault(aliases[entry.alias], set()).update(entry.columns)
        operator_of |= {draft.identity: n for n, draft in enumerate(self._drafts)}
        names = _Names(query, aliases)
        self._classes |= dict.fromkeys(names.terms(terms) for terms in query.classes)
        nodes = [~list(self._inputs).index(aliases[entry.alias]) for entry in query.inputs]
        for n, part in enumerate(canonical.parts[leaves:]):
            if part.identity not in operator_of:
                operator_of[part.identity] = len(self._drafts)
                self._drafts.append(self._join(query, n, part, canonical, nodes, names))
            nodes.append(operator_of[part.identity])
            carried = query.operators[n].columns or self._counted(query, part, aliases)
            self._drafts[nodes[-1]].columns |= {(aliases[alias], column) for alias, column in carried}
        if query.grouping is not None and canonical.group is not None and not is_shadow:
            if canonical.group.identity not in operator_of:
                operator_of[canonical.group.identity] = len(self._drafts)
                below = tuple(names.text(text) for text in canonical.conditions(len(canonical.parts) - 1))
                self._drafts.append(self._group(query.grouping, canonical, nodes[-1], below, names))
            nodes.append(operator_of[canonical.group.identity])
        outputs = tuple(Output(output.name, names.text(output.expression)) for output in query.outputs)
        return Feed(nodes[-1], tuple(map(names.text, query.conditions)), outputs)

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

        def placed(feed: Feed) -> Feed:
            return replace(feed, node=node(feed.node))

        def ordered(columns: set[Column]) -> tuple[Column, ...]:
            return tuple(sorted(columns, key=place.__getitem__))

        operators = []
        for draft in self._drafts:
            ports: list[Port] = []
            for port in draft.ports:
                below = {inputs[~port.node].entry.alias} if port.node < 0 else set(self._drafts[port.node].aliases)
                stored = set() if draft.grouping else {column for column in draft.columns if column[0] in below}
                if port.node < 0 and draft.grouping is None:
                    (alias,) = below
                    stored |= {(alias, column) for column in self._kept[alias]}
                state = port.state if draft.grouping else _storing(port.state, draft.ranks[len(ports)], stored)
                ranks = () if draft.grouping else draft.ranks[len(ports)]
                ports.append(replace(port, node=node(port.node), columns=ordered(stored), state=state, ranks=ranks))
                if port.node < 0 and draft.grouping is None:
                    entry = inputs[~port.node].entry
                    kept = replace(entry, columns=tuple(column for _, column in ordered(stored)))
                    inputs[~port.node] = replace(inputs[~port.node], entry=kept)
            columns = ordered(draft.columns)
            operators.append(Operator(draft.identity, tuple(ports), draft.terms, columns, draft.grouping))
        inputs = [replace(e, feeds=tuple(feed and placed(feed) for feed in e.feeds)) for e in inputs]
        answers = tuple(replace(answer, branches=tuple(map(placed, answer.branches))) for answer in self._answers)
        return Network(tuple(inputs), tuple(operators), answers, tuple(self._derived), tuple(self._classes))

    def _counted(self, query: ContinuousQuery, part: CanonicalPart, aliases: Mapping[str, str]) -> tuple[Column, ...]:
        """The column of a join that needs none, since rows without any could not be counted.

        It depends on the query alone, so it stays when another query goes that shares the join. A column that the input
        keeps anyway is there in any order of the joins.
        """
        alias = part.aliases[0]
        entry = next(entry for entry in query.inputs if entry.alias == alias)
        columns = entry.columns or self._streams[self._inputs[aliases[alias]].entry.stream].columns
        return ((alias, columns[0]),)

    def _new_input(
        self, query: ContinuousQuery, n: int, request: Request, canonical: CanonicalQuery, *, shadow: bool
    ) -> str:
        """Take an input in under a name that is free, after all that feeds it."""
        entry = query.inputs[n]
        feeds: list[Feed | None] = []
        for source in entry.sources:
            if source.block is None:
                feeds.append(None)
                continue
            feed = self._add(source.block, request, canonical.demand(n))
            conditions, outputs = inlined(feed.outputs, source.steps)
            feeds.append(Feed(feed.node, (*feed.conditions, *conditions), outputs))
        taken = {name.lower() for name in self._inputs}
        wanted = f"{RESERVED}{entry.alias}" if shadow else entry.alias
        alias = next(name for name in _candidates(wanted, request.name) if name.lower() not in taken)
        stream = entry.stream
        if entry.is_derived:
            stream = f"({alias})"
            made = next(schema for schema in query.derived if schema.name == entry.stream)
            self._derived.append(replace(made, name=stream))
            self._streams[stream] = self._derived[-1]
        renamed = replace(entry, alias=alias, stream=stream)
        self._inputs[alias] = Input(renamed, canonical.timed, canonical.late[n], tuple(feeds), shadow)
        return alias

    def _join(
        self,
        query: ContinuousQuery,
        n: int,
        part: CanonicalPart,
        canonical: CanonicalQuery,
        nodes: list[int],
        names: _Names,
    ) -> _Draft:
        operator = query.operators[n]
        ports, ranks = [], []
        for below in part.parts:
            texts = operator.keys[operator.parts.index(below)]
            keys = tuple(texts[k] for k in part.key)
            if below >= len(query.inputs):
                keys = tuple(map(names.text, keys))
            else:
                alias = names.aliases[query.inputs[below].alias]
                entry = self._inputs[alias]
                self._inputs[alias] = replace(entry, entry=replace(entry.entry, key=keys))
            state = PortState(canonical.join_port(n, below), frozenset())
            ports.append(Port(nodes[below], keys, state, tuple(map(names.text, canonical.conditions(below)))))
            ranks.append(tuple(names.aliases[query.inputs[i].alias] for i in canonical.ranked(below)))
        terms = tuple(names.terms(query.classes[operator.classes[k]]) for k in part.key)
        aliases = tuple(names.aliases[alias] for alias in part.aliases)
        return _Draft(part.identity, aliases, ports, tuple(ranks), terms)

    def _group(
        self, grouping: Grouping, canonical: CanonicalQuery, node: int, conditions: tuple[str, ...], names: _Names
    ) -> _Draft:
        keys = tuple(map(names.text, grouping.keys))
        calls = tuple(AggregateCall(c.function, c.argument and names.text(c.argument)) for c in grouping.calls)
        made = replace(grouping, keys=keys, calls=calls, conditions=())
        aliases = tuple(names.aliases[alias] for alias in canonical.root.aliases)
        state = PortState(canonical.group_port(grouping), canonical.group_columns(grouping))
        return _Draft(canonical.root.identity, aliases, [Port(node, keys, state, conditions)], grouping=made)


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

    def terms(self, terms: Sequence[Column]) -> tuple[Column, ...]:
        return tuple((self.aliases[alias], text) for alias, text in terms)


def _storing(state: PortState, ranks: Sequence[str], columns: set[Column]) -> PortState:
    """The state of a port that stores some columns."""
    return replace(
        state, columns=frozenset(joined_column(str(ranks.index(alias)), column) for alias, column in columns)
    )


def _candidates(alias: str, name: str) -> Iterator[str]:
    yield alias
    yield f"{alias} of {name}"
    number = 2
    while True:
        yield f"{alias} of {name}, {number}"
        number += 1
