"""From a bound query to its layout: which columns are stored and travel where, and what each operator does with them.

Parts of a plan are numbered as in `plan/logical`: inputs, then what operators produce. A part is stored at the operator
above it. State columns of an input are `key.0`, ... (where they are stored) and `col.NAME`; those of joined rows also
have `ts:N` with the event time of input N, and are `col.ALIAS.NAME`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from anabranch.kernel.delta import INPUT, Projection
from anabranch.kernel.multiway import UNBOUNDED, JoinShape
from anabranch.plan.logical import JoinInput, JoinQuery, Output, StreamSchema, joined_column, quote
from anabranch.plan.rounds import Edge, Rounds, compile_rounds
from anabranch.plan.watermark import InputTime, PortTime, retention
from anabranch.runtime.attempt import judge
from anabranch.runtime.carried import carried_type, check_carried, is_changed, to_carried
from anabranch.runtime.keys import canonical, key_class_types, must_verify
from anabranch.runtime.layout import Carried, Exchange, InputLayout, Layout, PartLayout, Slot
from anabranch.runtime.processor import Goes, OperatorPlan, ProcessorPlan, ResultColumn, RoundPlan
from anabranch.state.run import HASH, TS

# A run covers at most this part of the time that rows are kept, so that most of them can be dropped whole.
SPANS_PER_RETENTION = 4


def lay_out(
    spark: SparkSession,
    query: JoinQuery,
    frames: dict[str, DataFrame],
    streams: dict[str, StreamSchema],
    *,
    keep_rejected: bool,
    keep_late: bool,
) -> Layout:
    """The layout of a bound query over the given stream DataFrames."""
    return _Maker(spark, query, frames, streams, keep_late).make(keep_rejected)


class _Maker:
    """The parts of a layout, made from the streams upwards."""

    def __init__(
        self,
        spark: SparkSession,
        query: JoinQuery,
        frames: dict[str, DataFrame],
        streams: dict[str, StreamSchema],
        keep_late: bool,
    ) -> None:
        self._query = query
        self._frames = frames
        self._streams = streams
        self._keep_late = keep_late
        self._leaves = len(query.inputs)
        self._timed = any(entry.window is not None for entry in query.inputs)
        types = key_class_types(spark, query, frames)
        self._key_types = [tuple(types[n] for n in operator.classes) for operator in query.operators]
        self._times = tuple(InputTime(entry.window, streams[entry.stream].lateness) for entry in query.inputs)
        self._rounds = _rounds(query)
        self._above = {part: n for n, operator in enumerate(query.operators) for part in operator.parts}

    def make(self, keep_rejected: bool) -> Layout:
        query = self._query
        slots: list[Slot] = []
        inputs, stored, late = [], {}, []
        for number, entry in enumerate(query.inputs):
            made, stored[number], shown = self._input(number, entry, slots)
            inputs.append(made)
            late.append(shown)
        arrivals: list[dict[int, Projection]] = [stored, *({} for _ in range(1, self._rounds.count))]
        exchanges, operators = [], []
        for number in range(self._rounds.count):
            crossing = [edge.lower for edge in self._rounds.crossing if self._rounds.of[edge.lower] == number]
            exchange = self._exchange(crossing) if number + 1 < self._rounds.count else None
            if exchange is not None:
                exchanges.append(exchange)
                arrivals[number + 1] |= {part.part: self._state_of(part) for part in exchange.parts}
            operators.append(tuple(self._operator(n, exchange) for n in self._rounds.operators(number)))
        results, fields, outputs = self._answer()
        root = operators[-1][-1]
        operators[-1] = (*operators[-1][:-1], replace(root, results=results))
        ports = tuple(
            PortTime(query.inputs_of(part), self._opposite(part))
            for part in range(self._leaves + len(query.operators) - 1)
        )
        schemas = [
            to_arrow_schema(exchange.yielded, timezone="UTC", error_on_duplicated_field_names_in_struct=True)
            for exchange in exchanges
        ]
        plan = ProcessorPlan(
            aliases=tuple(entry.alias for entry in query.inputs),
            rounds=tuple(
                RoundPlan(those, arriving, schema)
                for those, arriving, schema in zip(operators, arrivals, [*schemas, None], strict=True)
            ),
            max_spans=tuple(_max_span(self._times, port) for port in ports),
            keep_rejected=keep_rejected,
            late_projections=tuple(late) if self._keep_late else None,
        )
        return Layout(
            inputs=tuple(inputs),
            slots=tuple(slots),
            exchanges=tuple(exchanges),
            key_types=tuple(self._key_types),
            rounds=self._rounds.of,
            times=self._times,
            ports=ports,
            timed=self._timed,
            processor=plan,
            result_schema=T.StructType([T.StructField(f.name, carried_type(f.dataType)) for f in fields]),
            joined_schema=T.StructType(fields),
            outputs=outputs,
        )

    def _input(self, number: int, entry: JoinInput, slots: list[Slot]) -> tuple[InputLayout, Projection, Projection]:
        """An input's layout, what of it is stored, and what is shown of its late rows."""
        key_types = self._key_types[self._above[number]]
        stream, schema = self._streams[entry.stream], self._frames[entry.stream].schema
        plain = {quote(column): column for column in schema.names}
        keys = [to_carried(canonical(key, t), t) for key, t in zip(entry.key, key_types, strict=True)]
        judged = judge(self._frames[entry.stream], [*entry.conditions, *keys])
        verify = must_verify(key_types)
        wanted = [(f"key.{n}", key, carried_type(t)) for n, (key, t) in enumerate(zip(keys, key_types, strict=True))]
        wanted = wanted if verify or self._keep_late else []
        shown = [plain.get(key, key) for key in entry.key[: len(wanted)]]
        for column in entry.columns:
            data_type = schema[column].dataType
            check_carried(joined_column(entry.alias, column), data_type)
            wanted.append((f"col.{column}", to_carried(quote(column), data_type), carried_type(data_type)))
        placed = _place(slots, [data_type for _, _, data_type in wanted])
        made = InputLayout(
            entry,
            tuple(judged[: len(entry.conditions)]),
            tuple(judged[len(entry.conditions) :]),
            stream.time if self._timed else None,
            schema[stream.time].dataType if self._timed and stream.time else None,
            tuple((slot, text) for slot, (_, text, _) in zip(placed, wanted, strict=True)),
        )
        names = [(name, slot) for slot, (name, _, _) in zip(placed, wanted, strict=True)]
        late = Projection(tuple(zip([*shown, *entry.columns], placed, strict=True)))
        return made, Projection(tuple(names if verify else names[len(shown) :])), late

    def _operator(self, n: int, exchange: Exchange | None) -> OperatorPlan:
        """An operator as a processor runs it; the results of the last one are filled in later."""
        operator, part = self._query.operators[n], self._leaves + n
        verify = tuple(f"key.{k}" for k in range(len(operator.classes))) if must_verify(self._key_types[n]) else ()
        windows = tuple(self._window(below) for below in operator.parts)
        times = tuple(() if below < self._leaves else self._expiries(below) for below in operator.parts)
        goes = self._goes(n)
        shape = JoinShape(
            windows,
            verify,
            times if any(times) else (),
            keep=(*((HASH,) if goes is Goes.HERE else ()), *((TS,) if goes is not Goes.SINK and self._timed else ())),
        )
        if goes is Goes.SINK:
            return OperatorPlan(part, operator.parts, shape, (), goes)
        names = {}
        if goes is Goes.EXCHANGE and exchange is not None:
            travelling = next(entry for entry in exchange.parts if entry.part == part)
            names = {column.name: column.slot for column in travelling.columns}
        results = [
            ResultColumn(names.get(joined_column(*column), f"col.{joined_column(*column)}"), *self._origin(n, column))
            for column in operator.columns
        ]
        timed = tuple(names.get(time_name(i), time_name(i)) for i in self._timed_inputs(part))
        results += [
            ResultColumn(name, *self._time_origin(n, i))
            for name, i in zip(timed, self._timed_inputs(part), strict=True)
        ]
        if goes is Goes.HERE:
            results.append(ResultColumn(HASH, 0, HASH))
            results += [ResultColumn(name, 0, name) for name in verify]
        return OperatorPlan(part, operator.parts, shape, tuple(results), goes, timed if self._timed else None)

    def _goes(self, n: int) -> Goes:
        if n == len(self._query.operators) - 1:
            return Goes.SINK
        return Goes.EXCHANGE if any(edge.lower == n for edge in self._rounds.crossing) else Goes.HERE

    def _exchange(self, lower: list[int]) -> Exchange:
        """What travels after a round: the results of these operators."""
        slots: list[Slot] = []
        parts, yielded = [], set()
        for n in lower:
            operator, part = self._query.operators[n], self._leaves + n
            above = self._query.operators[self._above[part]]
            key_types = self._key_types[self._above[part]]
            texts = above.keys[above.parts.index(part)]
            keys = [to_carried(canonical(key, t), t) for key, t in zip(texts, key_types, strict=True)]
            wanted = [
                (joined_column(alias, column), self._type_of(alias, column)) for alias, column in operator.columns
            ]
            wanted += [(time_name(i), T.LongType()) for i in self._timed_inputs(part)]
            stored = [carried_type(t) for t in key_types] if must_verify(key_types) else []
            placed = _place(slots, [*(carried_type(t) for _, t in wanted), *stored])
            columns = [Carried(name, t, slot) for (name, t), slot in zip(wanted, placed, strict=False)]
            yielded |= {column.slot for column in columns}
            parts.append(
                PartLayout(part, operator.conditions, tuple(keys), tuple(placed[len(wanted) :]), tuple(columns))
            )
        fields = [T.StructField(INPUT, T.ByteType()), *([T.StructField(TS, T.LongType())] if self._timed else [])]
        fields += [T.StructField(slot.name, slot.type) for slot in slots if slot.name in yielded]
        return Exchange(tuple(parts), tuple(slots), T.StructType(fields))

    def _state_of(self, part: PartLayout) -> Projection:
        """What of a part that has travelled is stored."""
        times = {time_name(i) for i in self._timed_inputs(part.part)}
        keys = [(f"key.{n}", slot) for n, slot in enumerate(part.key_slots)]
        columns = [
            (column.name if column.name in times else f"col.{column.name}", column.slot) for column in part.columns
        ]
        return Projection((*keys, *columns))

    def _answer(self) -> tuple[tuple[ResultColumn, ...], list[T.StructField], tuple[Output, ...] | None]:
        """The results of the last operator, in their final form if they can be."""
        query = self._query
        root = len(query.operators) - 1
        columns = query.operators[root].columns
        results = [ResultColumn(joined_column(*column), *self._origin(root, column)) for column in columns]
        fields = [T.StructField(joined_column(*column), self._type_of(*column)) for column in columns]
        taken = {quote(result.name): (result, field) for result, field in zip(results, fields, strict=True)}
        changed = is_changed(T.StructType(fields))
        if query.residual is not None or changed or any(output.expression not in taken for output in query.outputs):
            return tuple(results), fields, query.outputs
        final = [(output.name, *taken[output.expression]) for output in query.outputs]
        fields = [T.StructField(name, field.dataType) for name, _, field in final]
        return tuple(ResultColumn(name, result.port, result.column) for name, result, _ in final), fields, None

    def _origin(self, n: int, column: tuple[str, str]) -> tuple[int, str]:
        """The port of an operator that a column comes through, and its name in that part's state."""
        port, part = self._port_of(n, self._input_of(column[0]))
        return port, f"col.{column[1]}" if part < self._leaves else f"col.{joined_column(*column)}"

    def _time_origin(self, n: int, i: int) -> tuple[int, str]:
        port, part = self._port_of(n, i)
        return port, TS if part < self._leaves else time_name(i)

    def _port_of(self, n: int, i: int) -> tuple[int, int]:
        parts = enumerate(self._query.operators[n].parts)
        return next((port, part) for port, part in parts if i in self._query.inputs_of(part))

    def _input_of(self, alias: str) -> int:
        return next(i for i, entry in enumerate(self._query.inputs) if entry.alias == alias)

    def _type_of(self, alias: str, column: str) -> T.DataType:
        stream = self._query.inputs[self._input_of(alias)].stream
        return self._frames[stream].schema[column].dataType

    def _has_time(self, i: int) -> bool:
        return self._timed and self._streams[self._query.inputs[i].stream].time is not None

    def _timed_inputs(self, part: int) -> list[int]:
        return [i for i in self._query.inputs_of(part) if self._has_time(i)]

    def _expiries(self, part: int) -> tuple[tuple[str, int], ...]:
        inputs = self._timed_inputs(part)
        return tuple((time_name(i), _kernel_window(self._query.inputs[i].window)) for i in inputs)

    def _window(self, part: int) -> int | None:
        windows = [_kernel_window(self._query.inputs[i].window) for i in self._timed_inputs(part)]
        return min(windows, default=None)

    def _opposite(self, part: int) -> tuple[int, ...]:
        above = self._query.operators[self._above[part]]
        return tuple(sorted(i for other in above.parts if other != part for i in self._query.inputs_of(other)))


def time_name(i: int) -> str:
    """The column with the event time of input i in a joined row; those of aliases have a dot in their names."""
    return f"ts:{i}"


def _rounds(query: JoinQuery) -> Rounds:
    """The rounds of a query whose operators are all spread over all processors alike.

    What is selected between two operators is a Spark expression, so there they need an exchange.
    """
    leaves = len(query.inputs)
    edges = [
        Edge(part - leaves, n, port, crosses=bool(query.operators[part - leaves].conditions))
        for n, operator in enumerate(query.operators)
        for port, part in enumerate(operator.parts)
        if part >= leaves
    ]
    return compile_rounds([operator.classes for operator in query.operators], edges)


def _kernel_window(window: int | None) -> int:
    return UNBOUNDED if window is None else min(window, UNBOUNDED)


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


def _max_span(times: Sequence[InputTime], port: PortTime) -> int | None:
    kept = retention(times, port)
    return None if kept is None else max(kept // SPANS_PER_RETENTION, 1)
