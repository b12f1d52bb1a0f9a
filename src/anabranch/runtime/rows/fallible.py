"""Expressions that may fail on a row, and how to evaluate them so that only the row is lost, not the run.

In ANSI mode, Spark's default, `CAST(v AS INT)` or `a / b` raises an error for some rows. `try_value` evaluates such
an expression to a struct of its value, or to null where it fails, so that a failure differs from a null value.

Trying is not free and keeps Spark from pushing a condition down to the source, so it is for expressions that can
fail. `judge` decides that on Spark's own analysed tree: an expression is safe if every node of it is known never to
raise. What is not known counts as able to fail; a constant part does not, since it fails for all rows or for none.

Catalyst's TryEval is what Spark's own try_ functions are made of; PySpark has no public name for it. Python functions
are evaluated in an operator of their own, so `try_value` would not catch their errors, and they count as safe. So does
what a SQL function with parameters is part of: Spark computes the parameters in an operator of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch.plan.query import quote
from anabranch.runtime.spark.internals import spark_class

VALUE = "value"

# Catalyst's nodes that give a value or null for every row, if their children do.
_SAFE = frozenset(
    """
    Alias AttributeReference Literal GetStructField CreateNamedStruct
    And Or Not EqualTo EqualNullSafe LessThan LessThanOrEqual GreaterThan GreaterThanOrEqual In InSet Between
    IsNull IsNotNull IsNaN Coalesce NaNvl If CaseWhen Nvl Nvl2 NullIf NullIfResult NullIfZero ZeroIfNull Greatest Least
    BitwiseAnd BitwiseOr BitwiseXor BitwiseNot
    Lower Upper Length OctetLength BitLength StringTrim StringTrimLeft StringTrimRight StringTrimBoth Substring Left
    Right StartsWith EndsWith Contains StringReplace StringInstr StringTranslate InitCap Concat ConcatWs Reverse Hex
    Md5 Sha1 Sha2 Crc32 XxHash64 Murmur3Hash
    Year Quarter Month DayOfMonth DayOfWeek DayOfYear WeekOfYear Hour Minute Second DateDiff
    UnixMicros UnixMillis UnixSeconds UnixDate Extract
    Size ArrayContains TryAdd TrySubtract TryMultiply TryDivide TryMod
    With CommonExpressionDef CommonExpressionRef PythonUDF
    """.split()
)
# Safe if their second argument is a constant: a bad pattern fails for all rows, not for one.
_PATTERNS = frozenset({"Like", "ILike", "RLike"})
_DIVISIONS = frozenset({"Remainder", "Pmod", "Divide"})
_ARITHMETIC = frozenset({"Add", "Subtract", "Multiply", "Divide", "Remainder", "Pmod", "IntegralDivide", "UnaryMinus"})
_FLOATING = frozenset({"float", "double"})
# Casts that Spark does not list as safe but are, and those that it does but overflow at the ends of time.
_SAFE_CASTS = frozenset({("string", "binary"), ("timestamp", "date"), ("timestamp_ntz", "date")})
_DAYS_AND_MOMENTS = frozenset({"date", "timestamp", "timestamp_ntz"})


@dataclass(frozen=True, slots=True)
class Judged:
    """An expression over the columns `reads`, and whether it can fail on a row."""

    text: str
    reads: tuple[str, ...]
    can_fail: bool


def judge(rows: DataFrame, texts: Sequence[str]) -> list[Judged]:
    """Let Spark analyse the expressions over the rows' columns, and see which ones can fail."""
    if not texts:
        return []
    analysed = rows.selectExpr(*(f"{text} AS e{n}" for n, text in enumerate(texts)))._jdf.queryExecution().analyzed()
    trees = analysed.projectList()
    can_cast = spark_class(rows.sparkSession, "catalyst.expressions.Cast").canUpCast
    columns = frozenset(rows.columns)
    judges = [_Judge(can_cast, columns) for _ in texts]
    return [judges[n].judge(text, trees.apply(n)) for n, text in enumerate(texts)]


def try_value(spark: SparkSession, expression: Judged) -> Column:
    """The expression's value as a struct with the field VALUE, or null on rows where it fails.

    Spark moves an expression that occurs twice out of its context, hence also out of a TryEval, but not out of a branch
    of a CASE. So it stands in a branch that is always taken, for a reason that Spark's optimizer cannot see.
    """
    column = F.expr(quote(expression.reads[0]))
    always = F.bit_count(_try(spark, column).isNull()) >= 0
    return _try(spark, F.when(always, F.struct(F.expr(expression.text).alias(VALUE))))


class _Judge:
    """One walk over an analysed tree. Every question to a node is a call into the JVM, so none is asked twice."""

    def __init__(self, can_cast: Any, columns: frozenset[str]) -> None:
        self._can_cast = can_cast
        self._columns = columns
        self._reads: dict[str, None] = {}
        self._unsafe = False

    def judge(self, text: str, tree: Any) -> Judged:
        self._visit(tree)
        of_the_row = bool(self._reads) and self._columns.issuperset(self._reads)
        return Judged(text, tuple(self._reads), self._unsafe and of_the_row)

    def _visit(self, node: Any) -> None:
        kind = str(node.getClass().getSimpleName())
        if kind == "AttributeReference":
            self._reads[node.name()] = None
            return
        if kind == "Literal" or node.foldable():
            return
        if not self._unsafe and not self._is_safe(kind, node):
            self._unsafe = True
        children = node.children()
        for n in range(children.size()):
            self._visit(children.apply(n))

    def _is_safe(self, kind: str, node: Any) -> bool:
        if kind in _SAFE:
            return True
        if kind == "Cast":
            return self._is_safe_cast(node)
        if kind in _PATTERNS:
            return bool(node.right().foldable())
        if kind not in _ARITHMETIC:
            return False
        if kind != "UnaryMinus" and node.evalMode().toString() == "TRY":
            return True
        floating = node.dataType().simpleString() in _FLOATING
        if kind in _DIVISIONS:
            return _is_nonzero(node.right()) and (floating or kind != "Divide")
        return floating

    def _is_safe_cast(self, node: Any) -> bool:
        source, target = node.child().dataType(), node.dataType()
        if source.equals(target) or node.evalMode().toString() == "TRY":
            return True
        names = (source.simpleString(), target.simpleString())
        return names in _SAFE_CASTS or (self._can_cast(source, target) and not _DAYS_AND_MOMENTS.issuperset(names))


def _is_nonzero(divisor: Any) -> bool:
    value = divisor.eval(None) if divisor.foldable() else None
    return isinstance(value, int | float) and value != 0


def _try(spark: SparkSession, column: Column) -> Column:
    convert = spark_class(spark, "classic.ExpressionUtils")
    tree = spark_class(spark, "catalyst.expressions.TryEval")(convert.expression(column._jc))
    return Column(convert.column(tree))
