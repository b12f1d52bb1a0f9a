"""A stateful operator of somebody else's: the example of docs/operators.md, from registration to its answer."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.errors import ConfigError, QueryError, ResumeMismatchError, UnsupportedError
from tests.oracle.chance import ChanceMoves
from tests.oracle.feed import Feed, run_to_end, written
from tests.oracle.referee import assert_same_rows, query

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "sessions.py"
CLICKS = pa.schema([("user", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("page", pa.string())])
GAP = 30_000_000
GIVES = "user STRING, began TIMESTAMP, ended TIMESTAMP, clicks BIGINT"
TEXT = "SELECT user, clicks, unix_micros(began) AS began, unix_micros(ended) AS ended FROM sessions WHERE clicks > 1"


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The example's class, importable as a user's module is."""
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    import sessions as module

    yield module.Sessions
    del sys.modules["sessions"]


@pytest.fixture
def clicks(tmp_path: Path) -> Feed:
    made = Feed(tmp_path / "clicks", CLICKS)
    second = 1_000_000
    for users, times in (
        (["a", "a", "b", None], [0, 20, 5, 7]),
        (["a", "b", "a", None], [45, 50, 100, 36]),
        (["b", "a", "c", "a"], [81, 131, 90, 95]),
        (["a", "c", "b"], [300, 120, 111]),
    ):
        made.add(user=users, ts=[time * second for time in times], page=["p"] * len(users))
    return made


def engine(spark: SparkSession, clicks: Feed, operator: object, **changes: Any) -> ab.Engine:
    spark.sparkContext.addPyFile(str(EXAMPLE))
    policies, lateness = changes.pop("policies", []), changes.pop("lateness", "3 minutes")
    made = ab.Engine(spark, clicks.directory.parent / "checkpoint", processors=2, policies=policies)
    made.register("clicks", clicks.stream(spark), time="ts", lateness=lateness)
    options = {"over": "clicks", "key": "user", "columns": ["page"], "gives": GIVES, "retention": "1 hour", **changes}
    made.operator("sessions", operator, **options)  # type: ignore[arg-type]
    return made


def expected(clicks: Feed) -> pa.Table:
    text = f"""
        WITH t AS (SELECT "user", epoch_us(ts) AS ts FROM clicks),
        marked AS (
            SELECT *, ts - lag(ts) OVER w > {GAP} OR lag(ts) OVER w IS NULL AS begins
            FROM t WINDOW w AS (PARTITION BY "user" ORDER BY ts)
        ),
        numbered AS (SELECT *, count(*) FILTER (begins) OVER (PARTITION BY "user" ORDER BY ts) AS n FROM marked)
        SELECT "user", count(*), min(ts), max(ts) FROM numbered GROUP BY "user", n HAVING count(*) > 1
    """
    return query(text, {"clicks": clicks.complete})


@pytest.mark.spark
def test_sessions_are_those_of_duckdb_also_in_several_runs(
    spark: SparkSession, clicks: Feed, tmp_path: Path, sessions: Any
) -> None:
    asked = engine(spark, clicks, sessions(GAP)).sql(TEXT)
    assert "Operator sessions by `user` (string), keeps [page], round 1" in asked.plan.replace("by user", "by `user`")
    run = run_to_end(asked, tmp_path / "out")
    assert len(written(tmp_path / "out")) == len(expected(clicks)) > 4
    assert_same_rows(written(tmp_path / "out"), expected(clicks))
    assert run.lastProgress is not None
    assert run.lastProgress["anabranch"]["totals"]["late"] == {"clicks": 0}
    states = [entry for progress in run.recentProgress for entry in progress["anabranch"]["processors"]]
    assert any(entry["activeBytes"] for entry in states)
    assert all(entry["unspillableBytes"] >= entry["activeBytes"] for entry in states), "none of it can be spilled"
    with pytest.raises(ResumeMismatchError, match=r"operator, is was 'Sessions\(gap=30000000\)' and is now"):
        run_to_end(engine(spark, clicks, sessions(GAP + 1)).sql(TEXT), tmp_path / "out")


@pytest.mark.spark
@pytest.mark.parametrize("seed", [3, 4])
def test_sessions_are_the_same_while_groups_move_and_rows_wait(
    spark: SparkSession, clicks: Feed, tmp_path: Path, sessions: Any, seed: int
) -> None:
    moved = engine(spark, clicks, sessions(GAP), policies=[ChanceMoves(seed)], lateness="30 seconds")
    run = run_to_end(moved.sql(TEXT), tmp_path / "out")
    assert {"relocate", "relocating"} & {event.kind for event in run.events}
    assert any(seen["heldRows"] for entry in run.recentProgress for seen in entry["anabranch"]["processors"])
    assert_same_rows(written(tmp_path / "out"), expected(clicks))


