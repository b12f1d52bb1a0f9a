"""From a network to its layout: which columns are stored and travel where, and what each operator does with them.

Ports are numbered as in `plan/network`; state lies at ports, and rows are exchanged to ports. Names of columns are
those of `columns`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from anabranch.kernel.aggregate.window_aggregate import WindowAggregate
from anabranch.kernel.delta import Projection
from anabranch.kernel.expression import Fused
from anabranch.kernel.join.combinations import JoinShape
from anabranch.kernel.join.window_join import ResultColumn, WindowJoin
from anabranch.kernel.operator import EXPIRY, StatefulOperator
from anabranch.plan.network import Feed, Network
from anabranch.plan.placement import Placement, families_of
from anabranch.plan.query import JoinInput, StreamSchema, joined_column, quote
from anabranch.plan.rounds import rounds_of
from anabranch.plan.watermark import BlockTime, PortTime, SourceTime, retention
from anabranch.processor.tasks import Arrival, Destination, DestinationKind, OperatorPlan, ProcessorPlan, RoundPlan
from anabranch.runtime.compile.columns import Columns, time_name
from anabranch.runtime.compile.lanes import Lanes, assign_slots, is_read
from anabranch.runtime.compile.layout import AnswerLayout, Exchange, InputLayout, Layout, Outlet, Slot
from anabranch.runtime.rows.carried import carried_type, check_carried, is_changed, to_carried
from anabranch.runtime.rows.derived import Sources
from anabranch.runtime.rows.fallible import judge
from anabranch.runtime.rows.keys import canonical
from anabranch.runtime.rows.notes import NOTE
from anabranch.state.run import HASH, TS

# A run covers at most this part of the time that rows are kept, so that most of them can be dropped whole.
SPANS_PER_RETENTION = 4

# Pairs of a new name and a name in the results of an operator.
Picked = tuple[tuple[str, str], ...]


def lay_out(
    network: Network,
    columns: Columns,
    sources: Sources,
    streams: Mapping[str, StreamSchema],
    placements: tuple[Placement, ...],
    *,
    keep_rejected: bool,
    keep_late: bool,
) -> Layout:
    """The layout of a network over the given stream DataFrames, with each operator where it is placed."""
    return _Maker(network, columns, sources, streams, placements, keep_rejected, keep_late).make()


class _Maker:
    """The parts of a layout, made from the streams upwards."""

    def __init__(
        self,
        network: Network,
        columns: Columns,
        sources: Sources,
        streams: Mapping[str, StreamSchema],
        placements: tuple[Placement, ...],
        keep_rejected: bool,
        keep_late: bool,
    ) -> None:
        self._network = network
        self._sources = sources
        self._streams = streams
        self._keep_rejected = keep_rejected
        self._keep_late = keep_late
        self._columns = columns
        self._placements = placements
        self._rounds = rounds_of(network, placements, in_place=columns.in_place, fused=columns.fused)
        self._lanes = Lanes(network, columns, self._rounds)
        self._ports = network.ports
        self._groupings = [n for n, operator in enumerate(network.operators) if operator.grouping is not None]

    def make(self) -> Layout:
        network = self._network
        slots: list[Slot] = []
        inputs, late = [], []
        arrivals: list[dict[int, Arrival]] = [{} for _ in range(self._rounds.count)]
        stored: dict[int, Projection] = {}
        for number, entry in enumerate(network.inputs):
            (port,) = network.consumers(number)
            types = self._columns.frame(entry.entry.alias).schema if entry.entry.is_derived else None
            for nth, source in enumerate(entry.entry.sources):
                if source.block is None:
                    made, stored[port], shown = self._input(number, port, nth, types, slots)
                    inputs.append(made)
                    late.append(shown)
        exchanges = [self._lanes.exchange(number) for number in range(1, self._rounds.count)]
        for number, exchange in enumerate(exchanges, start=1):
            arrivals[number] = {lane.tag: Arrival(lane.port, lane.stored) for lane in exchange.lanes}
        arrivals[0] = {number: Arrival(entry.port, stored[entry.port]) for number, entry in enumerate(inputs)}
        outlets: list[Outlet] = []
        answers = []
        for answer in network.answers:
            numbers = range(len(outlets), len(outlets) + len(answer.branches))
            outlets += [self._outlet(branch) for branch in answer.branches]
            answers.append(AnswerLayout(answer.name, tuple(numbers)))
        rounds = tuple(
            RoundPlan(
                tuple(self._operator(n, exchanges, outlets) for n in self._rounds.operators(number)),
                arrivals[number],
                _arrow_schema(exchanges[number].yielded, self._columns.time_zone) if number < len(exchanges) else None,
            )
            for number in range(self._rounds.count)
        )
        sources = tuple(self._source_time(entry) for entry in inputs)
        blocks = tuple(self._block_times())
        ports = tuple(self._port_time(n, p) for n, p in self._ports)
        plan = ProcessorPlan(
            aliases=tuple(entry.label for entry in inputs),
            rounds=rounds,
            stored=tuple(self._stored(number, arrivals) for number in range(len(ports))),
            max_spans=tuple(_max_span(sources, port, blocks) for port in ports),
            windows=tuple(port.window if port.grouping is None else None for port in ports),
            owners=tuple(n for n, _ in self._ports),
            groupings=tuple(self._groupings),
            groups=len(self._placements[0]),
            keep_rejected=self._keep_rejected,
            late_projections=tuple(late) if self._keep_late else None,
        )
        return Layout(
            inputs=tuple(inputs),
            slots=tuple(slots),
            exchanges=tuple(exchanges),
            key_types=tuple(self._columns.key_types),
            rounds=self._rounds.of,
            placements=self._placements,
            families=families_of(len(network.operators), [(edge.lower, edge.upper) for edge in self._rounds.local]),
            sources=sources,
            blocks=blocks,
            ports=ports,
            timed=any(entry.timed for entry in network.inputs),
            processor=plan,
            outlets=tuple(outlets),
            answers=tuple(answers),
            argument_types=tuple(
                () if group is None else tuple(data_type for _, data_type in group.arguments)
                for group in self._columns.groups
            ),
        )

    def _input(
        self, number: int, port: int, nth: int, types: T.StructType | None, slots: list[Slot]
    ) -> tuple[InputLayout, Projection, Projection]:
        """The layout of a source, the columns of its rows that are stored, and those that are shown of late rows."""
        n, _ = self._ports[port]
        entry, timed = self._network.inputs[number].entry, self._network.inputs[number].timed
        source = entry.sources[nth]
        key_types, group = self._columns.key_types[n], self._columns.groups[n]
        source_time = self._streams[source.stream].time
        rows = self._sources.frame(source, source_time, types)
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
        placed = assign_slots(slots, [data_type for _, _, data_type in wanted])
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
            tuple(carried_type(t) for t in key_types),
            time,
            schema[time].dataType if time else None,
            tuple((slot, text) for slot, (_, text, _) in zip(placed, wanted, strict=True)),
            tuple((column, schema[column].dataType) for column in entry.columns),
            tuple((column, schema[column].dataType) for column in schema.names if quote(column) in entry.key),
            tuple(arguments),
            group is not None,
            NOTE in rows.columns,
        )
        names = [(name, slot) for slot, (name, _, _) in zip(placed, wanted, strict=True)]
        aggregated = [plain.get(text, text) for text, _ in grouped]
        late = Projection(tuple(zip([*shown, *entry.columns, *aggregated], placed, strict=True)))
        return made, Projection(tuple(names if verified else names[len(shown) :]), timed), late

    def _operator(self, n: int, exchanges: list[Exchange], outlets: list[Outlet]) -> OperatorPlan:
        """An operator as a processor runs it."""
        node = len(self._network.inputs) + n
        ports = tuple(number for number, (owner, _) in enumerate(self._ports) if owner == n)
        destinations = []
        for lane in (lane for exchange in exchanges for lane in exchange.lanes if lane.node == node):
            names = self._lanes.result_names(lane)
            picked = tuple((column.slot, names[column.name]) for column in lane.columns)
            destinations.append(Destination(DestinationKind.EXCHANGE, lane.tag, self._with_time(n, picked)))
        staying = [port for port in self._network.consumers(node) if self._ports[port] not in self._lanes.crossing]
        for port in staying:
            destinations.append(self._staying(n, port))
        for number, outlet in enumerate(outlets):
            if outlet.node == node:
                destinations.append(
                    Destination(DestinationKind.SINK, number, outlet.picked, outlet.fused, outlet.computed)
                )
        if self._network.operators[n].grouping is not None:
            return OperatorPlan(n, ports, self._aggregate(n, destinations), tuple(destinations))
        return OperatorPlan(n, ports, self._join(n, destinations, here=bool(staying)), tuple(destinations))

    def _stored(self, number: int, arrivals: list[dict[int, Arrival]]) -> tuple[str, ...]:
        """The columns of the state at a port, in an order that does not depend on the queries."""
        n, p = self._ports[number]
        projections = [arrival.stored for round_ in arrivals for arrival in round_.values() if arrival.port == number]
        if projections:
            names = [name for name, _ in projections[0].columns]
        else:
            lower = self._network.operator_of(self._network.operators[n].ports[p].node)
            assert lower is not None, "rows of streams arrive"
            here = self._staying(lower, number)
            names = [*(name for name, _ in here.picked), *(name for name, _ in here.computed)]
        times = [TS] if self._columns.is_timed(n) else []
        return (HASH, *times, *sorted(set(names) - {HASH, TS}))

    def _with_time(self, n: int, picked: Picked) -> Picked:
        return ((TS, TS), *picked) if self._columns.is_timed(n) and not self._columns.is_user_operator(n) else picked

    def _staying(self, n: int, number: int) -> Destination:
        """The destination of a join's results that are stored at a port on the same processor."""
        upper, p = self._ports[number]
        picked = self._with_time(n, self._picked_here(upper, p))
        group = self._columns.groups[upper]
        computed = self._columns.arguments.get(upper, {})
        made = [] if group is None else zip(group.names, (text for text, _ in group.arguments), strict=True)
        return Destination(
            DestinationKind.HERE,
            number,
            picked,
            self._columns.fused.get((upper, p), ()),
            tuple((name, computed[text]) for name, text in made if text in computed),
        )

    def _picked_here(self, upper: int, p: int) -> Picked:
        port, group = self._network.operators[upper].ports[p], self._columns.groups[upper]
        if group is None:
            keys = tuple((name, name) for name in self._columns.verified(upper))
            columns = tuple(
                (self._columns.stored(port, c), self._columns.result_name(joined_column(*c))) for c in port.columns
            )
            times = tuple((self._columns.stored_time(port, i), time_name(i)) for i in self._columns.timed(port.node))
            return ((HASH, HASH), *keys, *columns, *times)
        names = {quote(field.name): self._columns.result_name(field.name) for field in self._columns.fields(port.node)}
        keys = tuple((f"key.{k}", names[text]) for k, text in enumerate(port.keys))
        made = zip(group.names, (text for text, _ in group.arguments), strict=True)
        arguments = tuple((name, names[text]) for name, text in made if text in names)
        return ((HASH, HASH), *keys, *arguments, (EXPIRY, EXPIRY))

    def _join(self, n: int, destinations: list[Destination], *, here: bool) -> WindowJoin:
        """A join whose results have every column that one of its destinations picks."""
        operator, node = self._network.operators[n], len(self._network.inputs) + n
        wanted = dict.fromkeys(name for destination in destinations for name in sorted(destination.reads))
        goes_on = any(
            destination.kind is not DestinationKind.SINK for destination in destinations
        ) and self._columns.is_timed(n)
        origins: dict[str, tuple[int, str]] = {}
        for p, port in enumerate(operator.ports):
            for column in port.columns:
                origins[self._columns.result_name(joined_column(*column))] = p, self._columns.stored(port, column)
            for i in self._columns.timed(port.node):
                origins[time_name(i)] = p, self._columns.stored_time(port, i)
        timed = [time_name(i) for i in self._columns.timed(node)]
        if goes_on:
            wanted |= dict.fromkeys(timed)
        results = [ResultColumn(name, *origins[name]) for name in wanted if name in origins]
        if not results:
            any_name = next(iter(origins))  # without a column there would be no rows
            results = [ResultColumn(any_name, *origins[any_name])]
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

    def _aggregate(self, n: int, destinations: list[Destination]) -> StatefulOperator | WindowAggregate:
        group, operator = self._columns.groups[n], self._network.operators[n]
        assert group is not None, "only a grouping has an aggregate"
        assert operator.grouping is not None, "only a grouping has an aggregate"
        if operator.grouping.applied is not None:
            return cast(StatefulOperator, operator.grouping.applied.operator)
        wanted = {name for destination in destinations for name in destination.reads}
        results = tuple((self._columns.result_name(field.name), k) for k, field in enumerate(group.results))
        return WindowAggregate(
            keys=tuple(f"key.{k}" for k in range(len(group.keys))),
            aggregates=group.aggregates,
            results=tuple(result for result in results if result[0] in wanted) or results[:1],
            width=self._port_time(n, 0).window,
            rows=operator.grouping.rows,
            ties=group.names,
            distinct=operator.grouping.distinct,
            last_only=operator.grouping.once,
            timed=TS in wanted,
        )

    def _block_times(self) -> Iterator[BlockTime]:
        for number, entry in enumerate(self._network.inputs):
            for feed in (feed for feed in entry.feeds if feed is not None):
                n = self._network.operator_of(feed.node)
                assert n is not None, "a block has an operator"
                timed = self._streams[entry.entry.stream].time is not None
                inside, debtors = self._network.inputs_of(feed.node), self._network.operators_of(feed.node)
                yield BlockTime(number, inside, self._grouping(n), timed, debtors)

    def _outlet(self, branch: Feed) -> Outlet:
        """The outlet of an answer: rows in their final form if processors can make it; otherwise Spark does the
        rest."""
        n, fields = self._network.operator_of(branch.node), self._columns.fields(branch.node)
        by_user = n is not None and self._columns.is_user_operator(n)
        name_of = str if by_user else self._columns.result_name
        fused = () if by_user else self._columns.fuse_first(branch.node, branch.conditions)
        conditions = branch.conditions[len(fused) :]
        final = not conditions and not is_changed(T.StructType(fields)) and not by_user
        made = self._made_here(branch, fields) if final else None
        if made is not None:
            picked, computed, fields = made
        else:
            # What is carried for others stays behind.
            texts = [*conditions, *(output.expression for output in branch.outputs)]
            fields = [field for field in fields if is_read(field, texts)] or fields[:1]
            picked, computed = tuple((field.name, name_of(field.name)) for field in fields), ()
        return Outlet(
            node=branch.node,
            picked=picked,
            fused=fused,
            computed=computed,
            conditions=conditions,
            outputs=None if made is not None else branch.outputs,
            result_schema=T.StructType([T.StructField(f.name, carried_type(f.dataType)) for f in fields]),
            joined_schema=T.StructType(fields),
        )

    def _made_here(
        self, branch: Feed, fields: list[T.StructField]
    ) -> tuple[Picked, tuple[tuple[str, Fused], ...], list[T.StructField]] | None:
        """The columns of an answer that processors can make: picked if all are plain, else computed; None if Spark has
        to."""
        by_text = {quote(field.name): field for field in fields}
        if all(output.expression in by_text for output in branch.outputs):
            picked = tuple(
                (output.name, self._columns.result_name(by_text[output.expression].name)) for output in branch.outputs
            )
            return picked, (), [T.StructField(o.name, by_text[o.expression].dataType) for o in branch.outputs]
        fused = self._columns.fuse_first(branch.node, [output.expression for output in branch.outputs])
        if len(fused) < len(branch.outputs):
            return None
        names = (output.name for output in branch.outputs)
        return (), tuple(zip(names, fused, strict=True)), self._columns.types_of(branch.node, branch.outputs)

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
        grouping = self._grouping(n)
        feeding = [port.node for other, port in enumerate(ports) if other != p or grouping is not None]
        debtors = tuple(m for node in feeding for m in network.operators_of(node))
        return PortTime(inside, tuple(sorted(others)), min(windows, default=None), grouping, debtors, n)

    def _grouping(self, n: int) -> int | None:
        return self._groupings.index(n) if n in self._groupings else None


def _label(entry: JoinInput, nth: int) -> str:
    """The input's alias; of several sources, also the stream and, if it occurs twice, its number."""
    stream = entry.sources[nth].stream
    if len(entry.sources) == 1:
        return entry.alias
    alike = [n for n, source in enumerate(entry.sources) if source.stream == stream]
    return f"{entry.alias} ({stream})" if len(alike) == 1 else f"{entry.alias} ({stream} {alike.index(nth) + 1})"


def _arrow_schema(schema: T.StructType, time_zone: str) -> pa.Schema:
    """A schema as Spark hands rows over: moments name the session's time zone."""
    return to_arrow_schema(schema, timezone=time_zone, error_on_duplicated_field_names_in_struct=True)


def _max_span(sources: tuple[SourceTime, ...], port: PortTime, blocks: tuple[BlockTime, ...]) -> int | None:
    kept = retention(sources, port, blocks)
    return None if kept is None else max(kept // SPANS_PER_RETENTION, 1)
