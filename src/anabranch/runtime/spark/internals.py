"""What of Spark SQL has no name in PySpark, or only a slow one, by way of the JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.util import PythonEvalType

ArrowFunction = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

EXCHANGE = "Exchange"

# What PySpark asks the JVM for by name whenever it makes a column, a `select` or a function in Python. A short name is
# sought in several packages, each time in all of Spark's jars.
ASKED_BY_PYSPARK = (
    "PythonUtils",
    "PythonSQLUtils",
    "SimplePythonFunction",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.execution.python.UserDefinedPythonFunction",
    "org.apache.spark.sql.functions",
)


def remember_classes(spark: SparkSession) -> None:
    """Let PySpark find the classes that it asks for again and again without a call into the JVM."""
    view: Any = spark._jvm
    for name in ASKED_BY_PYSPARK:
        if name not in vars(view):
            setattr(view, name, getattr(view, name))


def spark_class(spark: SparkSession, name: str) -> Any:
    """A class by its whole name: a name for each package would be a call into the JVM each, and a search in vain."""
    assert spark._jvm is not None, "Spark runs in this process or beside it, not behind Connect"
    return getattr(spark._jvm, f"org.apache.spark.sql.{name}")


def empty_frame(spark: SparkSession, schema: T.StructType) -> DataFrame:
    """No rows of a schema, as an RDD: an empty local relation is optimised away with all expressions over it.

    What `createDataFrame` does in the end, without the functions in Python for its rows, which take most of the time.
    """
    rows = spark.sparkContext._jsc.emptyRDD().rdd()
    return DataFrame(spark._jsparkSession.applySchemaToPythonRDD(rows, schema.json()), spark)


def map_in_arrow(
    rows: DataFrame, function: ArrowFunction, schema: T.StructType, columns: Sequence[Column]
) -> DataFrame:
    """What `mapInArrow` does. It asks the JVM for the schema of the rows, and then for one column after the other; here
    all of them are given."""
    udf = pandas_udf(function, returnType=schema, functionType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)  # type: ignore[call-overload]
    return DataFrame(rows._jdf.mapInArrow(udf(*columns)._jc, False, None), rows.sparkSession)


@contextmanager
def stays_active(spark: SparkSession) -> Iterator[None]:
    """Afterwards this is the session that Spark goes by in this thread; `createDataFrame` of others changes that."""
    try:
        yield
    finally:
        SparkSession._activeSession = spark
        spark_class(spark, "classic.SparkSession").setActiveSession(spark._jsparkSession)


def exchanged_rows(collected: DataFrame, exchanges: int) -> list[int] | None:
    """How many rows Spark wrote into the last so many exchanges of a plan that was collected, the first one first.

    Above the first of them every operator has one child. None if there are fewer: an optimised plan may have none.
    """
    node = collected._jdf.queryExecution().executedPlan()
    rows: list[int] = []
    while True:
        if node.nodeName() == EXCHANGE:
            rows.insert(0, int(node.metrics().apply("shuffleRecordsWritten").value()))
            if len(rows) == exchanges:
                return rows
        try:
            node = node.child()
        except Py4JError:
            return None