@pytest.mark.spark
@pytest.mark.parametrize("window", ["", "[RANGE 1 SECOND]"])
def test_what_an_operator_gives_is_joined_like_a_stream_without_time(
    spark: SparkSession, clicks: Feed, tmp_path: Path, sessions: Any, window: str
) -> None:
    """Its rows have no event time, so what they are joined with is never purged."""
    text = f"SELECT s.user, s.clicks, c.page FROM sessions s, clicks {window} c WHERE s.user = c.user AND s.clicks > 1"
    asked = engine(spark, clicks, sessions(GAP)).sql(text)
    assert "Operator sessions" in asked.plan
    run_to_end(asked, tmp_path / "out")
    joined = query(
        'SELECT s."user", s.n, c.page FROM s, clicks c WHERE s."user" = c."user"',
        {"s": expected(clicks).rename_columns(["user", "n", "first", "last"]), "clicks": clicks.complete},
    )
    assert_same_rows(written(tmp_path / "out"), joined)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"over": "clikcs"}, "unknown stream 'clikcs'; did you mean 'clicks'"),
        ({"columns": ["pag"]}, "stream 'clicks' has no column 'pag'; did you mean 'page'"),
        ({"gives": "user STRNG"}, "operator 'sessions': "),
        ({"gives": None}, "gives is a schema such as 'user STRING, clicks BIGINT', not None"),
        ({"gives": "user STRING, user STRING"}, "gives has 'user' twice"),
        ({"over": None}, "unknown stream None"),
        ({"columns": "page"}, "columns must be a list of texts, not 'page'"),
        ({"columns": ["page", "page"]}, "columns has 'page' twice"),
        ({"key": None}, "key must be a list of texts, not None"),
        ({"key": []}, "has no key; give an expression over 'clicks', as in key='user'"),
        ({"retention": "long"}, "operator 'sessions': "),
    ],
)
def test_wrong_registrations_are_refused(
    spark: SparkSession, clicks: Feed, sessions: Any, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        engine(spark, clicks, sessions(GAP), **changes)


@pytest.mark.spark
def test_what_is_not_an_operator_or_not_supported_above_one_is_refused(
    spark: SparkSession, clicks: Feed, sessions: Any
) -> None:
    with pytest.raises(ConfigError, match="object has no process; see docs/operators.md"):
        engine(spark, clicks, object())
    made = engine(spark, clicks, sessions(GAP))
    with pytest.raises(ConfigError, match="'sessions' is empty or taken"):
        made.operator("sessions", sessions(GAP), over="clicks", key="user", columns=[], gives=GIVES)
    with pytest.raises(ConfigError, match="retention='1 hour' is of event time, which rows of the operator 'sessions'"):
        made.operator(
            "again", sessions(GAP), over="sessions", key="user", columns=["clicks"], gives=GIVES, retention="1 hour"
        )
    with pytest.raises(ConfigError, match="stream 'sessions' has no column 'click'; did you mean 'clicks'"):
        made.operator("again", sessions(GAP), over="sessions", key="user", columns=["click"], gives=GIVES)
    with pytest.raises(QueryError, match="'sessions' is grouped, but its rows have no event time"):
        made.sql("SELECT count(*) AS n FROM sessions")
    with pytest.raises(QueryError, match="event time for a window"):
        made.sql("SELECT count(*) AS n FROM sessions [RANGE 1 MINUTE]")
    with pytest.raises(QueryError, match="'s' is grouped, but its rows have no event time"):
        made.sql("SELECT count(*) AS n FROM sessions s, clicks [RANGE 1 MINUTE] c WHERE s.user = c.user")
    with pytest.raises(UnsupportedError, match="a window on what an operator gives"):
        made.sql("SELECT user FROM sessions [NOW]")
    with pytest.raises(QueryError, match="unknown column 'page'"):
        made.sql("SELECT page FROM sessions")


def test_the_page_shows_the_code_that_runs() -> None:
    """All but types, docstrings and the result's columns."""
    shown = (ROOT / "docs" / "operators.md").read_text().split("```python")[1].split("```")[0]
    code = EXAMPLE.read_text()
    for line in shown.splitlines():
        words = re.sub(r"\(self.*|\s+#.*|\(\.\.\.\).*", "", line).strip()
        assert words in code, line
