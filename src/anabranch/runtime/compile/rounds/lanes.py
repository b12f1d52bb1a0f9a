"""Lanes: how rows travel from one operator to a port of another, through a round's exchange.

All lanes of an exchange share its slots, and rows are told apart by tags. On the way Spark selects the rows, computes
their key and hash, and what is stored of them that is no plain column. A block's rows are projected, too: the texts of
the input that they feed are written in terms of the columns that its operator gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pyspark.sql import types as T

from anabranch.kernel.delta import INPUT, Projection
from anabranch.kernel.operator import EXPIRY
from anabranch.plan.network import Feed, Input, Network
from anabranch.plan.query import joined_column, quote
from anabranch.plan.rounds import Rounds
from anabranch.plan.texts import is_name, substituted, texts_of
from anabranch.runtime.compile.columns import Columns, time_name
from anabranch.runtime.compile.layout import Carried, Exchange, Lane, Slot
from anabranch.runtime.rows.carried import carried_type, check_carried, to_carried
from anabranch.runtime.rows.derived import in_types
from anabranch.runtime.rows.keys import canonical
from anabranch.state.runs.run import HASH, TS


@dataclass(frozen=True, slots=True)
class _Travelling:
    """Rows of a node on their way to a port. Rows of a block are selected and projected: `texts` are the columns of the
    input that they feed, over those of the node."""

    port: int
    node: int
    conditions: tuple[str, ...]
    keys: tuple[str, ...]
    texts: dict[str, str] = field(default_factory=dict)


class Lanes:
    """All lanes of a network, numbered by their tags."""

    def __init__(self, network: Network, columns: Columns, rounds: Rounds) -> None:
        """Collect the rows that travel, from the network and its rounds."""
        self._network = network
        self._columns = columns
        self._rounds = rounds
        self._ports = network.ports
        self.crossing = {(edge.upper, edge.port) for edge in rounds.crossing}
        self._timed = any(entry.timed for entry in network.inputs)
        self._travelling = list(self._travels())

    def exchange(self, number: int) -> Exchange:
        """The exchange before a round: it carries rows of the round before to operators of this round and later
        ones."""
        slots: list[Slot] = []
        lanes = [
            self._lane(tag, going, slots) for tag, going in enumerate(self._travelling) if self._sent(going) == number
        ]
        yielded = {column.slot for lane in lanes for column in lane.columns}
        yielded |= {slot for lane in lanes for slot, _ in lane.passed}
        kept = {slot for lane in lanes for _, slot in lane.stored.columns}
        fields = [T.StructField(INPUT, T.ShortType()), *([T.StructField(TS, T.LongType())] if self._timed else [])]
        fields += [T.StructField(slot.name, slot.type) for slot in slots if slot.name in yielded]
        return Exchange(tuple(lanes), tuple(s for s in slots if s.name in kept), T.StructType(fields))

    def _travels(self) -> Iterator[_Travelling]:
        """All rows that travel from one operator to a port of another."""
        for number, (n, p) in enumerate(self._ports):
            port = self._network.operators[n].ports[p]
            if (n, p) in self.crossing and self._network.operator_of(port.node) is not None:
                yield _Travelling(number, port.node, port.conditions, port.keys)
            elif self._network.operator_of(port.node) is None:
                entry = self._network.inputs[port.node]
                for feed in (feed for feed in entry.feeds if feed is not None):
                    yield self._feeding(number, entry, feed)

    def _feeding(self, number: int, entry: Input, feed: Feed) -> _Travelling:
        """The rows with which a block feeds an input, under the input's conditions and key."""
        own, common = self._columns.feed_schema(feed), self._columns.frame(entry.entry.alias).schema
        outputs = in_types(feed.outputs, own, common)
        texts = texts_of(outputs)
        keys = tuple(substituted(key, texts) for key in entry.entry.key)
        conditions = [*feed.conditions, *(substituted(text, texts) for text in entry.entry.conditions)]
        n, _ = self._ports[number]
        if self._columns.groups[n] is None:
            conditions += [f"({key}) IS NOT NULL" for key in keys]
        return _Travelling(number, feed.node, tuple(conditions), keys, texts)

    def _lane(self, tag: int, going: _Travelling, slots: list[Slot]) -> Lane:
        n, p = self._ports[going.port]
        key_types = self._columns.key_types[n]
        keys = [to_carried(canonical(key, t), t) for key, t in zip(going.keys, key_types, strict=True)]
        has_hash = not going.texts and self._columns.keeps_hash(n, p)
        hashed = [] if has_hash else self._hashed(n, going, keys)
        stored = [] if has_hash else self._stored_keys(n, keys)
        stored += self._stored(n, going)
        fields = self._columns.fields(going.node)
        times = [T.StructField(time_name(i), T.LongType()) for i in self._columns.timed(going.node)]
        texts = [*going.conditions, *hashed, *(text for _, text, _ in stored)]
        read = [field for field in [*fields, *times] if is_read(field, texts)]
        # Other lanes may have columns of the same name.
        names = {field.name: f"{tag}:{field.name}" if self._is_ambiguous(field.name) else field.name for field in read}
        own = {quote(name): quote(other) for name, other in names.items()}
        plain = {quote(field.name): field.name for field in read}
        computed = [(text, t) for _, text, t in stored if text not in plain]
        passes = self._passed(n) if has_hash else {}
        types = [*(carried_type(f.dataType) for f in read), *(t for _, t in computed), *passes.values()]
        placed = assign_slots(slots, types)
        passed = dict(zip(passes, placed[len(types) - len(passes) :], strict=True))
        columns = tuple(Carried(names[f.name], f.dataType, slot) for f, slot in zip(read, placed, strict=False))
        slot_of = {quote(field.name): slot for field, slot in zip(read, placed, strict=False)}
        made = dict(zip((text for text, _ in computed), placed[len(read) :], strict=False))
        timed = self._columns.is_timed(n)
        return Lane(
            tag=tag,
            port=going.port,
            node=going.node,
            conditions=tuple(substituted(text, own) for text in going.conditions),
            hashed=tuple(substituted(text, own) for text in hashed),
            computed=tuple((slot, substituted(text, own)) for text, slot in made.items()),
            columns=columns,
            stored=Projection(
                (
                    *((name, slot) for name, slot in passed.items() if name != HASH),
                    *((name, slot_of.get(text) or made[text]) for name, text, _ in stored),
                ),
                timed,
            ),
            passed=tuple((slot, name) for name, slot in passed.items()),
        )

    def _passed(self, n: int) -> dict[str, T.DataType]:
        """What rows have already that were joined on the same key below: its hash, and the key if it is stored."""
        types = map(carried_type, self._columns.key_types[n])
        return {HASH: T.LongType(), **dict(zip(self._columns.verified(n), types, strict=False))}

    def _hashed(self, n: int, going: _Travelling, keys: list[str]) -> list[str]:
        """The expressions that the hash of rows on their way to a port is computed from.

        The hash leaves out nulls, so groups by several keys need to tell where they are. What is grouped by the key it
        was joined on has the hash of that join wherever its operator is: its state may have been made there.
        """
        if n in self._columns.in_place:
            lower = self._network.operator_of(going.node)
            assert lower is not None, "what is grouped in place was joined"
            order, types = self._columns.in_place[n], self._columns.key_types[lower]
            return [to_carried(canonical(going.keys[k], t), t) for k, t in zip(order, types, strict=True)]
        grouped = self._columns.groups[n] is not None and len(keys) > 1
        return [*keys, *(f"({key}) IS NULL" for key in keys if grouped)]

    def _stored_keys(self, n: int, keys: list[str]) -> list[tuple[str, str, T.DataType]]:
        """The key of rows that travel, as far as it is stored: state columns, expressions in carried form, types."""
        types = map(carried_type, self._columns.key_types[n])
        return list(zip(self._columns.verified(n), keys, types, strict=False))

    def _stored(self, n: int, going: _Travelling) -> list[tuple[str, str, T.DataType]]:
        """What is stored of rows that travel beside their key."""
        group = self._columns.groups[n]
        port = self._network.operators[n].ports[self._ports[going.port][1]]
        stored: list[tuple[str, str, T.DataType]] = []
        if group is not None:
            texts = [substituted(text, going.texts) for text, _ in group.arguments]
            stored += [(name, text, t) for name, text, (_, t) in zip(group.names, texts, group.arguments, strict=True)]
            if self._network.operator_of(port.node) is not None:
                ends = [f"{quote(time_name(i))} + {window}L" for i, window in self._columns.windows(port.node)]
                stored.append((EXPIRY, ends[0] if len(ends) == 1 else f"least({', '.join(ends)})", T.LongType()))
            return stored
        for column in port.columns:
            data_type = self._columns.type_of(column)
            check_carried(joined_column(*column), data_type)
            name = quote(joined_column(*column)) if not going.texts else going.texts[quote(column[1])]
            plain = is_name(name)
            text = name if plain else to_carried(name, data_type)
            stored.append((self._columns.stored(port, column), text, carried_type(data_type)))
        if not going.texts:
            timed = self._columns.timed(port.node)
            stored += [(self._columns.stored_time(port, i), quote(time_name(i)), T.LongType()) for i in timed]
        return stored

    def result_names(self, lane: Lane) -> dict[str, str]:
        """The names of a lane's columns in the results of its operator."""
        n = self._network.operator_of(lane.node)
        by_user = n is not None and self._columns.is_user_operator(n)
        prefix = f"{lane.tag}:"
        plain = {column.name: column.name.removeprefix(prefix) for column in lane.columns}
        return {name: own if by_user else self._columns.result_name(own) for name, own in plain.items()}

    def _is_ambiguous(self, name: str) -> bool:
        """Whether columns of this name may travel in several lanes."""
        return sum(name.lower() in self._names_of(going.node) for going in self._travelling) > 1

    def _names_of(self, node: int) -> set[str]:
        return {f.name.lower() for f in self._columns.fields(node)} | {time_name(i) for i in self._columns.timed(node)}

    def _sent(self, going: _Travelling) -> int:
        """The round before which rows travel to a port: the one after that in which they are made."""
        lower = self._network.operator_of(going.node)
        assert lower is not None, "rows of streams travel before the first round"
        return self._rounds.of[lower] + 1


def assign_slots(slots: list[Slot], types: list[T.DataType]) -> list[str]:
    """A slot per type, using existing ones first, each at most once."""
    used: set[str] = set()
    placed = []
    for data_type in types:
        free = next((slot for slot in slots if slot.type == data_type and slot.name not in used), None)
        if free is None:
            free = Slot(f"s{len(slots)}", data_type)
            slots.append(free)
        used.add(free.name)
        placed.append(free.name)
    return placed


def is_read(field: T.StructField, texts: Sequence[str]) -> bool:
    """Whether expressions read a column."""
    return any(quote(field.name) in text for text in texts)
