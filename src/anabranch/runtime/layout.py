"""How the rows of several streams share one shuffle: typed slots, and what each input keeps in them.

All inputs of a join travel through one exchange, so they need one schema: the input's number, the key hash, the
event time (where the query has a window), a reject note (where a row can be bad), and slots. A slot has a type and
is used by every input that has a column of that type left to place, so the row is as wide as its widest input.

The hash of a single key column of a fixed-width type is injective (XXH64 of one 4- or 8-byte word is built from
invertible steps only), so equal hashes are equal keys and the key itself need not be stored. Otherwise canonical
key columns are stored and compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from anabranch.errors import QueryError, UnsupportedError
from anabranch.kernel.delta import Projection
from anabranch.kernel.multiway import UNBOUNDED, JoinShape
from anabranch.plan.logical import JoinInput, JoinQuery, Output, StreamSchema, joined_column, quote
from anabranch.plan.watermark import InputTime, retention
from anabranch.runtime.attempt import Judged, judge
from anabranch.runtime.carried import carried_type, check_carried, is_changed, to_carried
from anabranch.runtime.processor import ProcessorPlan, ResultColumn

SPANS_PER_RETENTION = 4

_INJECTIVE = (
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.FloatType,
    T.DoubleType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
    T.TimeType,
    T.YearMonthIntervalType,
    T.DayTimeIntervalType,
)
_WORDS = (*_INJECTIVE, T.StringType, T.BinaryType, T.DecimalType)
# Types that may be compared with each other, as Spark does it: within one line.
_FAMILIES: tuple[tuple[type[T.DataType], ...], ...] = (
    (T.NumericType,),
    (T.DateType, T.TimestampType, T.TimestampNTZType),
    (T.TimeType,),
    (T.YearMonthIntervalType,),
    (T.DayTimeIntervalType,),
)


@dataclass(frozen=True, slots=True)
class Slot:
    """A column of the packed row."""

    name: str
    type: T.DataType


@dataclass(frozen=True, slots=True)
class InputLayout:
    """What of an input is evaluated below the join, and where its values go.

    `keys` are canonical and in carried form, as hashed and compared; `values` are pairs of (slot, Spark SQL expression
    over the stream's columns).
    """

    input: JoinInput
    conditions: tuple[Judged, ...]
    keys: tuple[Judged, ...]
    time: str | None
    time_type: T.DataType | None
    values: tuple[tuple[str, str], ...]

    @property
    def can_fail(self) -> bool:
        """Whether a condition or a key of the input can fail on a row."""
        return any(expression.can_fail for expression in (*self.conditions, *self.keys))


@dataclass(frozen=True, slots=True)
class Layout:
    """Everything the shell has to know to pack rows, run processors and name results.

    `result_schema` is what processors yield, in carried form, and `joined_schema` the same with the columns' own types.
    `outputs` is None where results leave the processor in their final form: no residual, only plain columns, none of
    which travels in another form than its own.
    """

    inputs: tuple[InputLayout, ...]
    slots: tuple[Slot, ...]
    key_types: tuple[T.DataType, ...]
    times: tuple[InputTime, ...]
    timed: bool
    processor: ProcessorPlan
    result_schema: T.StructType
    joined_schema: T.StructType
    outputs: tuple[Output, ...] | None

    @property
    def can_reject(self) -> bool:
        """Whether a row can be bad: by its event time, or by an expression that fails on it."""
        return self.timed or any(entry.can_fail for entry in self.inputs)

    @property
    def narrow(self) -> bool:
        """Whether every packed row has the same small size. Reject notes vary too, but a bad row is rare."""
        return all(isinstance(slot.type, (*_INJECTIVE, T.DecimalType)) for slot in self.slots)


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
    key_types = _key_types(spark, query, frames)
    timed = any(entry.window is not None for entry in query.inputs)
    verify = _must_verify(key_types)
    slots: list[Slot] = []
    inputs, projections, late_projections, windows, times = [], [], [], [], []
    results: list[ResultColumn] = []
    fields = []
    for number, entry in enumerate(query.inputs):
        stream, schema = streams[entry.stream], frames[entry.stream].schema
        plain = {quote(column): column for column in schema.names}
        keys = [to_carried(_canonical(key, t), t) for key, t in zip(entry.key, key_types, strict=True)]
        judged = judge(frames[entry.stream], [*entry.conditions, *keys])
        wanted = [(f"key.{n}", key, carried_type(t)) for n, (key, t) in enumerate(zip(keys, key_types, strict=True))]
        wanted = wanted if verify or keep_late else []
        shown = [plain.get(key, key) for key in entry.key[: len(wanted)]]
        for column in entry.columns:
            name, data_type = joined_column(entry.alias, column), schema[column].dataType
            check_carried(name, data_type)
            wanted.append((f"col.{column}", to_carried(quote(column), data_type), carried_type(data_type)))
            results.append(ResultColumn(name, number, f"col.{column}"))
            fields.append(T.StructField(name, data_type))
        placed = _place(slots, [data_type for _, _, data_type in wanted])
        inputs.append(
            InputLayout(
                entry,
                tuple(judged[: len(entry.conditions)]),
                tuple(judged[len(entry.conditions) :]),
                stream.time if timed else None,
                schema[stream.time].dataType if timed and stream.time else None,
                tuple((slot, text) for slot, (_, text, _) in zip(placed, wanted, strict=True)),
            )
        )
        names = [(name, slot) for slot, (name, _, _) in zip(placed, wanted, strict=True)]
        projections.append(Projection(tuple(names if verify else names[len(shown) :])))
        late_projections.append(Projection(tuple(zip([*shown, *entry.columns], placed, strict=True))))
        has_time = timed and stream.time is not None
        windows.append((UNBOUNDED if entry.window is None else min(entry.window, UNBOUNDED)) if has_time else None)
        times.append(InputTime(entry.window, stream.lateness))
    outputs: tuple[Output, ...] | None = query.outputs
    changed = is_changed(T.StructType(fields))
    taken = {quote(result.name): (result, field) for result, field in zip(results, fields, strict=True)}
    if query.residual is None and not changed and all(output.expression in taken for output in query.outputs):
        final = [(output.name, *taken[output.expression]) for output in query.outputs]
        results = [ResultColumn(name, result.input, result.column) for name, result, _ in final]
        fields = [T.StructField(name, field.dataType) for name, _, field in final]
        outputs = None
    plan = ProcessorPlan(
        aliases=tuple(entry.alias for entry in query.inputs),
        projections=tuple(projections),
        shape=JoinShape(tuple(windows), tuple(f"key.{n}" for n in range(len(key_types))) if verify else ()),
        results=tuple(results),
        max_spans=tuple(_max_span(times, i) for i in range(len(times))),
        keep_rejected=keep_rejected,
        late_projections=tuple(late_projections) if keep_late else None,
    )
    return Layout(
        inputs=tuple(inputs),
        slots=tuple(slots),
        key_types=key_types,
        times=tuple(times),
        timed=timed,
        processor=plan,
        result_schema=T.StructType([T.StructField(f.name, carried_type(f.dataType)) for f in fields]),
        joined_schema=T.StructType(fields),
        outputs=outputs,
    )


def _canonical(key: str, data_type: T.DataType) -> str:
    """NaN is one value and -0.0 is 0.0, as in Spark's own joins; other types are themselves."""
    value = f"CAST({key} AS {data_type.simpleString()})"
    if isinstance(data_type, T.FloatType | T.DoubleType):
        name = data_type.simpleString()
        return f"(CASE WHEN isnan({value}) THEN {name}('NaN') WHEN {value} = 0 THEN {name}(0) ELSE {value} END)"
    return value


def _must_verify(key_types: tuple[T.DataType, ...]) -> bool:
    if len(key_types) > 1:
        return True
    only = key_types[0]
    return not isinstance(only, _INJECTIVE) and not (isinstance(only, T.DecimalType) and only.precision <= 18)


def _key_types(spark: SparkSession, query: JoinQuery, frames: dict[str, DataFrame]) -> tuple[T.DataType, ...]:
    """The common type of every key column, as Spark would compare them."""
    per_input = []
    for entry in query.inputs:
        schema = frames[entry.stream].selectExpr(*(f"{key} AS k{n}" for n, key in enumerate(entry.key))).schema
        per_input.append([field.dataType for field in schema])
    return tuple(
        _common_type(spark, query, n, [types[n] for types in per_input]) for n in range(len(query.inputs[0].key))
    )


def _common_type(spark: SparkSession, query: JoinQuery, n: int, types: list[T.DataType]) -> T.DataType:
    described = ", ".join(
        f"{entry.alias}: {entry.key[n]} is {data_type.simpleString()}"
        for entry, data_type in zip(query.inputs, types, strict=True)
    )
    for data_type in types:
        collated = isinstance(data_type, T.StringType) and data_type != T.StringType()
        if collated or not isinstance(data_type, _WORDS):
            raise UnsupportedError(f"a join key of type {data_type.simpleString()} is not supported ({described})")
    if len(set(types)) == 1:
        return types[0]
    if not any(all(isinstance(data_type, family) for data_type in types) for family in _FAMILIES):
        raise QueryError(f"the join key has different types ({described}); CAST them to one type in the query")
    common = _widest(spark, types)
    floating = (T.FloatType, T.DoubleType)
    if isinstance(common, floating):
        for pair in combinations(types, 2):
            if not isinstance(_widest(spark, pair), floating):
                # 2^53 and 2^53 + 1 differ as BIGINT and are one DOUBLE: "equal" would not be one relation.
                raise QueryError(
                    f"the join key mixes {common.simpleString()} with types that Spark compares exactly "
                    f"with each other ({described}); CAST them to one type in the query"
                )
    return common


def _widest(spark: SparkSession, types: Sequence[T.DataType]) -> T.DataType:
    """The type in which Spark compares values of these types."""
    nulls = ", ".join(f"CAST(NULL AS {data_type.simpleString()})" for data_type in types)
    return spark.range(0).selectExpr(f"coalesce({nulls}) AS k").schema["k"].dataType


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


def _max_span(times: list[InputTime], i: int) -> int | None:
    kept = retention(times, i)
    return None if kept is None else max(kept // SPANS_PER_RETENTION, 1)
