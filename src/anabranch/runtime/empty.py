"""Frames without rows, to let Spark analyse expressions over their columns."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T


def empty_frame(spark: SparkSession, schema: T.StructType) -> DataFrame:
    """No rows of a schema, as an RDD: an empty local relation is optimised away with all expressions over it.

    What `createDataFrame` does in the end, without the functions in Python for its rows, which take most of the time.
    """
    rows = spark.sparkContext._jsc.emptyRDD().rdd()
    return DataFrame(spark._jsparkSession.applySchemaToPythonRDD(rows, schema.json()), spark)
