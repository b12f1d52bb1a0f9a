"""What users do with the answer of a batch before they take it: every way has to leave the engine alone.

Each is a function of a DataFrame of any columns.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def _number(results: DataFrame) -> DataFrame:
    """A number for each row, by its content."""
    return results.select(F.hash(*(F.col(f"`{name}`") for name in results.columns)).alias("n"))


def _few(session: SparkSession) -> DataFrame:
    return session.range(5).selectExpr("CAST(id AS INT) AS n")


RESHAPED: dict[str, Callable[[DataFrame], object]] = {
    "coalesced": lambda d: d.coalesce(1).collect(),
    "not read": lambda d: None,
    "read in part": lambda d: d.limit(1).collect(),
    "told empty": lambda d: d.isEmpty(),
    "after another": lambda d: (
        d.sparkSession.range(5).selectExpr("CAST(id AS INT) AS n").union(_number(d)).coalesce(2).collect()
    ),
    "sorted": lambda d: _number(d).sort("n").collect(),
    "joined with itself": lambda d: _number(d).alias("x").join(_number(d).alias("y"), F.expr("x.n = y.n")).count(),
    "crossed with itself": lambda d: d.crossJoin(_number(d)).count(),
    "read twice": lambda d: (d.count(), d.repartition(7).count()),
    "half of it": lambda d: next(_number(d).where("n % 2 = 0").toLocalIterator(), None),
    "never true": lambda d: d.where("false").collect(),
    "cached": lambda d: (d.cache().count(), d.coalesce(1).count(), d.unpersist()),
}
