"""Checks of a query's expressions that only Spark can make, done before anything starts.

The language refuses by name what it knows to be wrong. It knows no types, and it cannot look into functions that a user
registered. So all expressions are analysed once more as columns of an empty relation, and the plan that Spark makes of
them tells:

- a condition that is not boolean (among several conditions Spark would cast a string to one);
- a registered function that aggregates or generates rows, which no plan of one row in, one row out contains;
- a value that is not settled by its arguments: a function registered as not deterministic, the current time or a
  subquery inside a SQL function, a string like 'today' that Spark turns into a date by itself. A batch may be computed
  again after a crash, and a row that changes its key between two attempts is lost, or joins twice;
- a constant that cannot be computed, as the cast in `v < 'abc'` where v is a number: Spark folds it when it optimises.

What a deterministic function really does nobody knows; semantics.md says what is expected of it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from anabranch.errors import QueryError, UnsupportedError
from anabranch.plan.network import Network
from anabranch.plan.query import quote
from anabranch.plan.texts import is_name
from anabranch.runtime.compile.columns import Columns
from anabranch.runtime.compile.layout import Layout
from anabranch.runtime.spark.internals import empty_frame, spark_class

REPEATED = "a batch that is repeated must give the same answer"
MOVING = ("now", "today", "tomorrow", "yesterday")
_ROW_BY_ROW = ("Project", "LogicalRDD")
_OPERATORS = {"Aggregate": "an aggregate function", "Generate": "a generator", "Window": "a window function"}


def check_sources(spark: SparkSession, network: Network, frames: Mapping[str, DataFrame]) -> None:
    """Refuse sub-queries with expressions that cannot be right."""
    for entry in (each.entry for each in network.inputs):
        for source in (each for each in entry.sources if each.block is None):
            schema = frames[source.stream].schema
            for selection in source.steps:
                values = [output.expression for output in selection.outputs]
                _check(spark, schema, selection.conditions, values, f" (in {entry.alias})")
                columns = [f"{output.expression} AS {quote(output.name)}" for output in selection.outputs]
                empty = empty_frame(spark, schema)
                schema = empty.selectExpr(*columns).schema


def check_inputs(spark: SparkSession, network: Network, columns: Columns) -> None:
    """Refuse conditions on single streams, keys and what is aggregated of them, that cannot be right."""
    for operator in network.operators:
        grouping = operator.grouping
        arguments = [call.argument for call in grouping.calls if call.argument] if grouping is not None else []
        for port in operator.ports:
            if network.operator_of(port.node) is not None:
                schema = T.StructType(columns.fields(port.node))
                _check(spark, schema, port.conditions, [*port.keys, *arguments], "")
            else:
                entry = network.inputs[port.node].entry
                schema = columns.frame(entry.alias).schema
                _check(spark, schema, entry.conditions, [*entry.key, *arguments], f" (on {entry.alias})")


def check_answers(spark: SparkSession, network: Network, columns: Columns) -> None:
    """Refuse conditions on joined rows and SELECT expressions that cannot be right."""
    for branch in (branch for answer in network.answers for branch in answer.branches):
        schema = T.StructType(columns.fields(branch.node))
        _check(spark, schema, branch.conditions, [output.expression for output in branch.outputs], "")


def check_lanes(spark: SparkSession, layout: Layout) -> None:
    """Refuse expressions over joined rows between two rounds that cannot be right."""
    for exchange in layout.exchanges:
        for lane in exchange.lanes:
            schema = T.StructType([T.StructField(column.name, column.type) for column in lane.columns])
            _check(spark, schema, lane.conditions, [*lane.hashed, *(text for _, text in lane.computed)], "")


@contextmanager
def unlogged() -> Iterator[None]:
    """Inside, PySpark does not print a page of JSON for an error of analysis that is raised anyway."""
    loggers = [PySparkLogger.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _check(
    spark: SparkSession, schema: T.StructType, conditions: Sequence[str], values: Sequence[str], where: str
) -> None:
    texts = [*conditions, *(value for value in values if not is_name(value))]
    if not texts:
        return
    empty = empty_frame(spark, schema)
    columns = empty.selectExpr(*(f"{text} AS c{number}" for number, text in enumerate(texts)))
    execution = columns._jdf.queryExecution()
    _check_operators(execution.analyzed(), texts, where)
    for text, field in zip(conditions, columns.schema, strict=False):
        if not isinstance(field.dataType, T.BooleanType):
            raise QueryError(f"the condition {text}{where} is {field.dataType.simpleString()}, not boolean; compare it")
    _check_settled(spark, execution.analyzed(), texts, where)
    execution.optimizedPlan()


def _check_operators(plan: Any, texts: Sequence[str], where: str) -> None:
    node = plan
    while True:
        kind = node.getClass().getSimpleName()
        if kind not in _ROW_BY_ROW:
            construct = _OPERATORS.get(kind, f"what Spark calls {kind}")
            hint = "a joined row gives one row of the answer"
            raise UnsupportedError(f"{construct} in {_any_of(texts)}{where} is not supported: {hint}")
        if node.children().isEmpty():
            return
        node = node.children().head()


def _check_settled(spark: SparkSession, plan: Any, texts: Sequence[str], where: str) -> None:
    if not plan.deterministic():
        columns = plan.expressions()
        culprits = [text for n, text in enumerate(texts) if not columns.apply(n).deterministic()]
        raise _unsettled(culprits or texts, where, "it calls a function that is registered as not deterministic")
    patterns = spark_class(spark, "catalyst.trees.TreePattern")
    if plan.containsPattern(patterns.CURRENT_LIKE()):
        raise _unsettled(texts, where, "it asks for the current time, date or user")
    if plan.containsPattern(patterns.PLAN_EXPRESSION()):
        raise _unsettled(texts, where, "a function in it contains a subquery")
    if not spark_class(spark, "catalyst.optimizer.SpecialDatetimeValues").apply(plan).fastEquals(plan):
        culprits = [text for text in texts if any(word in text.lower() for word in MOVING)]
        # 'epoch' is special, too, but stands still.
        if culprits or not any("epoch" in text.lower() for text in texts):
            raise _unsettled(
                culprits or texts, where, "Spark turns a string in it into a moving moment such as 'today'"
            )


def _unsettled(texts: Sequence[str], where: str, why: str) -> UnsupportedError:
    return UnsupportedError(f"{_any_of(texts)}{where} is not supported: {why}, and {REPEATED}")


def _any_of(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"one of {', '.join(texts)}"
