"""The identity of an operator: a digest of all that its state depends on, and of nothing else.

Two queries share a join if the same streams come in with the same conditions, windows and rules of lateness, and are
joined on the same keys, whatever they are called and in whichever order they stand; a grouping, if they group the same
join by the same keys for the same aggregates. What queries select from a shared join may differ.

Only queries that begin together (`since`) share: one that is added later must not see what came before it. Nor do
queries of different tracks: one that migrates has its old and its new operators side by side for a while.

So the canonical form of an operator leaves out aliases: columns are named by the rank of their input among those that
the operator joins, and parts stand in an order that does not depend on the text.

The identity of the state at a port (`port_state`) is another matter: it leaves out the tree, too, and comes from the
query without its order of joins.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.plan.network import Column
from anabranch.plan.query import ContinuousQuery, Grouping, StreamSchema, joined_column, quote
from anabranch.plan.sharing.port_state import PortIdentity, digest
from anabranch.plan.texts import substituted
from anabranch.plan.watermark import can_be_late, input_times


@dataclass(frozen=True, slots=True)
class CanonicalPart:
    """An input or operator of a query, independent of names. Aliases, parts and key columns are in canonical order.

    `key` has the number of each key column in the query's operator.
    """

    identity: str
    aliases: tuple[str, ...]
    parts: tuple[int, ...] = ()
    key: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Demand:
    """What the query around a block needs of it: rows with an event time (`timed`), and none behind a watermark
    (`late`)."""

    timed: bool = False
    late: bool = False


class CanonicalQuery:
    """A query with its parts in canonical form: equal parts of two queries have equal identities, and can be shared."""

    def __init__(
        self, query: ContinuousQuery, since: int, streams: Mapping[str, StreamSchema], demand: Demand, track: int = 0
    ) -> None:
        self._query = query
        self._since = since
        self._track = track
        self._streams = {**streams, **{schema.name: schema for schema in query.derived}}
        times = input_times(query, self._streams)
        self.timed = demand.timed or query.grouping is not None or any(e.window is not None for e in query.inputs)
        self.late = [
            can_be_late(times, n) or (demand.late and time.lateness is not None) for n, time in enumerate(times)
        ]
        self._number = {entry.alias: n for n, entry in enumerate(query.inputs)}
        self._times_made: dict[str, int] = {}
        self.parts: list[CanonicalPart] = [self._input(n) for n in range(len(query.inputs))]
        for n in range(len(query.operators)):
            self.parts.append(self._join(n))
        self.group = None if query.grouping is None else self._group(query.grouping)
        self._input_texts = [self._input_text(n) for n in range(len(query.inputs))]

    @property
    def root(self) -> CanonicalPart:
        """The part whose rows the answer is selected from."""
        return self.group or self.parts[-1]

    def demand(self, n: int) -> Demand:
        """What an input needs of a block that feeds it."""
        return Demand(self.timed, self.late[n])

    def conditions(self, part: int) -> tuple[str, ...]:
        """The conditions that rows of a part have to meet before they go on."""
        leaves = len(self._query.inputs)
        return () if part < leaves else self._query.operators[part - leaves].conditions

    def answer(self) -> list[object]:
        """The canonical form of the answer: the root, and what is selected of it."""
        names = {} if self.group else self._ranks(self.root.aliases)
        return [
            self.root.identity,
            sorted(substituted(text, names) for text in self._query.conditions),
            [[output.name, substituted(output.expression, names)] for output in self._query.outputs],
        ]

    def ranked(self, part: int) -> tuple[int, ...]:
        """The inputs that a part holds, in the order in which an identity of its state names them."""
        return tuple(sorted(self._query.inputs_of(part), key=lambda n: (self._input_texts[n], n)))

    def join_port(self, n: int, part: int) -> PortIdentity:
        """The identity of the state of one of the parts that a join takes."""
        ranked = self.ranked(part)
        classes = [self._query.classes[self._query.operators[n].classes[k]] for k in self._join_part(n).key]
        key = []
        for terms in classes:
            inside = sorted(self._ranked_text(term, ranked) for term in terms if self._number[term[0]] in ranked)
            compared = sorted([self._input_texts[self._number[alias]], text] for alias, text in terms)
            key.append((" = ".join(inside), digest(compared)))
        return PortIdentity(self._held_inputs(ranked), self._met_conditions(ranked), tuple(key))

    def group_port(self, grouping: Grouping) -> PortIdentity:
        """The identity of the state of the query's grouping."""
        ranked = self.ranked(self._query.root)
        names = self._rank_names(ranked)
        key = tuple((substituted(text, names), "") for text in grouping.keys)
        return PortIdentity(self._held_inputs(ranked), self._met_conditions(ranked), key)

    def group_columns(self, grouping: Grouping) -> frozenset[str]:
        """The columns that the query's grouping stores."""
        names = self._rank_names(self.ranked(self._query.root))
        if grouping.applied is not None:
            return frozenset(grouping.applied.columns)
        return frozenset(substituted(call.argument, names) for call in grouping.calls if call.argument is not None)

    def rows(self) -> list[object]:
        """The canonical form of the rows that the query gives; it does not depend on the order of its joins."""
        ranked, grouping = self.ranked(self._query.root), self._query.grouping
        names = self._rank_names(ranked)
        content: list[object] = [self._held_inputs(ranked), self._met_conditions(ranked)]
        if grouping is not None:
            applied = grouping.applied
            content += [
                [substituted(key, names) for key in grouping.keys],
                [[call.function, call.argument and substituted(call.argument, names)] for call in grouping.calls],
                [grouping.rows, grouping.distinct, grouping.once],
                sorted(grouping.conditions),
                None if applied is None else [repr(applied.operator), applied.columns, applied.result_ddl],
            ]
            names = {}
        return [*content, [[output.name, substituted(output.expression, names)] for output in self._query.outputs]]

    def _input_text(self, n: int) -> str:
        """The canonical form of an input: where its rows come from, which conditions they have met, and when they are
        too late."""
        entry, logical = self._query.inputs[n], self._query.logical
        sources = [
            {
                "stream" if source.block is None else "rows": source.stream
                if source.block is None
                else CanonicalQuery(source.block, self._since, self._streams, self.demand(n)).rows(),
                "lateness (us)": self._streams[source.stream].lateness if source.block is None else None,
                "selections": [[s.conditions, [[o.name, o.expression] for o in s.outputs]] for s in source.steps],
            }
            for source in entry.sources
        ]
        content = {
            "sources": sources,
            "conditions": sorted(entry.conditions if logical is None else logical.inputs[n].conditions),
            "window (us)": entry.window,
            "lateness (us)": self._streams[entry.stream].lateness,
            "timed": self.timed,
            "late": self.late[n],
            "since": self._since,
        }
        return json.dumps(content)

    def _held_inputs(self, ranked: Sequence[int]) -> tuple[str, ...]:
        return tuple(self._input_texts[n] for n in ranked)

    def _met_conditions(self, ranked: Sequence[int]) -> tuple[str, ...]:
        """The conditions that joined rows of some inputs have met, in whichever order they were joined.

        All terms of a class that are there are equal, and none is null if it has to equal one that is not there. Any
        other condition was decided as soon as all that it reads was there.
        """
        logical = self._query.logical
        if logical is None:
            return ()
        names, aliases = self._rank_names(ranked), {self._query.inputs[n].alias for n in ranked}
        everything = len(ranked) == len(self._query.inputs)
        met = [
            substituted(condition.text, names)
            for condition in logical.conditions
            if (condition.aliases <= aliases if condition.reads else everything)
        ]
        for terms in self._query.classes:
            inside = sorted(self._ranked_text(term, ranked) for term in terms if term[0] in aliases)
            if inside:
                met.append(" = ".join(inside) if len(inside) > 1 else f"{inside[0]} IS NOT NULL")
        return tuple(sorted(met))

    def _rank_names(self, ranked: Sequence[int]) -> dict[str, str]:
        """New names for columns of some inputs: the rank of the input in place of its alias."""
        if self._query.logical is None:
            return {}
        return {
            quote(joined_column(self._query.inputs[n].alias, column)): quote(joined_column(str(rank), column))
            for rank, n in enumerate(ranked)
            for column in self._query.logical.inputs[n].columns
        }

    def _ranked_text(self, term: Column, ranked: Sequence[int]) -> str:
        """A term over the columns of an input, named by its rank."""
        n = self._number[term[0]]
        logical = self._query.logical
        columns = self._query.inputs[n].columns if logical is None else logical.inputs[n].columns
        rank = str(ranked.index(n))
        return substituted(term[1], {quote(column): quote(joined_column(rank, column)) for column in columns})

    def _join_part(self, n: int) -> CanonicalPart:
        return self.parts[len(self._query.inputs) + n]

    def _input(self, n: int) -> CanonicalPart:
        entry = self._query.inputs[n]
        sources = [
            [
                source.stream
                if source.block is None
                else CanonicalQuery(source.block, self._since, self._streams, self.demand(n)).answer(),
                [[s.conditions, [[o.name, o.expression] for o in s.outputs]] for s in source.steps],
            ]
            for source in entry.sources
        ]
        content = [sources, sorted(entry.conditions), entry.window, self.timed, self.late[n]]
        return CanonicalPart(json.dumps(content), (entry.alias,))

    def _join(self, n: int) -> CanonicalPart:
        operator = self._query.operators[n]
        leaves = len(self._query.inputs)
        parts = sorted(operator.parts, key=lambda part: (part >= leaves, self.parts[part].identity, part))
        aliases = tuple(alias for part in parts for alias in self.parts[part].aliases)
        names = self._ranks(aliases)
        classes = [self._query.classes[c] for c in operator.classes]
        terms = [sorted(self._term(term, aliases) for term in those) for those in classes]
        # In the same order wherever this key is joined on: the hash depends on it.
        key = sorted(range(len(terms)), key=lambda k: sorted(self._term(term, ()) for term in classes[k]))
        content = [
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
        return CanonicalPart(self._identity_of(content), aliases, tuple(parts), tuple(key))

    def _group(self, grouping: Grouping) -> CanonicalPart:
        root = self.parts[-1]
        names = self._ranks(root.aliases) if len(root.aliases) > 1 else {}
        applied = grouping.applied
        content = [
            "group",
            root.identity,
            sorted(substituted(text, names) for text in self.conditions(len(self.parts) - 1)),
            [substituted(key, names) for key in grouping.keys],
            [[call.function, call.argument and substituted(call.argument, names)] for call in grouping.calls],
            [grouping.rows, grouping.distinct, grouping.once],
            None if applied is None else [repr(applied.operator), applied.columns, applied.result_ddl],
        ]
        return CanonicalPart(self._identity_of(content), root.aliases)

    def _term(self, term: Column, aliases: tuple[str, ...]) -> list[str]:
        """A term of a key: the place of its alias in the operator and its text; outside of it, the input's identity."""
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

    def _identity_of(self, content: Sequence[object]) -> str:
        """The digest of the content of a part. The same content twice in one query makes two operators, so it is
        numbered."""
        name = digest([self._since, content, self._track] if self._track else [self._since, content])
        times = self._times_made[name] = self._times_made.get(name, 0) + 1
        return name if times == 1 else f"{name}.{times}"
