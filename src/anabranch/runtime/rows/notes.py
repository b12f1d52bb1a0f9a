"""Notes on bad rows: what stands in the place of a row that cannot be processed, until a processor decides about it."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from anabranch.plan.query import DERIVED_TIME, quote

# The column of a derived stream with what is wrong with a row, or null.
NOTE = ":note"
HIDDEN = (DERIVED_TIME, NOTE)


def bad_row(rows: DataFrame, stream: str, column: str, problem: str) -> Column:
    """A note that names the stream, the column, the problem, which is an expression, and the row.

    Written as one text, like `row_text`: each function of PySpark would be several calls into the JVM.
    """
    parts = {"stream": literal(stream), "column": literal(column), "problem": problem, "row": _row_text(rows)}
    return F.expr(f"to_json(named_struct({', '.join(f'{literal(name)}, {text}' for name, text in parts.items())}))")


def row_text(rows: DataFrame) -> Column:
    """The whole row for people to read."""
    return F.expr(_row_text(rows))


def literal(text: str) -> str:
    """A text as an expression, whatever characters it has and however Spark is told to read escapes."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def _row_text(rows: DataFrame) -> str:
    shown = [field for field in rows.schema if field.name not in HIDDEN]
    parts = [
        f"concat({literal(f'{field.name}=')}, coalesce({_text(quote(field.name), field.dataType)}, 'null'))"
        for field in shown
    ]
    return f"concat_ws({', '.join([literal(', '), *parts])})"


def _text(name: str, data_type: T.DataType) -> str:
    """A value as text. Spark casts everything to STRING but shapes."""
    if isinstance(data_type, T.BinaryType):
        return f"hex({name})"
    if isinstance(data_type, T.SpatialType):
        return f"hex(st_asbinary({name}))"
    if _holds_shapes(data_type):
        return f"IF({name} IS NULL, NULL, {literal(f'({data_type.simpleString()})')})"
    return f"CAST({name} AS STRING)"


def _holds_shapes(data_type: T.DataType) -> bool:
    match data_type:
        case T.ArrayType():
            return _holds_shapes(data_type.elementType)
        case T.MapType():
            return _holds_shapes(data_type.keyType) or _holds_shapes(data_type.valueType)
        case T.StructType():
            return any(_holds_shapes(field.dataType) for field in data_type)
    return isinstance(data_type, T.SpatialType)
