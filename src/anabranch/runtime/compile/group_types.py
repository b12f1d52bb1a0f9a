"""The types of a grouping, as Spark finds them: of its keys, of the arguments of aggregates, and of the results."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from anabranch.errors import QueryError, UnsupportedError
from anabranch.kernel.aggregate.window_aggregate import Aggregate
from anabranch.plan.query import AppliedOperator, Grouping, aggregate_column, group_column, quote
from anabranch.runtime.rows.carried import check_carried, is_changed
from anabranch.runtime.rows.keys import is_hashable

_NUMERIC = ("sum", "avg", "stddev")
_ORDERED = (
    T.NumericType,
    T.StringType,
    T.BinaryType,
    T.BooleanType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
)


@dataclass(frozen=True, slots=True)
class GroupTypes:
    """The types of a grouping: of its keys, of the `arguments` of aggregates, and of the aggregates.

    `arguments` are pairs of an expression and its type, without repetitions; `names` are their columns in the state. A
    user's operator has no aggregates, but a `result_schema`.
    """

    keys: tuple[T.DataType, ...]
    arguments: tuple[tuple[str, T.DataType], ...]
    names: tuple[str, ...]
    aggregates: tuple[Aggregate, ...] = ()
    aggregate_types: tuple[T.DataType, ...] = ()
    result_schema: T.StructType | None = None

    @property
    def results(self) -> list[T.StructField]:
        """The columns of the results: keys and aggregates under their names above the grouping, or those of a user's
        operator."""
        if self.result_schema is not None:
            return list(self.result_schema)
        keys = [T.StructField(group_column(n), t) for n, t in enumerate(self.keys)]
        return keys + [T.StructField(aggregate_column(n), t) for n, t in enumerate(self.aggregate_types)]


def argument_column(n: int) -> str:
    """The state column of an argument."""
    return f"arg.{n}"


def group_types(rows: DataFrame, grouping: Grouping, *, in_place: bool = False) -> GroupTypes:
    """Let Spark analyse the expressions of a grouping over the rows that it groups.

    What is grouped `in_place`, where it is joined, is plain columns.
    """
    keys = tuple(_type_of(rows, key) for key in grouping.keys)
    for key, data_type in zip(grouping.keys, keys, strict=True):
        if not is_hashable(data_type):
            what = "DISTINCT of" if grouping.distinct else "GROUP BY"
            raise UnsupportedError(f"{what} {key}, which is {data_type.simpleString()}, is not supported")
    if grouping.applied is not None:
        return _applied_types(rows, keys, grouping.applied)
    arguments: dict[str, T.DataType] = {}
    aggregates: list[Aggregate] = []
    types: list[T.DataType] = []
    for call in grouping.calls:
        if call.argument is None:
            aggregates.append(Aggregate(call.function, None))
            types.append(T.LongType())
            continue
        data_type = _type_of(rows, call.argument)
        _check_argument(call.function, call.argument, data_type)
        # Only whether there is a value is counted, whatever it is.
        counted = call.function == "count" and not in_place
        text = f"CASE WHEN ({call.argument}) IS NOT NULL THEN true END" if counted else call.argument
        arguments[text] = T.BooleanType() if counted else data_type
        aggregates.append(Aggregate(call.function, argument_column(list(arguments).index(text))))
        types.append(_result_type(call.function, data_type))
    names = tuple(argument_column(n) for n in range(len(arguments)))
    return GroupTypes(keys, tuple(arguments.items()), names, tuple(aggregates), tuple(types))


def _applied_types(rows: DataFrame, keys: tuple[T.DataType, ...], applied: AppliedOperator) -> GroupTypes:
    columns = tuple((quote(column), rows.schema[column].dataType) for column in applied.columns)
    for column, data_type in columns:
        check_carried(column, data_type)
        if is_changed(data_type):
            problem = f"{column} is {data_type.simpleString()}, which has no Arrow form of its own"
            raise UnsupportedError(f"the operator {applied.name}: {problem}; CAST it in the stream's DataFrame")
    names = tuple(f"col.{column}" for column in applied.columns)
    result_schema = rows.sparkSession.createDataFrame([], applied.result_ddl).schema
    return GroupTypes(keys, columns, names, result_schema=result_schema)


def _type_of(rows: DataFrame, text: str) -> T.DataType:
    return rows.selectExpr(f"{text} AS e").schema["e"].dataType


def _check_argument(function: str, argument: str, data_type: T.DataType) -> None:
    name = f"{function.upper()}({argument})"
    if function in _NUMERIC and not isinstance(data_type, T.NumericType):
        raise QueryError(f"{name} is of {data_type.simpleString()}, not of numbers; CAST it")
    collated = isinstance(data_type, T.StringType) and data_type != T.StringType()
    if function in ("min", "max") and (collated or not isinstance(data_type, _ORDERED)):
        raise UnsupportedError(f"{name} is of {data_type.simpleString()}, which is not supported; CAST it")


def _result_type(function: str, data_type: T.DataType) -> T.DataType:
    """The type that Spark SQL gives the result of an aggregate function."""
    if function == "count":
        return T.LongType()
    if function in ("min", "max"):
        return data_type
    if isinstance(data_type, T.DecimalType) and function != "stddev":
        more = (10, 0) if function == "sum" else (4, 4)
        return T.DecimalType(min(38, data_type.precision + more[0]), min(38, data_type.scale + more[1]))
    return T.LongType() if function == "sum" and isinstance(data_type, T.IntegralType) else T.DoubleType()
