"""Expressions over Arrow columns, with the meaning that Spark gives them.

Where operators run on one processor one after the other, rows between them never leave Python, so what is selected and
computed of them there is computed here, for a whole chunk at a time. Only what Arrow can do exactly as Spark does is
here (`runtime/compile/fuse` decides); everything else is left to Spark at a round's boundary.

Spark's meaning, where it differs from Arrow's: `AND` and `OR` know null as unknown. NaN equals NaN and is greater than
all other numbers, and -0.0 is 0.0. A null condition of `CASE` is false. Integers that overflow are an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import BadRowError


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the rows."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A value of an Arrow type; None is null."""

    value: Any
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function of other expressions. A cast has the `type` of its result."""

    function: str
    arguments: tuple[Expression, ...]
    type: pa.DataType | None = None


Expression = Column | Constant | FunctionCall


@dataclass(frozen=True, slots=True)
class Fused:
    """An expression and the text that it was made of."""

    text: str
    expression: Expression


def columns_of(expression: Expression) -> set[str]:
    """The columns that an expression reads."""
    if isinstance(expression, Column):
        return {expression.name}
    arguments = expression.arguments if isinstance(expression, FunctionCall) else ()
    return {name for argument in arguments for name in columns_of(argument)}


def evaluate(fused: Fused, rows: pa.RecordBatch) -> pa.Array:
    """The value of an expression for each row."""
    try:
        value = _value(fused.expression, rows)
    except pa.ArrowException as error:
        raise BadRowError(
            f"{fused.text} fails on a joined row: {error}. The row has {_failing_row(fused, rows)}. A joined row "
            "cannot be put into quarantine, because the rows it is made of may be part of other results; use try_add, "
            "try_multiply and the like"
        ) from None
    return pa.repeat(value, len(rows)) if isinstance(value, pa.Scalar) else value


def _failing_row(fused: Fused, rows: pa.RecordBatch) -> str:
    """The values of the first row that the expression fails on, as text; the row is found by halving."""
    while len(rows) > 1:
        half = rows.slice(0, len(rows) // 2)
        try:
            _value(fused.expression, half)
        except pa.ArrowException:
            rows = half
        else:
            rows = rows.slice(len(half))
    return ", ".join(f"{name} = {rows.column(name)[0]}" for name in sorted(columns_of(fused.expression)))


def select(conditions: Sequence[Fused], rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows that meet all conditions. A condition is evaluated only on rows that meet those before it."""
    for condition in conditions:
        if len(rows):
            rows = rows.filter(evaluate(condition, rows), null_selection_behavior="drop")
    return rows


def _value(expression: Expression, rows: pa.RecordBatch) -> pa.Array | pa.Scalar:
    if isinstance(expression, Column):
        return rows.column(expression.name)
    if isinstance(expression, Constant):
        return pa.scalar(expression.value, expression.type)
    arguments = [_value(argument, rows) for argument in expression.arguments]
    if expression.function == "cast":
        return pc.cast(arguments[0], expression.type, safe=False)
    return FUNCTIONS[expression.function](*arguments)


def _comparable(value: pa.Array | pa.Scalar) -> pa.Array | pa.Scalar:
    """A value that Arrow compares as Spark does: moments as whole numbers, floating point numbers in their order."""
    if pa.types.is_timestamp(value.type):
        return value.cast(pa.int64())
    if not pa.types.is_floating(value.type):
        return value
    array = pa.array([value.as_py()], value.type) if isinstance(value, pa.Scalar) else value
    numbers = array.to_numpy(zero_copy_only=False).astype(np.float64)
    numbers = np.where(np.isnan(numbers), np.nan, numbers + 0.0)
    bits = numbers.view(np.int64)
    ordered = pa.array(
        np.where(bits < 0, bits ^ np.int64(np.iinfo(np.int64).max), bits), mask=array.is_null().to_numpy(False)
    )
    return ordered[0] if isinstance(value, pa.Scalar) else ordered


def _comparison(name: str) -> Callable[..., pa.Array]:
    def compare(left: pa.Array, right: pa.Array) -> pa.Array:
        return pc.call_function(name, [_comparable(left), _comparable(right)])

    return compare


def _null_safe_equal(left: pa.Array, right: pa.Array) -> pa.Array:
    same = pc.fill_null(pc.equal(_comparable(left), _comparable(right)), False)
    return pc.or_(same, pc.and_(pc.is_null(left), pc.is_null(right)))


def _case(*parts: pa.Array) -> pa.Array:
    """CASE WHEN parts[0] THEN parts[1] WHEN ... ELSE the last; without an ELSE it is null."""
    *branches, value = parts if len(parts) % 2 else (*parts, pa.scalar(None, parts[1].type))
    for n in reversed(range(0, len(branches), 2)):
        value = pc.if_else(pc.fill_null(branches[n], False), branches[n + 1], value)
    return value


FUNCTIONS: dict[str, Callable[..., pa.Array]] = {
    "and": pc.and_kleene,
    "or": pc.or_kleene,
    "not": pc.invert,
    "equal": _comparison("equal"),
    "less": _comparison("less"),
    "less_equal": _comparison("less_equal"),
    "greater": _comparison("greater"),
    "greater_equal": _comparison("greater_equal"),
    "null_safe_equal": _null_safe_equal,
    "is_null": pc.is_null,
    "is_not_null": pc.is_valid,
    "coalesce": pc.coalesce,
    "case": _case,
    "add": pc.add_checked,
    "subtract": pc.subtract_checked,
    "multiply": pc.multiply_checked,
    "negate": pc.negate_checked,
}
