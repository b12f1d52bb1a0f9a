"""Expressions that fail on a row: below the join the row is bad, above it the run stops; either way they are named."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

import anabranch as ab
from anabranch.errors import BadRowError
from anabranch.runtime.exchange.pack import pack
from anabranch.runtime.rows.derived import Sources
from anabranch.runtime.rows.fallible import VALUE, judge, try_value
from tests.oracle.feed import Feed, run_to_end, written
from tests.oracle.profiles import examples
from tests.oracle.steps import Kind, Steps

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.string()), ("d", pa.int32()), ("at", pa.int64())])
QUERY = """SELECT A.v, A.d, B.d AS bd FROM A [RANGE 10 SECONDS], B
           WHERE CAST(A.k AS INT) = CAST(B.k AS INT) AND CAST(A.v AS INT) > 0 AND 10 / A.d > 1 AND A.d < 9"""

SAFE = """
    a; a + x; a = 1 AND (b < 2 OR NOT c) AND s IS NULL; s = 'x'; s LIKE 'a%'; s IN ('a', 'b'); t > DATE'2024-01-01'; -x
    a BETWEEN 1 AND 5; b = a; a % 10 = 3; x / 2 > 1.5; coalesce(a, 1) = 1; CASE WHEN a = 1 THEN s ELSE 'x' END; r.f = 1
    try_cast(s AS INT) = 1; try_divide(a, b) > 1; try_add(a, a) = 2; CAST(a AS BIGINT); CAST(a AS STRING) = s
    lower(trim(s)) = 'x'; CAST(a AS DOUBLE) = x; year(t) = 2024; if(c, a, b) = 1; x = 1; a = 1.5; nullif(a, 1) = 2
    md5(s) = s || 'x'; s ILIKE 'a%'; day = DATE'2024-01-01'
"""
ABLE_TO_FAIL = """
    CAST(s AS INT); a + 1; a * b; a / b; b % a; CAST(b AS INT); e + e; CAST(e AS DECIMAL(1, 0)); s = 1; -a; abs(a)
    m['x']; l[0]; element_at(l, 1); to_date(s, 'yyyy'); raise_error(s); s LIKE s; CAST(day AS TIMESTAMP) = t; 1 / x
