"""Sub-queries that join and group, and UNION ALL of joins, against DuckDB, whatever the batches."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.oracle.referee import assert_same_rows, query
from tests.oracle.steps import Kind, Steps

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int32()), ("ts", pa.int64())])
SPAN = 40_000  # milliseconds
JOINED = "SELECT A.k, A.v + B.v AS s FROM A [RANGE 10 SECONDS], B [RANGE 12 SECONDS] WHERE A.k = B.k AND A.v <> B.v"
COUNTED = "SELECT k, count(*) AS n, max(v) AS most FROM A [RANGE 8 SECONDS] GROUP BY k"
# What they answer, with the time t that a row has in the query around them.
CTES = """
    WITH joined AS (
        SELECT A.k, A.v + B.v AS s, greatest(A.ts, B.ts) AS t FROM A, B
        WHERE A.k = B.k AND A.v <> B.v AND A.ts >= t - 10000 AND B.ts >= t - 12000
    ),
    counted AS (
        SELECT k, count(*) OVER w AS n, max(v) OVER w AS most, ts AS t FROM A
        WINDOW w AS (PARTITION BY k ORDER BY ts RANGE BETWEEN 8000 PRECEDING AND CURRENT ROW)
    )
"""
CASES = {
    "a join of a join": (
        f"SELECT j.k, j.s, C.v FROM ({JOINED}) AS j [RANGE 5 SECONDS], C [RANGE 7 SECONDS] WHERE j.s = C.k AND j.k > 0",
        "SELECT j.k, j.s, C.v FROM joined j, C WHERE j.s = C.k AND j.k > 0 "
        "AND j.t >= greatest(j.t, C.ts) - 5000 AND C.ts >= greatest(j.t, C.ts) - 7000",
    ),
    "a join of a projected join by an expression": (
        "SELECT j.half, C.v FROM (SELECT s DIV 2 AS half, k FROM "
        f"({JOINED}) AS i WHERE s > 1) AS j [RANGE 9 SECONDS], C [RANGE 9 SECONDS] WHERE j.half + 1 = C.k",
        "SELECT s // 2, C.v FROM joined j, C WHERE s > 1 AND s // 2 + 1 = C.k AND abs(j.t - C.ts) <= 9000",
    ),
    "groups of a join": (
        f"SELECT j.s, count(*) AS n, sum(j.k) AS total FROM ({JOINED}) AS j [RANGE 6 SECONDS] "
        "WHERE j.k < 4 GROUP BY j.s",
        "SELECT s, count(*) OVER w, sum(k) OVER w FROM joined WHERE k < 4 "
        "WINDOW w AS (PARTITION BY s ORDER BY t RANGE BETWEEN 6000 PRECEDING AND CURRENT ROW)",
    ),
    "a join of groups": (
        f"SELECT g.k, g.n, g.most, B.v FROM ({COUNTED}) AS g [RANGE 4 SECONDS], B [RANGE 9 SECONDS] "
        "WHERE g.k = B.k AND g.n > 1",
        "SELECT g.k, g.n, g.most, B.v FROM counted g, B WHERE g.k = B.k AND g.n > 1 "
        "AND g.t >= greatest(g.t, B.ts) - 4000 AND B.ts >= greatest(g.t, B.ts) - 9000",
    ),
    "groups of groups": (
        f"SELECT g.n, count(*) AS times, min(g.k) AS least FROM ({COUNTED}) AS g [RANGE 5 SECONDS] GROUP BY g.n",
        "SELECT n, count(*) OVER w, min(k) OVER w FROM counted "
        "WINDOW w AS (PARTITION BY n ORDER BY t RANGE BETWEEN 5000 PRECEDING AND CURRENT ROW)",
    ),
    "groups of a join of groups": (
        f"SELECT j.n, max(j.v) AS most FROM (SELECT g.n, B.v FROM ({COUNTED}) AS g [RANGE 4 SECONDS], "
        "B [RANGE 9 SECONDS] WHERE g.k = B.k) AS j [RANGE 3 SECONDS] GROUP BY j.n",
        "SELECT n, max(v) OVER w FROM (SELECT g.n, B.v, greatest(g.t, B.ts) AS u FROM counted g, B WHERE g.k = B.k "
        "AND g.t >= greatest(g.t, B.ts) - 4000 AND B.ts >= greatest(g.t, B.ts) - 9000) "
        "WINDOW w AS (PARTITION BY n ORDER BY u RANGE BETWEEN 3000 PRECEDING AND CURRENT ROW)",
    ),
    "a join of a union of a join and a stream": (
        f"SELECT u.x, u.y, C.v FROM (SELECT k AS x, s AS y FROM ({JOINED}) AS j UNION ALL SELECT v, k FROM B) AS u "
        "[RANGE 6 SECONDS], C [RANGE 6 SECONDS] WHERE u.x = C.k",
        "SELECT x, y, C.v FROM (SELECT k AS x, s AS y, t FROM joined UNION ALL SELECT v, k, ts FROM B) u, C "
        "WHERE x = C.k AND abs(u.t - C.ts) <= 6000",
    ),
    "the same join twice": (
        f"SELECT p.s, q.s AS z FROM ({JOINED}) AS p [RANGE 2 SECONDS], ({JOINED}) AS q [RANGE 3 SECONDS] "
        "WHERE p.k = q.k",
        "SELECT p.s, q.s FROM joined p, joined q WHERE p.k = q.k "
        "AND p.t >= greatest(p.t, q.t) - 2000 AND q.t >= greatest(p.t, q.t) - 3000",
    ),
    "distinct rows of a join, joined": (
        f"SELECT d.s, C.v FROM (SELECT DISTINCT j.s FROM ({JOINED}) AS j [RANGE 5 SECONDS]) AS d, C WHERE d.s = C.k",
        "SELECT s, C.v FROM (SELECT DISTINCT s, t FROM joined j WHERE NOT EXISTS (SELECT 1 FROM joined i "
        "WHERE i.s = j.s AND i.t < j.t AND i.t >= j.t - 5000)) d, C WHERE d.s = C.k",
    ),
    "a selection of a join": (
        f"SELECT x * 2 AS twice FROM (SELECT s + k AS x, k FROM ({JOINED}) AS i WHERE s <> 3) AS j "
        "WHERE k > 1 AND x > 2",
        "SELECT (s + k) * 2 FROM joined WHERE s <> 3 AND k > 1 AND s + k > 2",
    ),
    "a union of joins": (
        f"{JOINED} UNION ALL SELECT B.v, C.k FROM B, C WHERE B.k = C.k UNION ALL SELECT k, n FROM ({COUNTED}) AS g",
        "SELECT k, s FROM joined UNION ALL SELECT B.v, C.k FROM B, C WHERE B.k = C.k "
        "UNION ALL SELECT k, n FROM counted",
    ),
    "groups of groups and rows": (
        f"SELECT u.x, count(*) AS n FROM (SELECT k AS x FROM ({COUNTED}) AS g UNION ALL SELECT k FROM B) AS u "
        "[RANGE 5 SECONDS] GROUP BY u.x",
        "SELECT x, count(*) OVER w FROM (SELECT k AS x, t FROM counted UNION ALL SELECT k, ts FROM B) "
        "WINDOW w AS (PARTITION BY x ORDER BY t RANGE BETWEEN 5000 PRECEDING AND CURRENT ROW)",
    ),
    "unbounded all the way": (
        "SELECT j.v, D.v AS w FROM (SELECT A.v, B.v AS w FROM A, B WHERE A.k = B.k) AS j, C AS D WHERE j.w = D.k",
        "SELECT A.v, C.v FROM A, B, C WHERE A.k = B.k AND B.v = C.k",
    ),
}


def rows(chance: random.Random, count: int) -> pa.Table:
    times = [chance.randrange(SPAN) for _ in range(count)]
    keys = [chance.choice([0, 1, 2, 3, 4, None]) for _ in range(count)]
    return pa.table({"k": keys, "v": [chance.randrange(5) for _ in range(count)], "ts": times}, schema=SCHEMA)


@pytest.mark.parametrize("name", CASES)
def test_sub_queries_answer_as_duckdb_does(name: str, spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(name)
    text, statement = CASES[name]
    complete = {stream: rows(chance, 60) for stream in "ABC"}
    kinds = {stream: Kind(SCHEMA, "ts", SPAN * 1000) for stream in "ABC"}
    cuts = {stream: sorted(chance.randrange(61) for _ in range(3)) for stream in "ABC"}
    answers: list[pa.Table] = []
    for first in (0, 2):  # stopped after two batches and started again
        with Steps(spark, tmp_path / "checkpoint", text, kinds, processors=3 - first // 2, answers=answers) as steps:
            for batch in (first, first + 1):
                steps.feed(
                    {
                        s: t.slice(a, b - a)
                        for s, t in complete.items()
                        for a, b in [([0, *cuts[s]][batch], [*cuts[s], 60][batch])]
                    }
                )
            if first:
                steps.end()
    assert_same_rows(pa.concat_tables(answers), query(CTES + statement, complete))


def test_names_inside_of_expressions_stay_what_they_are(spark: SparkSession, tmp_path: Path) -> None:
    """A variable of a lambda, a field and a field of a type may be called as a column of the sub-query."""
    inner = "SELECT A.k, named_struct('k', A.v, 'a b', B.v) AS s, array(A.v, B.v) AS arr FROM A, B WHERE A.k = B.k"
    asked = "transform(j.arr, `k` -> `k` + 10)[0] AS x, j.s.`k` AS y, CAST(j.s AS STRUCT<`k`: STRING, b: INT>).k AS z"
    wanted = "A.v + 10, A.v, CAST(A.v AS VARCHAR)"
    complete = {stream: rows(random.Random(stream), 20) for stream in "ABC"}
    for number, (text, statement) in enumerate(
        (
            (f"SELECT {asked} FROM ({inner}) AS j WHERE exists(j.arr, `k` -> `k` = 2)", "(A.v = 2 OR B.v = 2)"),
            (
                f"SELECT {asked}, C.v AS c FROM ({inner}) AS j, C WHERE j.k = C.k AND j.s.`k` > 1",
                "A.k = C.k AND A.v > 1",
            ),
        )
    ):
        kinds = {stream: Kind(SCHEMA) for stream in "ABC"}
        with Steps(spark, tmp_path / str(number), text, kinds) as steps:
            steps.feed(complete)
        more = ("", "") if number == 0 else (", C.v", ", C")
        expected = f"SELECT {wanted}{more[0]} FROM A, B{more[1]} WHERE A.k = B.k AND {statement}"
        assert_same_rows(steps.answer, query(expected, complete))


@pytest.mark.parametrize("name", ["groups of a join of groups", "groups of groups and rows", "a join of groups"])
def test_the_end_of_the_input_is_the_end_of_every_stream(name: str, spark: SparkSession, tmp_path: Path) -> None:
    """What is grouped below ends earlier than what is grouped with it, or has no rows at all."""
    for count in (60, 0):
        chance = random.Random(name)
        text, statement = CASES[name]
        complete = {"A": rows(chance, count), "B": rows(chance, 60), "C": rows(chance, 60)}
        later = pa.array([time + SPAN for time in complete["B"].column("ts").to_pylist()])
        complete["B"] = complete["B"].set_column(2, "ts", later)
        kinds = {stream: Kind(SCHEMA, "ts", 2 * SPAN * 1000) for stream in "ABC"}
        with Steps(spark, tmp_path / str(count), text, kinds) as steps:
            steps.feed(complete)
            steps.end()
            assert_same_rows(steps.answer, query(CTES + statement, complete))


def test_what_is_purged_below_and_above_is_not_missed(spark: SparkSession, tmp_path: Path) -> None:
    """Rows come in the order of time, with no lateness, so that all that can be forgotten is."""
    for name in ("a join of a join", "groups of a join of groups"):
        chance = random.Random(name)
        text, statement = CASES[name]
        complete = {stream: rows(chance, 120).sort_by("ts") for stream in "ABC"}
        kinds = {stream: Kind(SCHEMA, "ts", 0) for stream in "ABC"}
        with Steps(spark, tmp_path / name, text, kinds) as steps:
            for until in range(0, SPAN, 4000):
                steps.feed(
                    {
                        stream: query(f"SELECT * FROM t WHERE ts >= {until} AND ts < {until} + 4000", {"t": table})
                        for stream, table in complete.items()
                    }
                )
            kept, measured = steps.active_rows, steps.runner.status.measured()
            steps.end()
            assert_same_rows(steps.answer, query(CTES + statement, complete))
            assert measured is not None
            assert kept < (sum(measured.received) + sum(measured.produced[:-1])) / 2
