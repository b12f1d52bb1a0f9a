"""Selecting and routing rows in Spark, with texts that are parsed once and analysed for many batches at once.

PySpark's `where`, `select` and `repartitionById` parse their texts and let Spark analyse the whole plan, each of them,
in every batch. A `Selection` is made once for all batches of a plan. It puts its steps on top of a batch's rows, and
Spark analyses them together. All batches of a streaming query have the same columns, with the same ids: then not even
that is to be done, since the expressions of the batch before still hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from anabranch.runtime.spark.internals import spark_class


@dataclass(frozen=True, slots=True)
class Where:
    """Keep the rows that meet a condition."""

    condition: str


@dataclass(frozen=True, slots=True)
class Select:
    """Make columns, each of an expression with a name."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Partition:
    """Exchange rows: each goes to the partition whose number is an expression's value, of as many as there are."""

    number: str
    partitions: int


SelectionStep = Where | Select | Partition

_LOGICAL = "catalyst.plans.logical"


class Selection:
    """What some steps make of rows, one step after the other."""

    def __init__(self, *steps: SelectionStep) -> None:
        """Nothing is parsed before the first data frame."""
        self._steps = steps
        self._nodes: list[_Node] = []
        self._parsed: list[Any] = []
        self._of_rows: Any = None
        self._columns = ""  # of the last data frame, with the ids that Spark has given them
        self._resolved: list[Any] | None = None  # the expressions as Spark has analysed them over these columns

    def __call__(self, rows: DataFrame) -> DataFrame:
        """Apply the steps to a data frame."""
        session, plan = rows.sparkSession, rows._jdf.logicalPlan()
        if not self._nodes:
            self._nodes = [_node(step, session) for step in self._steps]
            self._parsed = [_parsed(step, session) for step in self._steps]
            self._of_rows = spark_class(session, "classic.Dataset").ofRows
        columns = plan.output().toString()
        if columns != self._columns:
            self._resolved = None
        selected = self._applied(plan, session, self._resolved or self._parsed)
        if columns == self._columns and self._resolved is None:
            self._resolved = self._analysed(selected, plan)
        self._columns = columns
        return selected

    def _applied(self, plan: Any, session: SparkSession, expressions: Sequence[Any]) -> DataFrame:
        for node, own in zip(self._nodes, expressions, strict=True):
            plan = node(own, plan)
        return DataFrame(self._of_rows(session._jsparkSession, plan), session)

    def _analysed(self, selected: DataFrame, plan: Any) -> list[Any]:
        """The expressions of the steps after analysis; as they were parsed, if that has put other nodes on the plan."""
        node, expressions = selected._jdf.logicalPlan(), list[Any]()
        for step in reversed(self._steps):
            match step, node.nodeName():
                case Where(), "Filter":
                    expressions.insert(0, node.condition())
                case Select(), "Project":
                    expressions.insert(0, node.projectList())
                case Partition(), "RepartitionByExpression":
                    expressions.insert(0, node.partitionExpressions())
                case _:
                    return self._parsed
            node = node.child()
        return expressions if node.fastEquals(plan) else self._parsed


# Puts a node with some expressions on top of a plan.
_Node = Callable[[Any, Any], Any]


def _node(step: SelectionStep, session: SparkSession) -> _Node:
    match step:
        case Where():
            node: _Node = spark_class(session, f"{_LOGICAL}.Filter")
        case Select():
            node = spark_class(session, f"{_LOGICAL}.Project")
        case Partition():
            exchange = spark_class(session, f"{_LOGICAL}.RepartitionByExpression")
            option: Any = getattr(session._jvm, "scala.Option")
            partitions, no_advice = option.apply(step.partitions), option.empty()
            return lambda expressions, plan: exchange(expressions, plan, partitions, no_advice)
    return node


def _parsed(step: SelectionStep, session: SparkSession) -> Any:
    """The expression of a step, or several as a sequence of Scala's."""
    jvm: Any = session._jvm
    parse = session._jsparkSession.sessionState().sqlParser().parseExpression
    match step:
        case Where():
            return parse(step.condition)
        case Select():
            return jvm.PythonUtils.toSeq(list(map(parse, step.columns)))
        case Partition():
            by_number = spark_class(session, "catalyst.expressions.DirectShufflePartitionID")
            return jvm.PythonUtils.toSeq([by_number(parse(step.number))])
