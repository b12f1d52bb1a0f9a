"""The benchmarks' queries in the words of each engine, with the same output columns.

`multiway` is an m-way join on `k`, `chain` joins four streams on three keys, unbounded. `groupby` answers every row of
a stream with aggregates of the rows of its key in the window before it.

All streams have the same window w, so "every ts >= max ts - w" says the same as "any two times differ by at
most w", and that is what Spark's binary joins are given. Spark expires join state only through a condition
between two watermarked columns, and refuses a join input that has more than one of them. Each join
therefore compares the new stream's event time with the first stream's, which is carried along, and the
other streams' times as plain numbers. The bound on the first stream's time is what lets Spark forget; the
numbers make the answer exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

CHAINED = "A.k = B.k AND B.j = C.j AND C.k = D.k"


def chain_query() -> str:
    """The chain as CQL, for Anabranch."""
    return f"SELECT A.v AS a_v, B.v AS b_v, C.v AS c_v, D.v AS d_v FROM A, B, C, D WHERE {CHAINED}"


def chain_of_joins(streams: Mapping[str, DataFrame]) -> DataFrame:
    """The chain as Spark's stream-stream inner joins, one after the other."""
    a, b, c, d = (
        streams[name].select(*(F.col(column).alias(f"{name.lower()}_{column}") for column in ("k", "j", "v")))
        for name in "ABCD"
    )
    joined = a.join(b, F.col("a_k") == F.col("b_k")).select("a_v", "b_v", "b_j")
    joined = joined.join(c, F.col("b_j") == F.col("c_j")).select("a_v", "b_v", "c_v", "c_k")
    return joined.join(d, F.col("c_k") == F.col("d_k")).select("a_v", "b_v", "c_v", "d_v")


def groupby_query(window: int) -> str:
    """The aggregates as CQL, for Anabranch."""
    return f"SELECT k, count(*) AS n, sum(v) AS total, avg(v) AS mean FROM A [RANGE {window} SECONDS] GROUP BY k"


def built_in_windows(stream: DataFrame, window: int) -> DataFrame:
    """The nearest thing that Spark has built in: windows that slide by a tenth of their length.

    Its answer is another: a row per key and window, not per row, and only when the window has passed.
    """
    timed = stream.withColumn("at", F.timestamp_millis(F.col("ts"))).withWatermark("at", "0 seconds")
    slide = f"{window * 100} milliseconds"
    grouped = timed.groupBy(F.window("at", f"{window} seconds", slide), "k")
    return grouped.agg(F.count("*").alias("n"), F.sum("v").alias("total"), F.avg("v").alias("mean")).drop("window")


def continuous_query(streams: Sequence[str], window: int | None) -> str:
    """The query as CQL, for Anabranch."""
    first = streams[0]
    brackets = "" if window is None else f" [RANGE {window} SECONDS]"
    outputs = [f"{first}.k", *(f"{stream}.v AS {stream.lower()}_v" for stream in streams)]
    equalities = [f"{left}.k = {right}.k" for left, right in pairwise(streams)]
    sources = ", ".join(stream + brackets for stream in streams)
    return f"SELECT {', '.join(outputs)} FROM {sources} WHERE {' AND '.join(equalities)}"


def other_query(streams: Sequence[str], *, apart: bool) -> str:
    """Another query over the same join, with other names in another order. With `apart` it cannot share the join."""
    names = {stream: f"other_{stream.lower()}" for stream in reversed(streams)}
    sources = ", ".join(f"{stream} AS {name}" for stream, name in names.items())
    equalities = [f"{left}.k = {right}.k" for left, right in pairwise(names.values())]
    conditions = [f"{name}.v IS NOT NULL" for name in names.values()] if apart else []
    outputs = [f"{name}.v AS {stream.lower()}_v" for stream, name in names.items()]
    return f"SELECT {', '.join(outputs)} FROM {sources} WHERE {' AND '.join([*equalities, *conditions])}"


def stream_stream_join(streams: Mapping[str, DataFrame], window: int | None, lateness: int) -> DataFrame:
    """The query as a chain of Spark's stream-stream inner joins."""
    names = list(streams)
    joined = _unbounded(streams, names) if window is None else _windowed(streams, names, window, lateness)
    return joined.select("k", *(f"{name.lower()}_v" for name in names))


def _unbounded(streams: Mapping[str, DataFrame], names: list[str]) -> DataFrame:
    joined = streams[names[0]].select("k", F.col("v").alias(f"{names[0].lower()}_v"))
    for name in names[1:]:
        right = streams[name].select(F.col("k").alias("right_k"), F.col("v").alias(f"{name.lower()}_v"))
        joined = joined.join(right, F.col("k") == F.col("right_k")).drop("right_k")
    return joined


def _windowed(streams: Mapping[str, DataFrame], names: list[str], window: int, lateness: int) -> DataFrame:
    def watermarked(name: str, key: str, event_time: str) -> DataFrame:
        columns = streams[name].select(
            F.col("k").alias(key),
            F.timestamp_millis(F.col("ts")).alias(event_time),
            F.col("ts").alias(f"{name}_ts"),
            F.col("v").alias(f"{name.lower()}_v"),
        )
        return columns.withWatermark(event_time, f"{lateness} seconds")

    joined = watermarked(names[0], "k", "event_time")
    interval = F.expr(f"INTERVAL {window} SECONDS")
    for number, name in enumerate(names[1:], start=1):
        right = watermarked(name, "right_k", "right_time")
        condition = (F.col("k") == F.col("right_k")) & F.col("right_time").between(
            F.col("event_time") - interval, F.col("event_time") + interval
        )
        for other in names[1:number]:
            distance = F.abs(F.col(f"{name}_ts") - F.col(f"{other}_ts"))
            condition = condition & (distance <= window * 1000)
        joined = joined.join(right, condition).drop("right_k", "right_time")
    return joined