"""


def listed(text: str) -> list[str]:
    return [part.strip() for line in text.strip().splitlines() for part in line.split(";")]


@pytest.fixture
def columns(spark: SparkSession) -> DataFrame:
    """Ordinary values, the ends of their ranges, and nulls."""
    return spark.sql(
        """SELECT a, b, a > 0 c, x, s, t, CAST(t AS DATE) day, CAST(b AS DECIMAL(19, 0)) e, named_struct('f', a) r,
                  map('x', a) m, array(a) l
           FROM VALUES (1, 2L, 1.5D, 'x', TIMESTAMP'2024-01-01 00:00:00'), (0, 0L, double('NaN'), '', NULL),
                (2147483647, 9223372036854775807L, 1.7e308D, '%_\\\\', TIMESTAMP'9999-12-31 23:59:59'),
                (-2147483648, -9223372036854775807L, double('-inf'), '\\u0000', timestamp_micros(9223372036854775807L)),
                (NULL, NULL, NULL, NULL, timestamp_micros(-9223372036854775807L)) AS v(a, b, x, s, t)"""
    ).localCheckpoint()  # a relation, so that nothing of it is constant


def test_only_expressions_that_spark_cannot_fail_on_are_evaluated_without_an_attempt(columns: DataFrame) -> None:
    assert [one.text for one in judge(columns, listed(SAFE)) if one.can_fail] == []
    columns.selectExpr(*(f"{text} AS c{n}" for n, text in enumerate(listed(SAFE)))).write.format("noop").mode(
        "overwrite"
    ).save()
    assert [one.text for one in judge(columns, listed(ABLE_TO_FAIL)) if not one.can_fail] == []
    assert judge(columns, ["a + b > a", "s = 'x'"])[0].reads == ("a", "b")


def test_python_functions_are_left_where_spark_evaluates_them(spark: SparkSession, columns: DataFrame) -> None:
    spark.udf.register("half", lambda n: n / 2, "double")
    plain, mixed = judge(columns, ["half(a) > 1", "half(a + 1) > 1"])
    assert not plain.can_fail
    assert mixed.can_fail
    attempted = columns.where("a < 9").select(try_value(spark, mixed)[VALUE])
    assert sorted(attempted.collect(), key=repr) == [(False,), (False,), (False,)]


@pytest.mark.parametrize("mode", ["whole stage", "codegen", "interpreted"])
def test_an_attempt_tells_failure_from_null_also_where_its_parts_occur_elsewhere(
    spark: SparkSession, mode: str
) -> None:
    """Spark computes common parts once, ahead of the expressions that they are taken from."""
    rows = spark.createDataFrame([("1", 2), ("x", 1), (None, 1), ("3", 0)], "v string, d int").repartition(1)
    texts = ["CAST(v AS INT) + CAST(v AS INT)", "CAST(v AS INT) > 0 AND CAST(v AS INT) < 9", "CAST(v AS INT) / d"]
    conf = {
        "whole stage": {},
        "codegen": {"spark.sql.codegen.wholeStage": "false"},
        "interpreted": {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"},
    }[mode]
    for name, value in conf.items():
        spark.conf.set(name, value)
    try:
        tried = [try_value(spark, one) for one in judge(rows, texts)]
        values = [one[VALUE].alias(f"v{n}") for n, one in enumerate(tried)]
        failed = [one.isNull().alias(f"f{n}") for n, one in enumerate(tried)]
        found = rows.where(tried[1].isNull() | tried[1][VALUE] | rows.v.isNull()).select(*values, *failed).collect()
    finally:
        for name in conf:
            spark.conf.unset(name)
    assert sorted(found, key=repr) == [
        (2, True, 0.5, False, False, False),
        (6, True, None, False, False, True),
        (None, None, None, False, False, False),
        (None, None, None, True, True, True),
    ]


def test_conditions_that_cannot_fail_are_pushed_down_to_the_source_as_ever(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "feed", SCHEMA)
    feed.add(k=["1"], v=["1"], d=[1], at=[1])
    engine = ab.Engine(spark, tmp_path / "checkpoint", processors=1)
    engine.register("A", feed.stream(spark))
    engine.register("B", feed.stream(spark))
    query = engine.sql("SELECT A.v FROM A, B WHERE A.k = B.k AND A.d > 3 AND B.v IS NOT NULL AND CAST(B.v AS INT) > 1")
    batch = spark.read.parquet(str(feed.directory))
    plan = pack(query._plan.packing, Sources({"A": batch, "B": batch}))._jdf.queryExecution().executedPlan().toString()
    scans = [line for line in plan.splitlines() if "FileScan" in line]
    assert "GreaterThan(d,3)" in scans[0]
    assert "tryeval" not in "".join(itertools.takewhile(lambda line: "FileScan" not in line, plan.splitlines()))
    assert "IsNotNull(v)" in scans[1]
    assert not engine.sql("SELECT A.v FROM A, B WHERE A.k = B.k AND A.d > 3")._plan.packing.can_reject


# ------------------------------------------------------------------------------------------ bad rows

FAILS = object()
Row = dict[str, object]


def integer(text: object) -> object:
    """CAST AS INT of the texts used here."""
    return None if text is None else FAILS if text == "x" else int(str(text))


def check(value: object, holds: Callable[[int], bool]) -> object:
    return value if value is None or value is FAILS else holds(int(str(value)))


def verdict(row: Row, *, conditions: bool, timed: bool) -> str:
    """What becomes of a row, by docs/semantics.md: dropped, bad or good."""
    checks: list[object] = [row["k"] is not None]
    if conditions:
        quotient = None if row["d"] is None else FAILS if row["d"] == 0 else 10 / int(str(row["d"])) > 1
        checks += [check(integer(row["v"]), lambda n: n > 0), quotient, check(row["d"], lambda n: n < 9)]
    if any(one is None or one is False for one in checks):
        return "dropped"
    return "bad" if FAILS in (*checks, integer(row["k"])) or (timed and row["at"] is None) else "good"


rows = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["1", "1", "2", "x", None]),
        "v": st.sampled_from(["1", "3", "-1", "x", None]),
        "d": st.sampled_from([1, 4, 0, 20, None]),
        "at": st.sampled_from([1000, 5000, None]),
    }
)


@examples(6)
@given(batches=st.lists(st.tuples(st.lists(rows, max_size=6), st.lists(rows, max_size=6)), min_size=1, max_size=2))
def test_rows_on_which_a_condition_or_key_fails_go_to_quarantine_and_counts_reconcile(
    spark: SparkSession, batches: list[tuple[list[Row], list[Row]]]
) -> None:
    with TemporaryDirectory() as place:
        kinds = {"A": Kind(SCHEMA, "at"), "B": Kind(SCHEMA)}
        settings = {"quarantine": Path(place) / "aside"}
        with Steps(spark, Path(place) / "checkpoint", QUERY, kinds, settings=settings) as steps:
            for a, b in batches:
                steps.feed({"A": pa.Table.from_pylist(a, SCHEMA), "B": pa.Table.from_pylist(b, SCHEMA)})
            found = Counter(zip(*(column.to_pylist() for column in steps.answer.columns), strict=True))
            totals, kept = steps.results[-1].totals, steps.active_rows
        paths = (Path(place) / "aside").glob("*.jsonl")
        aside = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    all_a, all_b = ([row for batch in batches for row in batch[side]] for side in (0, 1))
    fates_a = [verdict(row, conditions=True, timed=True) for row in all_a]
    fates_b = [verdict(row, conditions=False, timed=False) for row in all_b]
    good_a = [row for row, fate in zip(all_a, fates_a, strict=True) if fate == "good"]
    good_b = [row for row, fate in zip(all_b, fates_b, strict=True) if fate == "good"]
    assert found == Counter((a["v"], a["d"], b["d"]) for a in good_a for b in good_b if a["k"] == b["k"])
    assert totals["rejected"] == [fates_a.count("bad"), fates_b.count("bad")]
    assert totals["received"] == [len(good_a) + fates_a.count("bad"), len(good_b) + fates_b.count("bad")]
    assert kept == len(good_a) + len(good_b)
    assert Counter(note["stream"] for note in aside) == Counter(
        {"A": fates_a.count("bad"), "B": fates_b.count("bad")} if "bad" in fates_a + fates_b else {}
    )


def test_the_run_stops_with_stream_column_expression_and_row_or_goes_on_with_a_quarantine(
    spark: SparkSession, tmp_path: Path
) -> None:
    a, b = Feed(tmp_path / "A", SCHEMA), Feed(tmp_path / "B", SCHEMA)
    a.add(k=["1", "1", "x"], v=["5", "abc", "6"], d=[1, 2, 3], at=[1, 2, 3])
    b.add(k=["1"], v=[None], d=[7], at=[None])

    def query(**settings: object) -> ab.Query:
        engine = ab.Engine(spark, tmp_path / "checkpoint", processors=1, **settings)
        engine.register("A", a.stream(spark))
        engine.register("B", b.stream(spark))
        return engine.sql("SELECT A.v FROM A, B WHERE CAST(A.k AS INT) = CAST(B.k AS INT) AND CAST(A.v AS INT) > 0")

    with pytest.raises(BadRowError) as caught:
        run_to_end(query(), tmp_path / "out")
    assert "stream A, column " in str(caught.value)
    assert "cannot be evaluated; for example k=" in str(caught.value)
    assert "quarantine=PATH" in str(caught.value)
    run = run_to_end(query(quarantine=tmp_path / "aside"), tmp_path / "out")
    assert written(tmp_path / "out").to_pylist() == [{"v": "5"}]
    (path,) = (tmp_path / "aside").iterdir()
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {
            "stream": "A",
            "column": "k",
            "problem": "the key CAST(`k` AS INT) cannot be evaluated",
            "row": "k=x, v=6, d=3, at=3",
        },
        {
            "stream": "A",
            "column": "v",
            "problem": "the condition CAST(`v` AS INT) > 0 cannot be evaluated",
            "row": "k=1, v=abc, d=2, at=2",
        },
    ]
    assert run.recentProgress[-1]["anabranch"]["receivedRows"] == {"A": 3, "B": 1}
    assert run.recentProgress[-1]["anabranch"]["quarantinedRows"] == {"A": 2, "B": 0}


def test_a_bad_row_may_have_columns_of_any_type(spark: SparkSession, tmp_path: Path) -> None:
    shape = "st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')"
    odd = ["make_interval(1)", "make_ym_interval(1)", "parse_json('[1]')", shape, f"array({shape})", "X'00'", "map()"]
    select = ("*", "NULL AS c", *(f"{expression} AS c{n}" for n, expression in enumerate(odd)))
    kinds = {"A": Kind(SCHEMA, select=select), "B": Kind(SCHEMA)}
    text = "SELECT A.d FROM A, B WHERE A.k = B.k AND CAST(A.v AS INT) > 0"
    bad = pa.table({"k": ["1"], "v": ["x"], "d": [1], "at": [1]}, schema=SCHEMA)
    with Steps(spark, tmp_path / "checkpoint", text, kinds, settings={"quarantine": tmp_path / "aside"}) as steps:
        steps.feed({"A": bad})
    (path,) = (tmp_path / "aside").iterdir()
    assert json.loads(path.read_text())["row"] == (
        "k=1, v=x, d=1, at=1, c=null, c0=1 years, c1=INTERVAL '1-0' YEAR TO MONTH, c2=[1], "
        "c3=0101000000000000000000F03F0000000000000040, c4=(array<geometry(0)>), c5=00, c6={}"
    )


# ------------------------------------------------------------------------ above the join, and in the source


@pytest.mark.parametrize(
    ("select", "where", "named"),
    [
        ("A.d / B.d AS share", "", "the column share, `A.d` / `B.d`, fails on a joined row: [DIVIDE_BY_ZERO]"),
        ("A.d", " AND CAST(concat(A.v, B.v) AS INT) > 0", "the condition CAST(concat(`A.v`, `B.v`) AS INT) > 0 fails"),
        ("A.d, to_date(B.v, 'yyyy') AS day", "", "the column day, to_date(`B.v`, 'yyyy'), fails"),
    ],
)
def test_an_expression_that_fails_on_a_joined_row_is_named_with_the_row(
    spark: SparkSession, tmp_path: Path, select: str, where: str, named: str
) -> None:
    kinds = {name: Kind(SCHEMA) for name in "AB"}
    a = pa.table({"k": ["1", "2"], "v": ["1", "2024"], "d": [1, 1], "at": [0, 0]}, schema=SCHEMA)
    b = pa.table({"k": ["1", "2"], "v": ["bad", "2024"], "d": [0, 1], "at": [0, 0]}, schema=SCHEMA)
    text = f"SELECT {select} FROM A, B WHERE A.k = B.k{where}"
    with Steps(spark, tmp_path / "checkpoint", text, kinds) as steps:
        with pytest.raises(Exception, match="SQLSTATE: 22"):
            steps.feed({"A": a, "B": b})
        told = steps.runner.failure
    assert isinstance(told, BadRowError)
    assert named in str(told)
    assert "SQLSTATE: 22" in str(told)
    assert "B.v=bad" in str(told) or "A.d=1, B.d=0" in str(told)
    assert "cannot be put into quarantine" in str(told)


def test_the_users_own_failing_function_is_not_taken_for_one_of_the_query(spark: SparkSession, tmp_path: Path) -> None:
    def sink(results: DataFrame, _: int) -> None:
        results.selectExpr("1 / (d - d)").collect()

    kinds = {name: Kind(SCHEMA) for name in "AB"}
    one = pa.table({"k": ["1"], "v": ["1"], "d": [1], "at": [0]}, schema=SCHEMA)
    text = "SELECT A.d, A.d / B.d AS e FROM A, B WHERE A.k = B.k"
    with Steps(spark, tmp_path / "checkpoint", text, kinds, sink=sink) as steps:
        with pytest.raises(Exception, match="DIVIDE_BY_ZERO") as caught:
            steps.feed({"A": one, "B": one})
        assert steps.runner.failure is caught.value


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.json", '{"k": 1}\n{"k": "x"}\n', "field name 'k' and the value x"),
        ("a.csv", "1\nx\n", 'For input string: "x"'),
    ],
)
def test_a_record_that_a_source_refuses_is_told_with_file_and_cause(
    spark: SparkSession, tmp_path: Path, name: str, content: str, told: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_text(content)
    engine = ab.Engine(spark, tmp_path / "checkpoint", processors=1)
    for stream in "AB":
        reader = spark.readStream.schema("k INT").option("mode", "FAILFAST").format(name.split(".")[1])
        engine.register(stream, reader.load(str(tmp_path / "in")))
    with pytest.raises(BadRowError) as caught:
        run_to_end(engine.sql("SELECT A.k FROM A, B WHERE A.k = B.k"), tmp_path / "out")
    assert f"in/{name}" in str(caught.value)
    assert "Malformed records are detected" in str(caught.value)
    assert told in str(caught.value)
    assert "columnNameOfCorruptRecord" in str(caught.value)


def test_malformed_records_can_be_quarantined(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"k": 1}\n{"k": "x"}\n{"k": \n{"k": null}\n')
    engine = ab.Engine(spark, tmp_path / "checkpoint", processors=2, quarantine=tmp_path / "aside")
    for stream in "AB":
        engine.register(stream, spark.readStream.schema("k INT, _corrupt_record STRING").json(str(tmp_path / "in")))
    key = "if(A._corrupt_record IS NULL, A.k, raise_error('malformed'))"
    run = run_to_end(engine.sql(f"SELECT B.k FROM A, B WHERE {key} = B.k"), tmp_path / "out")
    assert written(tmp_path / "out").to_pylist() == [{"k": 1}]
    assert run.recentProgress[-1]["anabranch"]["quarantinedRows"] == {"A": 2, "B": 0}
    paths = (tmp_path / "aside").iterdir()
    notes = sorted(json.loads(line)["row"] for path in paths for line in path.read_text().splitlines())
    assert notes == ['k=null, _corrupt_record={"k": ', 'k=null, _corrupt_record={"k": "x"}']
