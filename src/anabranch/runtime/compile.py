"""From a network to its layout: which columns are stored and travel where, and what each operator does with them.

Ports are numbered as in `plan/network`; what has state and what rows are exchanged to is a port. Names of columns are
those of `columns`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from anabranch.kernel.delta import INPUT, Projection
from anabranch.kernel.multiway import JoinShape
from anabranch.kernel.operator import EXPIRY, StatefulOperator
from anabranch.kernel.window_aggregate import WindowAggregate
from anabranch.kernel.window_join import ResultColumn, WindowJoin
from anabranch.plan.logical import JoinInput, StreamSchema, joined_column, quote
from anabranch.plan.network import Answer, Network, Port
from anabranch.plan.rounds import rounds_of
from anabranch.plan.watermark import PortTime, SourceTime, retention
from anabranch.runtime.attempt import judge
from anabranch.runtime.carried import carried_type, check_carried, is_changed, to_carried
from anabranch.runtime.columns import Columns, time_name
from anabranch.runtime.derive import derived_schema, source_frame
from anabranch.runtime.keys import canonical
from anabranch.runtime.layout import AnswerLayout, Carried, Exchange, InputLayout, Layout, PortLayout, Slot
from anabranch.runtime.notes import NOTE
from anabranch.runtime.processor import Destination, Goes, OperatorPlan, ProcessorPlan, RoundPlan
from anabranch.state.run import HASH, TS

# A run covers at most this part of the time that rows are kept, so that most of them can be dropped whole.
SPANS_PER_RETENTION = 4

# Pairs of a new name and a name in the results of an operator.
Picked = tuple[tuple[str, str], ...]


def lay_out(
    spark: SparkSession,
    network: Network,
    frames: Mapping[str, DataFrame],
    streams: Mapping[str, StreamSchema],
    *,
    keep_rejected: bool,
    keep_late: bool,
) -> Layout:
    """The layout of a network over the given stream DataFrames."""
    return _Maker(spark, network, frames, streams, keep_late).make(keep_rejected)


class _Maker:
    """The parts of a layout, made from the streams upwards."""

    def __init__(
        self,
        spark: SparkSession,
        network: Network,
        frames: Mapping[str, DataFrame],
        streams: Mapping[str, StreamSchema],
        keep_late: bool,
    ) -> None:
        self._spark = spark
        self._network = network
        self._frames = frames
        self._streams = streams
        self._keep_late = keep_late
        self._columns = Columns(spark, network, frames, streams)
        self._rounds = rounds_of(network, self._columns.in_place)
        self._crossing = {(edge.upper, edge.port) for edge in self._rounds.crossing}
        self._ports = network.ports
        self._groupings = [n for n, operator in enumerate(network.operators) if operator.grouping is not None]
        self._timed = any(entry.timed for entry in network.inputs)

    def make(self, keep_rejected: bool) -> Layout:
        network = self._network
        slots: list[Slot] = []
        inputs, late = [], []
        arrivals: list[dict[int, Projection]] = [{} for _ in range(self._rounds.count)]
        for number, entry in enumerate(network.inputs):
            (port,) = network.consumers(number)
            derived = entry.entry.is_derived
            types = derived_schema(self._spark, entry.entry, self._frames, self._streams) if derived else None
            for nth in range(len(entry.entry.sources)):
                made, arrivals[0][port], shown = self._input(number, port, nth, types, slots)
                inputs.append(made)
                late.append(shown)
        exchanges = []
        for number in range(1, self._rounds.count):
            exchange = self._exchange(number)
            exchanges.append(exchange)
            arrivals[number] |= {entry.port: self._state_of(entry) for entry in exchange.ports}
        answers = [self._answer(answer) for answer in network.answers]
        rounds = tuple(
            RoundPlan(
                tuple(self._operator(n, exchanges, answers) for n in self._rounds.operators(number)),
                arrivals[number],
                _arrow_schema(exchanges[number].yielded) if number < len(exchanges) else None,
            )
            for number in range(self._rounds.count)
        )
        sources = tuple(self._source_time(entry) for entry in inputs)
        ports = tuple(self._port_time(n, p) for n, p in self._ports)
        plan = ProcessorPlan(
            aliases=tuple(entry.label for entry in inputs),
            leaves=tuple(entry.port for entry in inputs),
            rounds=rounds,
            max_spans=tuple(_max_span(sources, port) for port in ports),
            groupings=tuple(self._groupings),
            keep_rejected=keep_rejected,
            late_projections=tuple(late) if self._keep_late else None,
        )
        return Layout(
            inputs=tuple(inputs),
            slots=tuple(slots),
            exchanges=tuple(exchanges),
            key_types=tuple(self._columns.key_types),
            rounds=self._rounds.of,
            sources=sources,
            ports=ports,
            groupings=len(self._groupings),
            timed=self._timed,
            processor=plan,
            answers=tuple(answers),
            argument_types=tuple(
                () if group is None else tuple(data_type for _, data_type in group.arguments)
                for group in self._columns.groups
            ),
        )

    def _input(
        self, number: int, port: int, nth: int, types: T.StructType | None, slots: list[Slot]
    ) -> tuple[InputLayout, Projection, Projection]:
        """The layout of a source, what of its rows is stored, and what is shown of those that are late."""
        n, _ = self._ports[port]
        entry, timed = self._network.inputs[number].entry, self._network.inputs[number].timed
        source = entry.sources[nth]
        key_types, group = self._columns.key_types[n], self._columns.groups[n]
        source_time = self._streams[source.stream].time
        rows = source_frame(source, source_time, self._frames, types)
        schema = rows.schema
        time = self._streams[entry.stream].time if timed else None
        plain = {quote(column): column for column in schema.names}
        keys = [to_carried(canonical(key, t), t) for key, t in zip(entry.key, key_types, strict=True)]
        judged = judge(rows, [*entry.conditions, *keys])
        grouped = () if group is None else group.arguments
        arguments = judge(rows, [text for text, _ in grouped])
        verified = self._columns.verified(n)
        wanted = [(f"key.{k}", key, carried_type(t)) for k, (key, t) in enumerate(zip(keys, key_types, strict=True))]
        wanted = wanted if verified or self._keep_late else []
        shown = [plain.get(key, key) for key in entry.key[: len(wanted)]]
        for column in entry.columns:
            data_type = schema[column].dataType
            check_carried(joined_column(entry.alias, column), data_type)
            wanted.append((f"col.{column}", to_carried(quote(column), data_type), carried_type(data_type)))
        if group is not None:
            wanted += [(name, text, t) for name, (text, t) in zip(group.names, grouped, strict=True)]
        placed = _place(slots, [data_type for _, _, data_type in wanted])
        made = InputLayout(
            number,
            port,
            _label(entry, nth),
            entry,
            source,
            source_time,
            types,
            tuple(judged[: len(entry.conditions)]),
            tuple(judged[len(entry.conditions) :]),
            time,
            schema[time].dataType if time else None,
            tuple((slot, text) for slot, (_, text, _) in zip(placed, wanted, strict=True)),
            tuple(arguments),
            group is not None,
            NOTE in rows.columns,
        )
        names = [(name, slot) for slot, (name, _, _) in zip(placed, wanted, strict=True)]
        aggregated = [plain.get(text, text) for text, _ in grouped]
        late = Projection(tuple(zip([*shown, *entry.columns, *aggregated], placed, strict=True)))
        return made, Projection(tuple(names if verified else names[len(shown) :]), timed), late

    def _operator(self, n: int, exchanges: list[Exchange], answers: list[AnswerLayout]) -> OperatorPlan:
        """An operator as a processor runs it."""
        node = len(self._network.inputs) + n
        ports = tuple(number for number, (owner, _) in enumerate(self._ports) if owner == n)
        here, destinations = False, []
        for number in self._network.consumers(node):
            if self._ports[number] in self._crossing:
                travelling = next(entry for exchange in exchanges for entry in exchange.ports if entry.port == number)
                picked = tuple((column.slot, self._columns.given(column.name)) for column in travelling.columns)
                destinations.append(Destination(Goes.EXCHANGE, number, self._with_time(n, picked)))
            else:
                here = True
                destinations.append(Destination(Goes.HERE, number, self._with_time(n, self._picked_here(n, number))))
        for number, answer in enumerate(answers):
            if answer.node == node:
                destinations.append(Destination(Goes.SINK, number, answer.picked))
        if self._network.operators[n].grouping is not None:
            return OperatorPlan(n, ports, self._aggregate(n, destinations), tuple(destinations))
        return OperatorPlan(n, ports, self._join(n, destinations, here=here), tuple(destinations))

    def _with_time(self, n: int, picked: Picked) -> Picked:
        return ((TS, TS), *picked) if self._is_timed(n) else picked

    def _is_timed(self, n: int) -> bool:
        return any(self._network.inputs[i].timed for i in self._network.inputs_of(len(self._network.inputs) + n))

    def _picked_here(self, n: int, number: int) -> Picked:
        """What of the results of a join is stored at a port on the same processor."""
        upper, p = self._ports[number]
        port, group = self._network.operators[upper].ports[p], self._columns.groups[upper]
        if group is None:
            keys = tuple((name, name) for name in self._columns.verified(upper))
            columns = tuple(
                (self._columns.stored(port, c), self._columns.given(joined_column(*c))) for c in port.columns
            )
            times = tuple((self._columns.stored_time(port, i), time_name(i)) for i in self._columns.timed(port.node))
            return ((HASH, HASH), *keys, *columns, *times)
        names = {quote(field.name): self._columns.given(field.name) for field in self._columns.fields(port.node)}
        keys = tuple((f"key.{k}", names[text]) for k, text in enumerate(port.keys))
        arguments = tuple((name, names[text]) for name, (text, _) in zip(group.names, group.arguments, strict=True))
        return ((HASH, HASH), *keys, *arguments, (EXPIRY, EXPIRY))

    def _join(self, n: int, destinations: list[Destination], *, here: bool) -> WindowJoin:
        """A join that gives all that any of its destinations picks."""
        operator, node = self._network.operators[n], len(self._network.inputs) + n
        wanted = dict.fromkeys(name for destination in destinations for _, name in destination.picked)
        goes_on = any(destination.goes is not Goes.SINK for destination in destinations) and self._is_timed(n)
        origins: dict[str, tuple[int, str]] = {}
        for p, port in enumerate(operator.ports):
            for column in port.columns:
                origins[self._columns.given(joined_column(*column))] = p, self._columns.stored(port, column)
            for i in self._columns.timed(port.node):
                origins[time_name(i)] = p, self._columns.stored_time(port, i)
        timed = [time_name(i) for i in self._columns.timed(node)]
        if goes_on:
            wanted |= dict.fromkeys(timed)
        results = [ResultColumn(name, *origins[name]) for name in wanted if name in origins]
        if here:
            stored = [name for name in self._columns.verified(n) if name in wanted]
            results += [ResultColumn(name, 0, name) for name in (HASH, *stored)]
        windows = [(time_name(i), window) for i, window in self._columns.windows(node)] if EXPIRY in wanted else []
        shape = self._shape(n, keep=(*((HASH,) if here else ()), *((TS,) if goes_on else ())))
        return WindowJoin(shape, tuple(results), tuple(timed) if goes_on else None, tuple(windows))

    def _shape(self, n: int, keep: tuple[str, ...]) -> JoinShape:
        windows, times = [], []
        for port in self._network.operators[n].ports:
            timed = self._columns.timed(port.node)
            windows.append(min((self._columns.window(i) for i in timed), default=None))
            joined = self._network.operator_of(port.node) is not None
            expiries = [(self._columns.stored_time(port, i), self._columns.window(i)) for i in timed]
            times.append(tuple(expiries) if joined else ())
        return JoinShape(tuple(windows), self._columns.verified(n), tuple(times) if any(times) else (), keep)

    def _aggregate(self, n: int, destinations: list[Destination]) -> StatefulOperator:
        group, operator = self._columns.groups[n], self._network.operators[n]
        assert group is not None, "only a grouping has an aggregate"
        assert operator.grouping is not None, "only a grouping has an aggregate"
        if operator.grouping.applied is not None:
            return cast(StatefulOperator, operator.grouping.applied.operator)
        wanted = {name for destination in destinations for _, name in destination.picked}
        return WindowAggregate(
            keys=tuple(f"key.{k}" for k in range(len(group.keys))),
            calls=group.calls,
            results=tuple(
                (given, k)
                for k, field in enumerate(group.results)
                if (given := self._columns.given(field.name)) in wanted
            ),
            width=self._port_time(n, 0).window,
            rows=operator.grouping.rows,
            ties=group.names,
            distinct=operator.grouping.distinct,
            last_only=operator.grouping.once,
        )

    def _exchange(self, number: int) -> Exchange:
        """What travels to the operators of a round, and of later ones, out of the round before."""
        slots: list[Slot] = []
        ports, yielded, kept = [], set(), set()
        for port in (
            p for p, place in enumerate(self._ports) if place in self._crossing and self._sent(place) == number
        ):
            n, p = self._ports[port]
            through = self._network.operators[n].ports[p]
            key_types = self._columns.key_types[n]
            keys = [to_carried(canonical(key, t), t) for key, t in zip(through.keys, key_types, strict=True)]
            computed = self._computed(n, through, keys)
            stored = {joined_column(*column) for column in through.columns}
            wanted: list[tuple[str, T.DataType]] = [
                (field.name, field.dataType)
                for field in self._columns.fields(through.node)
                if field.name in stored
                or _is_read(field, [*through.conditions, *keys, *(text for text, _ in computed)])
            ]
            wanted += [(time_name(i), T.LongType()) for i in self._columns.timed(through.node)]
            placed = _place(slots, [*(carried_type(t) for _, t in wanted), *(t for _, t in computed)])
            columns = tuple(Carried(name, t, slot) for (name, t), slot in zip(wanted, placed, strict=False))
            yielded |= {column.slot for column in columns}
            filled = tuple((slot, text) for slot, (text, _) in zip(placed[len(wanted) :], computed, strict=True))
            grouped = self._columns.groups[n] is not None
            ports.append(PortLayout(port, through.conditions, tuple(keys), filled, columns, grouped))
            kept |= {slot for _, slot in self._state_of(ports[-1]).columns}
        fields = [T.StructField(INPUT, T.ShortType()), *([T.StructField(TS, T.LongType())] if self._timed else [])]
        fields += [T.StructField(slot.name, slot.type) for slot in slots if slot.name in yielded]
        return Exchange(tuple(ports), tuple(s for s in slots if s.name in kept), T.StructType(fields))

    def _sent(self, place: tuple[int, int]) -> int:
        """The round before which rows travel to a port: the one after that in which they are made."""
        n, p = place
        lower = self._network.operator_of(self._network.operators[n].ports[p].node)
        assert lower is not None, "rows of streams travel before the first round"
        return self._rounds.of[lower] + 1

    def _computed(self, n: int, port: Port, keys: list[str]) -> list[tuple[str, T.DataType]]:
        """What Spark computes of the rows that travel to a port and is stored: expressions with their types."""
        key_types, group = self._columns.key_types[n], self._columns.groups[n]
        stored = [(key, carried_type(t)) for key, t in zip(keys, key_types, strict=True)]
        if group is None:
            return stored if self._columns.verified(n) else []
        ends = [f"{quote(time_name(i))} + {window}L" for i, window in self._columns.windows(port.node)]
        expiry = ends[0] if len(ends) == 1 else f"least({', '.join(ends)})"
        return [*stored, *group.arguments, (expiry, T.LongType())]

    def _state_of(self, arrived: PortLayout) -> Projection:
        """What of rows that have travelled to a port is stored."""
        n, p = self._ports[arrived.port]
        port, group = self._network.operators[n].ports[p], self._columns.groups[n]
        slots = [slot for slot, _ in arrived.computed]
        if group is not None:
            names = [*(f"key.{k}" for k in range(len(group.keys))), *group.names, EXPIRY]
            return Projection(tuple(zip(names, slots, strict=True)), timed=True)
        keys = [(f"key.{k}", slot) for k, slot in enumerate(slots)]
        stored: dict[str, str] = {joined_column(*column): self._columns.stored(port, column) for column in port.columns}
        stored |= {time_name(i): self._columns.stored_time(port, i) for i in self._columns.timed(port.node)}
        columns = [(stored[column.name], column.slot) for column in arrived.columns if column.name in stored]
        return Projection((*keys, *columns), timed=self._is_timed(n))

    def _answer(self, answer: Answer) -> AnswerLayout:
        """What is picked for an answer, in its final form if it can be, and what is left to do with it."""
        fields = self._columns.fields(answer.node)
        by_text = {quote(field.name): field for field in fields}
        n = self._network.operator_of(answer.node)
        group = None if n is None else self._columns.groups[n]
        gives = group is not None and group.gives is not None
        given = str if gives else self._columns.given
        changed = is_changed(T.StructType(fields)) or gives
        plain = all(output.expression in by_text for output in answer.outputs)
        if answer.conditions or changed or not plain:
            # What is carried for others stays behind.
            texts = [*answer.conditions, *(output.expression for output in answer.outputs)]
            fields = [field for field in fields if _is_read(field, texts)] or fields[:1]
            picked = tuple((field.name, given(field.name)) for field in fields)
            return _answer_layout(answer, fields, picked, final=False)
        picked = tuple((output.name, given(by_text[output.expression].name)) for output in answer.outputs)
        final = [T.StructField(output.name, by_text[output.expression].dataType) for output in answer.outputs]
        return _answer_layout(answer, final, picked, final=True)

    def _source_time(self, entry: InputLayout) -> SourceTime:
        n, _ = self._ports[entry.port]
        late = self._network.inputs[entry.leaf].late
        lateness = self._streams[entry.source.stream].lateness if late else None
        return SourceTime(entry.leaf, lateness, self._grouping(n))

    def _port_time(self, n: int, p: int) -> PortTime:
        ports, network = self._network.operators[n].ports, self._network
        inside = network.inputs_of(ports[p].node)
        others = (i for other, port in enumerate(ports) if other != p for i in network.inputs_of(port.node))
        windows = [w for i in inside if (w := network.inputs[i].entry.window) is not None]
        return PortTime(inside, tuple(sorted(others)), min(windows, default=None), self._grouping(n))

    def _grouping(self, n: int) -> int | None:
        return self._groupings.index(n) if n in self._groupings else None


def _answer_layout(answer: Answer, fields: list[T.StructField], picked: Picked, *, final: bool) -> AnswerLayout:
    return AnswerLayout(
        name=answer.name,
        node=answer.node,
        picked=picked,
        conditions=answer.conditions,
        outputs=None if final else answer.outputs,
        result_schema=T.StructType([T.StructField(f.name, carried_type(f.dataType)) for f in fields]),
        joined_schema=T.StructType(fields),
    )


def _label(entry: JoinInput, nth: int) -> str:
    """The input's alias; of several sources, also the stream and, if it occurs twice, its number."""
    stream = entry.sources[nth].stream
    if len(entry.sources) == 1:
        return entry.alias
    alike = [n for n, source in enumerate(entry.sources) if source.stream == stream]
    return f"{entry.alias} ({stream})" if len(alike) == 1 else f"{entry.alias} ({stream} {alike.index(nth) + 1})"


def _place(slots: list[Slot], types: list[T.DataType]) -> list[str]:
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


def _is_read(field: T.StructField, texts: list[str]) -> bool:
    return any(quote(field.name) in text for text in texts)


def _arrow_schema(schema: T.StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC", error_on_duplicated_field_names_in_struct=True)


def _max_span(sources: tuple[SourceTime, ...], port: PortTime) -> int | None:
    kept = retention(sources, port)
    return None if kept is None else max(kept // SPANS_PER_RETENTION, 1)
