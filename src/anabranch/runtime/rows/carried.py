"""The form in which a column travels where Spark cannot hand its own type to Python as Arrow.

Such a column is turned into a type that has an Arrow form before the exchange, and back in the results. Both are Spark
expressions; inside arrays, maps and structs they are applied part by part. The carried form determines the value: equal
values stay equal, different ones different, and they come back as they were.

| type | travels as |
|---|---|
| INTERVAL YEAR, MONTH, YEAR TO MONTH | INT: the months |
| INTERVAL (calendar) | STRING: Spark reads what it writes, to the microsecond |
| CHAR, VARCHAR, where the session preserves them | STRING |
| VOID | BOOLEAN: Arrow knows no void that may not be null, such as the elements of `array()` |

Everything else travels as it is.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from anabranch.errors import UnsupportedError
from anabranch.plan.query import quote
from anabranch.runtime.rows.notes import literal


def check_carried(name: str, data_type: T.DataType) -> None:
    """Refuse a column that Spark can neither hand to Python as it is nor in a carried form."""
    try:
        to_arrow_type(carried_type(data_type), timezone="UTC", error_on_duplicated_field_names_in_struct=True)
    except (PySparkException, ValueError):
        raise UnsupportedError(
            f"column {name} of type {data_type.simpleString()} cannot travel through the join; "
            "CAST it to another type (such as a number or a string) in the stream's DataFrame"
        ) from None


def type_text(data_type: T.DataType) -> str:
    """A type as Spark's SQL has it, so that no setting makes another type of it; with the names of fields quoted.

    `TIMESTAMP`, which `simpleString` says, is another type under `spark.sql.timestampType`.
    """
    match data_type:
        case T.ArrayType():
            return f"ARRAY<{type_text(data_type.elementType)}>"
        case T.MapType():
            return f"MAP<{type_text(data_type.keyType)}, {type_text(data_type.valueType)}>"
        case T.StructType():
            return f"STRUCT<{', '.join(f'{quote(field.name)}: {type_text(field.dataType)}' for field in data_type)}>"
        case T.TimestampType():
            return "TIMESTAMP_LTZ"
    return data_type.simpleString()


def carried_type(data_type: T.DataType) -> T.DataType:
    """The type that travels for a type."""
    match data_type:
        case T.YearMonthIntervalType():
            return T.IntegerType()
        case T.CalendarIntervalType() | T.CharType() | T.VarcharType():
            return T.StringType()
        case T.NullType():
            return T.BooleanType()
        case T.ArrayType():
            return T.ArrayType(carried_type(data_type.elementType), data_type.containsNull)
        case T.MapType():
            key, value = carried_type(data_type.keyType), carried_type(data_type.valueType)
            return T.MapType(key, value, data_type.valueContainsNull)
        case T.StructType():
            return T.StructType(
                [T.StructField(f.name, carried_type(f.dataType), f.nullable, f.metadata) for f in data_type]
            )
    return data_type


def is_changed(data_type: T.DataType) -> bool:
    """Whether a type travels in another form than its own."""
    return carried_type(data_type) != data_type


def to_carried(value: str, data_type: T.DataType, depth: int = 0) -> str:
    """The expression that makes the carried form of a value."""
    if not is_changed(data_type):
        return value
    match data_type:
        case T.YearMonthIntervalType():
            return f"CAST(CAST({value} AS INTERVAL MONTH) AS INT)"
        case T.ArrayType() | T.MapType() | T.StructType():
            return _inside(value, data_type, depth, to_carried)
    return f"CAST({value} AS {type_text(carried_type(data_type))})"


def from_carried(value: str, data_type: T.DataType, depth: int = 0) -> str:
    """The expression that makes a value out of its carried form."""
    if not is_changed(data_type):
        return value
    match data_type:
        case T.YearMonthIntervalType():
            return f"CAST(CAST({value} AS INTERVAL MONTH) AS {type_text(data_type)})"
        case T.NullType():
            return "NULL"
        case T.ArrayType() | T.MapType() | T.StructType():
            return _inside(value, data_type, depth, from_carried)
    return f"CAST({value} AS {type_text(data_type)})"


def carry(rows: DataFrame) -> DataFrame:
    """The rows with every column in carried form."""
    return rows.selectExpr(*(f"{to_carried(quote(f.name), f.dataType)} AS {quote(f.name)}" for f in rows.schema))


def restore(carried: DataFrame, schema: T.StructType) -> DataFrame:
    """The rows of a schema, out of their carried form."""
    return carried.selectExpr(*(f"{from_carried(quote(f.name), f.dataType)} AS {quote(f.name)}" for f in schema))


def _inside(
    value: str,
    data_type: T.ArrayType | T.MapType | T.StructType,
    depth: int,
    change: Callable[[str, T.DataType, int], str],
) -> str:
    """A nested value with its parts changed. Variables of different depth have different names."""
    part = f"v{depth}"
    if isinstance(data_type, T.ArrayType):
        return f"transform({value}, {part} -> {change(part, data_type.elementType, depth + 1)})"
    if isinstance(data_type, T.MapType):
        key = change(f"{part}.key", data_type.keyType, depth + 1)
        content = change(f"{part}.value", data_type.valueType, depth + 1)
        entry = f"named_struct('key', {key}, 'value', {content})"
        return f"map_from_entries(transform(map_entries({value}), {part} -> {entry}))"
    parts = [change(f"{value}.{quote(field.name)}", field.dataType, depth) for field in data_type]
    fields = ", ".join(f"{literal(field.name)}, {made}" for field, made in zip(data_type, parts, strict=True))
    return f"IF({value} IS NULL, NULL, named_struct({fields}))"
