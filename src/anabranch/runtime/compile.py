"""From a bound query to its layout: which columns are stored and travel where, and what each operator does with them.

Parts of a plan are numbered as in `plan/logical`: inputs, then what operators produce. A part is stored at the operator
above it. State columns of an input are `key.0`, ... (where they are stored) and `col.NAME`; those of joined rows also
have `ts:N` with the event time of input N, and are `col.ALIAS.NAME`. What is grouped is stored as keys, `arg.0`, ...,
and, if it is joined, the time it expires at; the grouping is numbered after all joins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from anabranch.kernel.delta import INPUT, Projection
from anabranch.kernel.multiway import UNBOUNDED, JoinShape
from anabranch.kernel.operator import EXPIRY, StatefulOperator
from anabranch.kernel.window_aggregate import WindowAggregate
from anabranch.kernel.window_join import ResultColumn, WindowJoin
from anabranch.plan.logical import ContinuousQuery, JoinInput, Output, StreamSchema, joined_column, quote
from anabranch.plan.rounds import rounds_of
from anabranch.plan.watermark import InputTime, PortTime, SourceTime, input_times, port_window, retention
from anabranch.runtime.attempt import judge
from anabranch.runtime.carried import carried_type, check_carried, is_changed, to_carried
from anabranch.runtime.derive import derived_schema, source_frame
from anabranch.runtime.grouped import group_types
from anabranch.runtime.keys import canonical, key_class_types, must_verify
from anabranch.runtime.layout import Carried, Exchange, InputLayout, Layout, PartLayout, Slot
from anabranch.runtime.notes import NOTE
from anabranch.runtime.processor import Goes, OperatorPlan, ProcessorPlan, RoundPlan
from anabranch.state.run import HASH, TS

# A run covers at most this part of the time that rows are kept, so that most of them can be dropped whole.
SPANS_PER_RETENTION = 4


def lay_out(
    spark: SparkSession,
    query: ContinuousQuery,
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
        query: ContinuousQuery,
        frames: dict[str, DataFrame],
        streams: dict[str, StreamSchema],
        keep_late: bool,
    ) -> None:
        self._spark = spark
        self._query = query
        self._frames = frames
        self._streams = streams
        self._keep_late = keep_late
        self._leaves = len(query.inputs)
        self._timed = query.grouping is not None or any(entry.window is not None for entry in query.inputs)
        types = key_class_types(spark, query, frames)
        self._key_types = [tuple(types[n] for n in operator.classes) for operator in query.operators]
        self._times = input_times(query, streams)
        self._in_place = self._is_grouped_in_place()
        self._rounds = rounds_of(query, grouped_in_place=self._in_place)
        self._above = {part: n for n, operator in enumerate(query.operators) for part in operator.parts}
        self._group = None
        if query.grouping is not None:
            self._group = group_types(self._grouped_rows(spark), query.grouping, in_place=self._in_place)
        if self._group is not None:
            self._above[query.root] = len(query.operators)
            self._key_types.append(self._group.keys)

    def make(self, keep_rejected: bool) -> Layout:
        query = self._query
        slots: list[Slot] = []
        inputs, stored, late = [], {}, []
        for number, entry in enumerate(query.inputs):
            types = derived_schema(self._spark, entry, self._frames, self._streams) if entry.is_derived else None
            for nth in range(len(entry.sources)):
                made, stored[number], shown = self._input(number, nth, types, slots)
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
            operators.append([self._operator(n, exchange) for n in self._rounds.operators(number)])
        ports = tuple(
            PortTime(query.inputs_of(part), self._opposite(part))
            for part in range(query.root + (self._group is not None))
        )
        root, fields, outputs = self._answer()
        operators[-1][-1] = replace(operators[-1][-1], operator=root)
        schemas = [
            to_arrow_schema(exchange.yielded, timezone="UTC", error_on_duplicated_field_names_in_struct=True)
            for exchange in exchanges
        ]
        plan = ProcessorPlan(
            aliases=tuple(entry.label for entry in inputs),
            leaves=tuple(entry.leaf for entry in inputs),
            rounds=tuple(
                RoundPlan(tuple(those), arriving, schema)
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
            sources=tuple(SourceTime(entry.leaf, self._streams[entry.source.stream].lateness) for entry in inputs),
            ports=ports,
            timed=self._timed,
            processor=plan,
            result_schema=T.StructType([T.StructField(f.name, carried_type(f.dataType)) for f in fields]),
            joined_schema=T.StructType(fields),
            outputs=outputs,
            argument_types=tuple(data_type for _, data_type in self._arguments),
        )

    def _input(
        self, number: int, nth: int, types: T.StructType | None, slots: list[Slot]
    ) -> tuple[InputLayout, Projection, Projection]:
        """The layout of a source, what of its rows is stored, and what is shown of those that are late."""
        entry = self._query.inputs[number]
        source = entry.sources[nth]
        key_types = self._key_types[self._above[number]]
        source_time = self._streams[source.stream].time
        rows = source_frame(source, source_time, self._frames, types)
        schema = rows.schema
        time = self._streams[entry.stream].time if self._timed else None
        plain = {quote(column): column for column in schema.names}
        keys = [to_carried(canonical(key, t), t) for key, t in zip(entry.key, key_types, strict=True)]
        judged = judge(rows, [*entry.conditions, *keys])
        grouped = self._group is not None and number == self._query.root
        arguments = judge(rows, [text for text, _ in self._arguments] if grouped else [])
        verify = grouped or must_verify(key_types)
        wanted = [(f"key.{n}", key, carried_type(t)) for n, (key, t) in enumerate(zip(keys, key_types, strict=True))]
        wanted = wanted if verify or self._keep_late else []
        shown = [plain.get(key, key) for key in entry.key[: len(wanted)]]
        for column in entry.columns:
            data_type = schema[column].dataType
            check_carried(joined_column(entry.alias, column), data_type)
            wanted.append((f"col.{column}", to_carried(quote(column), data_type), carried_type(data_type)))
        if grouped:
            wanted += [
                (name, text, data_type)
                for name, (text, data_type) in zip(self._argument_names, self._arguments, strict=True)
            ]
        placed = _place(slots, [data_type for _, _, data_type in wanted])
        made = InputLayout(
            number,
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
            grouped,
            NOTE in rows.columns,
        )
        names = [(name, slot) for slot, (name, _, _) in zip(placed, wanted, strict=True)]
        aggregated = [plain.get(text, text) for text, _ in self._arguments] if grouped else []
        late = Projection(tuple(zip([*shown, *entry.columns, *aggregated], placed, strict=True)))
        return made, Projection(tuple(names if verify else names[len(shown) :])), late

    def _operator(self, n: int, exchange: Exchange | None) -> OperatorPlan:
        """An operator as a processor runs it; the last one is replaced when the answer is known."""
        part = self._leaves + n
        if n == len(self._query.operators):
            return OperatorPlan(part, (self._query.root,), self._aggregate(()), Goes.SINK)
        operator = self._query.operators[n]
        shape, goes = self._shape(n), self._goes(n)
        if goes is Goes.SINK:
            return OperatorPlan(part, operator.parts, WindowJoin(shape, ()), goes)
        if goes is Goes.HERE and self._is_grouped(part):
            return OperatorPlan(part, operator.parts, self._grouped_join(n, shape), goes)
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
            results += [ResultColumn(name, 0, name) for name in shape.verify]
        join = WindowJoin(shape, tuple(results), timed if self._timed else None)
        return OperatorPlan(part, operator.parts, join, goes)

    def _grouped_join(self, n: int, shape: JoinShape) -> WindowJoin:
        """A join whose results are grouped where they are: what the grouping stores of them."""
        assert self._query.grouping is not None, "results that stay go to the grouping"
        columns = {quote(joined_column(*column)): column for column in self._query.operators[n].columns}
        wanted = {f"key.{k}": text for k, text in enumerate(self._query.grouping.keys)}
        wanted |= dict(zip(self._argument_names, (text for text, _ in self._arguments), strict=True))
        results = [ResultColumn(name, *self._origin(n, columns[text])) for name, text in wanted.items()]
        inputs = self._timed_inputs(self._leaves + n)
        results += [ResultColumn(time_name(i), *self._time_origin(n, i)) for i in inputs]
        results.append(ResultColumn(HASH, 0, HASH))
        windows = [
            (time_name(i), _kernel_window(self._query.inputs[i].window))
            for i in inputs
            if self._query.inputs[i].window is not None
        ]
        return WindowJoin(shape, tuple(results), tuple(time_name(i) for i in inputs), tuple(windows))

    def _is_grouped_in_place(self) -> bool:
        """Whether what is joined last is grouped by the very key it is joined on: it is where it is needed already.

        Keys and arguments have to be plain columns, as no expression is computed there. Floating point keys are not,
        since they are joined and grouped in a canonical form.
        """
        query, grouping = self._query, self._query.grouping
        if grouping is None or not query.operators or query.operators[-1].conditions:
            return False
        root = query.operators[-1]
        columns = {quote(joined_column(*column)): column for column in root.columns}
        texts = [*grouping.keys, *(call.argument for call in grouping.calls if call.argument is not None)]
        if any(text not in columns for text in texts):
            return False
        of_class = {joined: n for n in root.classes for joined in _plain_terms(query.classes[n])}
        classes = [of_class.get(columns[key]) for key in grouping.keys]
        types = [self._type_of(*columns[text]) for text in texts]
        return (
            sorted(n for n in classes if n is not None) == sorted(root.classes)
            and len(classes) == len(root.classes)
            and not any(isinstance(data_type, T.FractionalType) for data_type in types[: len(classes)])
            and not any(is_changed(data_type) for data_type in types)
        )

    def _shape(self, n: int) -> JoinShape:
        operator, goes = self._query.operators[n], self._goes(n)
        verify = tuple(f"key.{k}" for k in range(len(operator.classes))) if must_verify(self._key_types[n]) else ()
        times = tuple(() if below < self._leaves else self._expiries(below) for below in operator.parts)
        return JoinShape(
            tuple(self._window(below) for below in operator.parts),
            verify,
            times if any(times) else (),
            keep=(*((HASH,) if goes is Goes.HERE else ()), *((TS,) if goes is not Goes.SINK and self._timed else ())),
        )

    def _aggregate(self, results: tuple[tuple[str, int], ...]) -> StatefulOperator:
        group, grouping = self._group, self._query.grouping
        assert group is not None, "only a query that groups has an aggregate"
        assert grouping is not None, "only a query that groups has an aggregate"
        if grouping.applied is not None:
            return cast(StatefulOperator, grouping.applied.operator)
        return WindowAggregate(
            keys=tuple(f"key.{n}" for n in range(len(group.keys))),
            calls=group.calls,
            results=results,
            width=port_window(self._times, PortTime(self._query.inputs_of(self._query.root), ())),
            rows=grouping.rows,
            ties=group.names,
            distinct=grouping.distinct,
            last_only=grouping.once,
        )

    def _goes(self, n: int) -> Goes:
        if n == len(self._query.operators) - 1 and self._group is None:
            return Goes.SINK
        return Goes.EXCHANGE if any(edge.lower == n for edge in self._rounds.crossing) else Goes.HERE

    def _exchange(self, lower: list[int]) -> Exchange:
        """What travels after a round: the results of these operators."""
        slots: list[Slot] = []
        parts, yielded = [], set()
        for n in lower:
            operator, part = self._query.operators[n], self._leaves + n
            key_types = self._key_types[self._above[part]]
            texts = self._keys_above(part)
            keys = [to_carried(canonical(key, t), t) for key, t in zip(texts, key_types, strict=True)]
            wanted = [
                (joined_column(alias, column), self._type_of(alias, column)) for alias, column in operator.columns
            ]
            wanted += [(time_name(i), T.LongType()) for i in self._timed_inputs(part)]
            computed = self._computed(part, keys)
            placed = _place(slots, [*(carried_type(t) for _, t in wanted), *(t for _, t in computed)])
            columns = [Carried(name, t, slot) for (name, t), slot in zip(wanted, placed, strict=False)]
            yielded |= {column.slot for column in columns}
            filled = tuple((slot, text) for slot, (text, _) in zip(placed[len(wanted) :], computed, strict=True))
            grouped = self._is_grouped(part)
            parts.append(PartLayout(part, operator.conditions, tuple(keys), filled, tuple(columns), grouped))
        fields = [T.StructField(INPUT, T.ByteType()), *([T.StructField(TS, T.LongType())] if self._timed else [])]
        fields += [T.StructField(slot.name, slot.type) for slot in slots if slot.name in yielded]
        if self._is_grouped(parts[0].part):
            # What aggregates are of goes on, not what it is computed from.
            kept = {slot for slot, _ in parts[0].computed}
            slots = [slot for slot in slots if slot.name in kept]
        return Exchange(tuple(parts), tuple(slots), T.StructType(fields))

    def _keys_above(self, part: int) -> tuple[str, ...]:
        """The expressions of a part's key in the operator above it."""
        if self._is_grouped(part):
            assert self._query.grouping is not None
            return self._query.grouping.keys
        above = self._query.operators[self._above[part]]
        return above.keys[above.parts.index(part)]

    def _computed(self, part: int, keys: list[str]) -> list[tuple[str, T.DataType]]:
        """What Spark computes of the columns of a part and is stored: expressions with their types."""
        key_types = self._key_types[self._above[part]]
        stored = [(key, carried_type(t)) for key, t in zip(keys, key_types, strict=True)]
        if not self._is_grouped(part):
            return stored if must_verify(key_types) else []
        ends = [
            f"{quote(time_name(i))} + {_kernel_window(self._query.inputs[i].window)}L"
            for i in self._timed_inputs(part)
            if self._query.inputs[i].window is not None
        ]
        expiry = ends[0] if len(ends) == 1 else f"least({', '.join(ends)})"
        return [*stored, *self._arguments, (expiry, T.LongType())]

    def _is_grouped(self, part: int) -> bool:
        return self._group is not None and part == self._query.root

    @property
    def _argument_names(self) -> tuple[str, ...]:
        return () if self._group is None else self._group.names

    @property
    def _arguments(self) -> tuple[tuple[str, T.DataType], ...]:
        return () if self._group is None else self._group.arguments

    def _grouped_rows(self, spark: SparkSession) -> DataFrame:
        """No rows, with the columns that a grouping is over."""
        query = self._query
        if not query.operators:
            return self._frames[query.inputs[0].stream]
        columns = query.operators[-1].columns
        fields = [T.StructField(joined_column(*column), self._type_of(*column)) for column in columns]
        return spark.createDataFrame([], T.StructType(fields))

    def _state_of(self, part: PartLayout) -> Projection:
        """What of a part that has travelled is stored."""
        slots = [slot for slot, _ in part.computed]
        if self._is_grouped(part.part):
            assert self._group is not None
            names = [f"key.{n}" for n in range(len(self._group.keys))]
            names += self._argument_names
            return Projection(tuple(zip([*names, EXPIRY], slots, strict=True)))
        times = {time_name(i) for i in self._timed_inputs(part.part)}
        keys = [(f"key.{n}", slot) for n, slot in enumerate(slots)]
        columns = [
            (column.name if column.name in times else f"col.{column.name}", column.slot) for column in part.columns
        ]
        return Projection((*keys, *columns))

    def _answer(self) -> tuple[StatefulOperator, list[T.StructField], tuple[Output, ...] | None]:
        """The last operator, with results in their final form if they can be, and what is left to do with them."""
        query = self._query
        if self._group is not None:
            fields = self._group.results
        else:
            fields = [T.StructField(joined_column(*c), self._type_of(*c)) for c in query.operators[-1].columns]
        numbers = {quote(field.name): n for n, field in enumerate(fields)}
        changed = is_changed(T.StructType(fields)) or (self._group is not None and self._group.gives is not None)
        if query.residual is not None or changed or any(output.expression not in numbers for output in query.outputs):
            return self._last([(field.name, n) for n, field in enumerate(fields)]), fields, query.outputs
        final = [(output.name, numbers[output.expression]) for output in query.outputs]
        fields = [T.StructField(name, fields[n].dataType) for name, n in final]
        return self._last(final), fields, None

    def _last(self, results: list[tuple[str, int]]) -> StatefulOperator:
        """The last operator with these results: names, and numbers of what it can give."""
        if self._group is not None:
            return self._aggregate(tuple(results))
        n = len(self._query.operators) - 1
        columns = self._query.operators[n].columns
        shown = tuple(ResultColumn(name, *self._origin(n, columns[number])) for name, number in results)
        return WindowJoin(self._shape(n), shown)

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
        if self._is_grouped(part):
            return ()
        above = self._query.operators[self._above[part]]
        return tuple(sorted(i for other in above.parts if other != part for i in self._query.inputs_of(other)))


def time_name(i: int) -> str:
    """The column with the event time of input i in a joined row; those of aliases have a dot in their names."""
    return f"ts:{i}"


def _plain_terms(terms: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Alias and column of the terms of a class that are columns."""
    for alias, text in terms:
        if text.startswith("`") and text.endswith("`") and "`" not in text[1:-1].replace("``", ""):
            yield alias, text[1:-1].replace("``", "`")


def _label(entry: JoinInput, nth: int) -> str:
    """The input's alias; of several sources, also the stream and, if it occurs twice, its number."""
    stream = entry.sources[nth].stream
    if len(entry.sources) == 1:
        return entry.alias
    alike = [n for n, source in enumerate(entry.sources) if source.stream == stream]
    return f"{entry.alias} ({stream})" if len(alike) == 1 else f"{entry.alias} ({stream} {alike.index(nth) + 1})"


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
