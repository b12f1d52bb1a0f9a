"""Notes on bad rows: what stands in the place of a row that cannot be processed, until a processor decides about it."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from anabranch.plan.logical import DERIVED_TIME, quote

# The column of a derived stream with what is wrong with a row, or null.
NOTE = ":note"
HIDDEN = (DERIVED_TIME, NOTE)


def bad_row(rows: DataFrame, stream: str, column: str, problem: Column) -> Column:
    """A note that names the stream, the column, the problem and the row."""
    return F.to_json(
        F.struct(
            F.lit(stream).alias("stream"),
            F.lit(column).alias("column"),
            problem.alias("problem"),
            row_text(rows).alias("row"),
        )
    )


def row_text(frame: DataFrame) -> Column:
    """The whole row for people to read."""
    parts = []
    for field in (field for field in frame.schema if field.name not in HIDDEN):
        text = F.coalesce(F.expr(_text(quote(field.name), field.dataType)), F.lit("null"))
        parts.append(F.concat(F.lit(f"{field.name}="), text))
    return F.concat_ws(", ", *parts)


def _text(name: str, data_type: T.DataType) -> str:
    """A value as text. Spark casts everything to STRING but shapes."""
    if isinstance(data_type, T.BinaryType):
        return f"hex({name})"
    if isinstance(data_type, T.SpatialType):
        return f"hex(st_asbinary({name}))"
    if _holds_shapes(data_type):
        return f"IF({name} IS NULL, NULL, '({data_type.simpleString()})')"
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
