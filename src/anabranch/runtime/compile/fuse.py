"""Compile expressions for processors, where Arrow computes them as Spark does (`kernel/expression`).

Spark analyses an expression; its tree, with all types found and all casts written out, is translated node by node. A
node that is not known here is left to Spark, and with it the whole expression. Integers may overflow, which is an
error; so arithmetic is taken only where Spark computes it for every row, too: not in a branch of a CASE, and not where
the other side of AND or OR may decide alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from anabranch.kernel.expression import Column, Constant, Expression, FunctionCall, Fused

_COMPARISONS = {
    "EqualTo": "equal",
    "LessThan": "less",
    "LessThanOrEqual": "less_equal",
    "GreaterThan": "greater",
    "GreaterThanOrEqual": "greater_equal",
    "EqualNullSafe": "null_safe_equal",
}
_ARITHMETIC = {"Add": "add", "Subtract": "subtract", "Multiply": "multiply", "UnaryMinus": "negate"}
# Evaluated as far as it takes to know the value.
_LAZY = {"And": "and", "Or": "or", "In": "in", "If": "case", "CaseWhen": "case", "Coalesce": "coalesce"}
# Written for something else, which is their only child.
_REPLACED = frozenset({"Between", "Nvl", "Nvl2", "IfNull"})
_TESTS = {"IsNull": "is_null", "IsNotNull": "is_not_null", "Not": "not"}
_INTEGERS = {"tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64()}
_FLOATS = {"float": pa.float32(), "double": pa.float64()}
_TYPES: dict[str, pa.DataType] = {
    **_INTEGERS,
    **_FLOATS,
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
# From each to those after it no value is lost, or it is rounded as IEEE 754 says. Spark's optimiser leaves out a cast
# to FLOAT that only rounds whole numbers on the way to something wider, so such casts are left to Spark.
_WIDENING = ("tinyint", "smallint", "int", "bigint", "float", "double")


class _UnknownError(Exception):
    """A node that Arrow has nothing for."""


def fuse(rows: DataFrame, texts: Sequence[str], names: Mapping[str, str]) -> list[Fused | None]:
    """The expressions over the rows' columns, for Arrow; None for those that are Spark's.

    `names` are what columns are called where they are evaluated.
    """
    if not texts:
        return []
    plan = rows.selectExpr(*(f"{text} AS e{n}" for n, text in enumerate(texts)))._jdf.queryExecution().analyzed()
    if plan.getClass().getSimpleName() != "Project":
        return [None] * len(texts)
    trees = plan.projectList()
    return [_fused(text, trees.apply(n).child(), names) for n, text in enumerate(texts)]


def _fused(text: str, tree: Any, names: Mapping[str, str]) -> Fused | None:
    try:
        return Fused(text, _Translation(names).translate(tree, always=True))
    except _UnknownError:
        return None


class _Translation:
    """One walk over an analysed tree. What Spark computes once and refers to several times stands at each reference."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._common: dict[str, Any] = {}

    def translate(self, node: Any, *, always: bool) -> Expression:
        """A node for Arrow. It is `always` evaluated, or only if others ask for it."""
        kind, data_type = str(node.getClass().getSimpleName()), str(node.dataType().simpleString())
        if data_type not in _TYPES:
            raise _UnknownError
        if kind == "AttributeReference":
            if node.name() not in self._names:
                raise _UnknownError  # a parameter of a SQL function
            return Column(self._names[node.name()])
        if kind == "With":
            definitions = node.defs()
            for n in range(definitions.size()):
                self._common[str(definitions.apply(n).id().toString())] = definitions.apply(n).child()
            return self.translate(node.child(), always=always)
        if kind == "CommonExpressionRef":
            return self.translate(self._common[str(node.id().toString())], always=always)
        if node.foldable():
            return _constant(node, data_type)
        children = [node.children().apply(n) for n in range(node.children().size())]
        if kind in _REPLACED:
            return self.translate(children[0], always=always)
        first = self.translate(children[0], always=always)
        if kind in _LAZY:
            if data_type.startswith("timestamp"):
                raise _UnknownError  # columns and constants may name different time zones
            others = [self.translate(child, always=False) for child in children[1:]]
            return _equal_to_one(first, others) if kind == "In" else FunctionCall(_LAZY[kind], (first, *others))
        made = (first, *(self.translate(child, always=always) for child in children[1:]))
        if kind == "Cast":
            return _cast(node, first, data_type)
        if kind in _ARITHMETIC:
            return _arithmetic(node, kind, made, data_type, always)
        if kind in _COMPARISONS or kind in _TESTS:
            return FunctionCall(_COMPARISONS.get(kind) or _TESTS[kind], made)
        raise _UnknownError


def _constant(node: Any, data_type: str) -> Constant:
    value = node.eval(None)
    if value is None or isinstance(value, bool | int | float):
        return Constant(value, _TYPES[data_type])
    if data_type == "string":
        try:
            return Constant(bytes(value.getBytes()).decode(), _TYPES[data_type])
        except UnicodeDecodeError:
            pass  # such a string is Spark's only
    raise _UnknownError


def _equal_to_one(value: Expression, listed: Sequence[Expression]) -> Expression:
    """IN: equal to one of them; null if that is unknown."""
    condition: Expression = FunctionCall("equal", (value, listed[0]))
    for other in listed[1:]:
        condition = FunctionCall("or", (condition, FunctionCall("equal", (value, other))))
    return condition


def _cast(node: Any, value: Expression, data_type: str) -> Expression:
    source = str(node.child().dataType().simpleString())
    if source == data_type:
        return value
    if source in ("int", "bigint") and data_type == "float":
        raise _UnknownError
    if source not in _WIDENING or data_type not in _WIDENING or _WIDENING.index(source) > _WIDENING.index(data_type):
        raise _UnknownError
    return FunctionCall("cast", (value,), _TYPES[data_type])


def _arithmetic(node: Any, kind: str, made: tuple[Expression, ...], data_type: str, always: bool) -> Expression:
    fails = node.failOnError() if kind == "UnaryMinus" else node.evalMode().toString() == "ANSI"
    if data_type not in _FLOATS and not (data_type in _INTEGERS and fails and always):
        raise _UnknownError
    return FunctionCall(_ARITHMETIC[kind], made)
