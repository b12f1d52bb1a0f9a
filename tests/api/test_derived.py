"""Sub-queries and UNION ALL in FROM as a user meets them: types, bad rows, plans and checkpoints."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.errors import BadRowError, QueryError, ResumeMismatchError, UnsupportedError
from anabranch.observe.inspection import Inspection
from tests.oracle.feed import Feed, run_to_end, written
from tests.oracle.referee import assert_same_rows, query

pytestmark = pytest.mark.spark

CLICKS = pa.schema([("who", pa.int32()), ("at", pa.int64()), ("page", pa.string())])
VIEWS = pa.schema([("who", pa.int64()), ("moment", pa.timestamp("us", "UTC")), ("page", pa.string())])
SEEN = "(SELECT who, page, 'click' AS kind FROM clicks UNION ALL SELECT who, upper(page), NULL FROM views) AS seen"
COLUMNS = "seen.who, seen.page, seen.kind, u.page AS home"
TEXT = f"SELECT {COLUMNS} FROM {SEEN} [RANGE 5 SECONDS], clicks AS u WHERE seen.who = u.who"


@pytest.fixture
def feeds(tmp_path: Path) -> dict[str, Feed]:
    clicks, views = Feed(tmp_path / "clicks", CLICKS), Feed(tmp_path / "views", VIEWS)
    clicks.add(who=[1, 2], at=[1000, 2000], page=["7", "x"])
    views.add(who=[2, 1, None], moment=[2_500_000, 9_000_000, 0], page=["p", "q", "r"])
    return {"clicks": clicks, "views": views}


def engine(spark: SparkSession, feeds: dict[str, Feed], **settings: object) -> ab.Engine:
    directory = feeds["clicks"].directory.parent
    made = ab.Engine(spark, directory / "checkpoint", processors=2, **settings)
    made.register("clicks", feeds["clicks"].stream(spark), time="at", lateness="1 second")
    made.register("views", feeds["views"].stream(spark), time="moment", lateness="2 seconds")
    return made


def expected(feeds: dict[str, Feed]) -> pa.Table:
    text = """
        WITH seen AS (
            SELECT who::BIGINT AS who, page, 'click' AS kind, "at" * 1000 AS t FROM clicks
            UNION ALL SELECT who, upper(page), NULL, epoch_us(moment) FROM views
        )
        SELECT seen.who, seen.page, seen.kind, u.page FROM seen, clicks u
        WHERE seen.who = u.who AND seen.t >= u."at" * 1000 - 5000000
    """
    return query(text, {name: feed.complete for name, feed in feeds.items()})


def test_streams_of_different_types_and_times_are_one(
    spark: SparkSession, feeds: dict[str, Feed], tmp_path: Path
) -> None:
    asked = engine(spark, feeds).sql(TEXT)
    assert [field.simpleString() for field in asked.schema] == [
        "who:bigint",
        "page:string",
        "kind:string",
        "home:string",
    ]
    run_to_end(asked, tmp_path / "out")
    feeds["views"].add(who=[1, 2], moment=[9_500_000, 9_600_000], page=["s", "t"])
    feeds["clicks"].add(who=[2, 1], at=[9000, 3000], page=["y", "z"])
    run = run_to_end(engine(spark, feeds).sql(TEXT), tmp_path / "out")
    assert_same_rows(written(tmp_path / "out"), expected(feeds))
    assert run.lastProgress is not None
    ours = run.lastProgress["anabranch"]
    assert ours["receivedRows"] == {"seen (clicks)": 2, "seen (views)": 2, "u": 2}
    assert ours["newestEventTime"]["seen (views)"] == 9_600_000


def test_the_plan_shows_what_a_union_is_made_of(spark: SparkSession, feeds: dict[str, Feed]) -> None:
    plan = engine(spark, feeds).sql(TEXT).plan
    assert "   +- Union seen, [RANGE 5 s], keeps [who, page, kind], " in plan
    assert (
        "      +- Select [`who` AS who, upper(`page`) AS page, NULL AS kind] of Stream views, time moment (lat" in plan
    )
    inner = "(SELECT who AS p FROM clicks WHERE page = 'x') i"
    single = engine(spark, feeds).sql(f"SELECT s.p FROM (SELECT p + 1 AS p FROM {inner}) s, views WHERE p = who")
    nested = "Select [`p` + 1 AS p] of Select [`who` AS p] where `page` = 'x' of Stream clicks, time at"
    assert f"   +- Sub-query s, [unbounded], keeps [p], never purged\n      +- {nested}" in single.plan


def test_a_row_on_which_a_sub_query_fails_is_named_or_put_aside(
    spark: SparkSession, feeds: dict[str, Feed], tmp_path: Path
) -> None:
    text = (
        "SELECT n.page FROM (SELECT page + 1 AS page FROM (SELECT CAST(page AS INT) AS page FROM clicks) i "
        "WHERE page < 100) n, views WHERE n.page = views.who + 7"
    )
    with pytest.raises(
        BadRowError, match="stream clicks, column page: 1 row.s. cannot be processed because the column "
    ):
        run_to_end(engine(spark, feeds).sql(text), tmp_path / "out")
    run = run_to_end(engine(spark, feeds, quarantine=tmp_path / "aside").sql(text), tmp_path / "out")
    assert run.lastProgress is not None
    assert run.lastProgress["anabranch"]["totals"]["rejected"] == {"n": 1, "views": 0}
    assert written(tmp_path / "out").to_pylist() == [{"page": 8}]
    lines = "".join(path.read_text() for path in (tmp_path / "aside").iterdir())
    assert "the column CAST(`page` AS INT) cannot be evaluated" in lines
    assert "who=2, at=2000, page=x" in lines


def test_a_bad_row_of_a_sub_query_never_joins_also_where_nothing_else_can_be_bad(
    spark: SparkSession, feeds: dict[str, Feed], tmp_path: Path
) -> None:
    sub_query = "(SELECT who, CAST(page AS INT) AS page FROM clicks WHERE CAST(page AS INT) < 100) c"
    text = f"SELECT c.who, c.page FROM {sub_query}, views WHERE c.who = views.who"
    run = run_to_end(engine(spark, feeds, quarantine=tmp_path / "aside").sql(text), tmp_path / "out")
    assert written(tmp_path / "out").to_pylist() == [{"who": 1, "page": 7}]
    assert run.lastProgress is not None
    assert run.lastProgress["anabranch"]["totals"]["rejected"] == {"c": 1, "views": 0}


def test_a_cast_that_unites_types_fails_on_a_row_and_not_on_the_run(
    spark: SparkSession, feeds: dict[str, Feed], tmp_path: Path
) -> None:
    united = "(SELECT page AS x FROM clicks UNION ALL SELECT who FROM views) u"
    text = f"SELECT u.x FROM {united}, views v WHERE u.x = v.who + 6"
    run = run_to_end(engine(spark, feeds, quarantine=tmp_path / "aside").sql(text), tmp_path / "out")
    assert written(tmp_path / "out").to_pylist() == [{"x": 7}]
    assert run.lastProgress is not None
    assert run.lastProgress["anabranch"]["totals"]["rejected"] == {"u (clicks)": 1, "u (views)": 0, "v": 0}


@pytest.mark.parametrize(
    ("sub_query", "kind", "told"),
    [
        (
            "SELECT who FROM clicks UNION ALL SELECT array(who) FROM views",
            QueryError,
            "UNION ALL in q: its column who is",
        ),
        ("SELECT who FROM clicks WHERE page", QueryError, "the condition `page` .in q. is string, not boolean"),
        ("SELECT nosuch(who) AS who FROM clicks", QueryError, "Spark cannot analyse the query"),
        ("SELECT who + rand() AS who FROM clicks", UnsupportedError, "the function rand"),
    ],
)
def test_what_spark_knows_better_is_refused(
    spark: SparkSession, feeds: dict[str, Feed], sub_query: str, kind: type[Exception], told: str
) -> None:
    with pytest.raises(kind, match=told):
        engine(spark, feeds).sql(f"SELECT views.page FROM ({sub_query}) q, views WHERE q.who = views.who")


def test_another_sub_query_is_refused_on_resume_and_inspect_knows_sources(
    spark: SparkSession, feeds: dict[str, Feed], tmp_path: Path
) -> None:
    from anabranch.checkpoint.survey.survey import survey

    run_to_end(engine(spark, feeds).sql(TEXT), tmp_path / "out")
    found = survey(tmp_path / "checkpoint", ab.__version__, quick=False)
    assert isinstance(found, Inspection)
    assert [entry.alias for entry in found.inputs] == ["seen (clicks)", "seen (views)", "u"]
    assert {spine.input for spine in found.spines} == {"seen", "u"}
    with pytest.raises(ResumeMismatchError, match="selections was"):
        run_to_end(engine(spark, feeds).sql(TEXT.replace("upper", "lower")), tmp_path / "out")
