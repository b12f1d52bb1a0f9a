"""What is not supported is refused by name, and what cannot be read is shown."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import QueryError, UnsupportedError
from anabranch.language import parse_query
from anabranch.plan.query import StreamSchema

JOIN = "SELECT A.v FROM s A, t B WHERE A.k = B.k"


@pytest.mark.parametrize(
    ("text", "construct"),
    [
        *[
            (f"SELECT A.v FROM s A {kind} JOIN t B ON A.k = B.k", f"{kind} JOIN")
            for kind in ("LEFT", "RIGHT OUTER", "FULL", "LEFT SEMI", "LEFT ANTI", "NATURAL", "ASOF")
        ],
        ("SELECT A.v FROM s A, LATERAL (SELECT 1) B", "LATERAL"),
        ("SELECT A.v FROM s A LATERAL VIEW explode(A.arr) e AS c, t B WHERE A.k = B.k", "LATERAL"),
        ("SELECT A.v FROM s A JOIN (t B JOIN u C ON B.k = C.k) ON A.k = B.k", "a join in parentheses"),
        ("SELECT A.v FROM range(3) A, t B WHERE A.k = B.k", "a table function in FROM"),
        ("SELECT A.v FROM VALUES (1) A, t B WHERE A.k = B.k", "VALUES"),
        ("SELECT A.v FROM s TABLESAMPLE (10 PERCENT) A, t B WHERE A.k = B.k", "TABLESAMPLE"),
        ("SELECT A.v FROM s PIVOT (sum(v) FOR k IN (1)) A, t B WHERE A.k = B.k", "PIVOT"),
        ("SELECT A.v FROM s VERSION AS OF 1 A, t B WHERE A.k = B.k", "time travel"),
        ("SELECT A.v FROM s A (p, q), t B WHERE A.k = B.k", "a list of column names"),
        (f"{JOIN} UNION {JOIN}", "UNION"),
        (f"{JOIN} INTERSECT {JOIN}", "INTERSECT"),
        (f"{JOIN} EXCEPT {JOIN}", "EXCEPT"),
        (f"WITH q AS ({JOIN}) {JOIN}", "WITH"),
        (f"{JOIN} GROUP BY ALL", "GROUP BY ALL"),
        (f"{JOIN} GROUP BY A.v WITH ROLLUP", "ROLLUP"),
        (JOIN.replace("s A", "s [PARTITION BY k ROWS 5] A"), "a window of ROWS without GROUP BY"),
        (f"{JOIN} ORDER BY A.v", "ORDER BY"),
        (f"{JOIN} SORT BY A.v", "SORT BY"),
        (f"{JOIN} CLUSTER BY A.v", "CLUSTER BY"),
        (f"{JOIN} DISTRIBUTE BY A.v", "DISTRIBUTE BY"),
        (f"{JOIN} LIMIT 3", "LIMIT"),
        (f"{JOIN} OFFSET 3", "OFFSET"),
        (f"{JOIN} QUALIFY A.v = 1", "QUALIFY"),
        (f"{JOIN} WINDOW w AS (PARTITION BY A.k)", "WINDOW"),
        (f"{JOIN} |> LIMIT 3", "the pipe syntax"),
        (f"{JOIN}; {JOIN}", "several statements"),
        (f"{JOIN} GROUP BY A.v".replace("SELECT", "SELECT DISTINCT"), "DISTINCT together with GROUP BY"),
        (JOIN.replace("SELECT", "SELECT /*+ BROADCAST(A) */"), "a hint"),
        ("INSERT INTO s SELECT 1", "the statement INSERT"),
        ("SHOW TABLES", "the statement SHOW"),
        ("DROP TABLE s", "the statement DROP"),
        ("SELECT 1", "a SELECT without FROM"),
    ],
)
def test_a_clause_that_is_not_supported_is_refused_by_name(bind, text: str, construct: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        bind(text)
    assert str(caught.value).startswith(construct)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (f"{JOIN} ORDER BY A.v", "sort them where you read them"),
        (f"{JOIN} LIMIT 3", "limit it where you read the results"),
        ("SELECT count(*) AS n FROM s A GROUP BY window(A.ts, '1 minute')", "as in A [RANGE 1 MINUTE]"),
        (None, "a query must be a text, not None"),
    ],
)
def test_what_people_bring_along_is_refused_with_what_there_is_instead(bind, text: str | None, advice: str) -> None:
    with pytest.raises(QueryError) as caught:
        bind(text)
    assert advice in str(caught.value)


@pytest.mark.parametrize(
    ("expression", "construct"),
    [
        ("A.v IN (SELECT 1)", "a subquery"),
        ("EXISTS (SELECT 1)", "EXISTS"),
        ("(SELECT 1) = 1", "a subquery"),
        ("median(A.v) > 1", "the aggregate function median"),
        ("any(A.v)", "the aggregate function any"),
        ("concat(DISTINCT A.v) = ''", "DISTINCT"),
        ("sum(A.v) OVER (PARTITION BY A.k) > 1", "a window function"),
        ("row_number() = 1", "the window function row_number"),
        ("explode(A.arr) = 1", "the generator explode"),
        ("rand() > 1", "the function rand"),
        ("`RAND`() > 1", "the function rand"),
        ("system.builtin.rand() > 1", "system"),
        ("identifier('rand') > 1", "the IDENTIFIER clause"),
        ("A.ts < current_timestamp()", "the function current_timestamp"),
        ("A.ts < current_timestamp", "the function current_timestamp"),
        ("A.ts < now()", "the function now"),
        ("unix_timestamp() > 1", "the function unix_timestamp without arguments"),
        ("A.ts < DATE 'today'", "the moving moment 'today'"),
        ("A.ts < CAST('now' AS TIMESTAMP)", "the moving moment 'now'"),
        ("A.ts < 'yesterday'::date", "the moving moment 'yesterday'"),
        ("shuffle(A.arr)[0] = 1", "the function shuffle"),
        ("A.v = :parameter", "a parameter"),
        ("A.v = ?", "a parameter"),
        ("A.arr[0:1] = 1", "the operator :"),
        ("A.v -> 'x' = 1", "the operator ->"),
        ("A.m.lower(A.v) = 1", ""),
    ],
)
def test_an_expression_that_is_not_supported_is_refused_by_name(bind, expression: str, construct: str) -> None:
    for text in (f"{JOIN} AND {expression}", f"SELECT {expression} AS e FROM s A, t B WHERE A.k = B.k"):
        with pytest.raises(UnsupportedError) as caught:
            bind(text)
        assert str(caught.value).startswith(construct)
        assert "is not supported" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (
            "SELECT A.v FROM s A, t B\nWHERE A.k = = B.k",
            ("line 2, column 13", "WHERE A.k = = B.k", " " * 12 + "^"),
        ),
        ("SELECT A.v,\nFROM s A, t B WHERE A.k = B.k", ("line 1, column 11", "SELECT A.v,", " " * 10 + "^")),
        ("SELECT A.v FROM s * A, t B WHERE A.k = B.k", ("line 1, column 19", "s * A", " " * 18 + "^")),
        ("SELECT A.v w x FROM s A", ("line 1, column 14", "SELECT", " " * 13 + "^")),
    ],
)
def test_a_syntax_error_shows_line_column_and_a_caret(bind, text: str, place: tuple[str, ...]) -> None:
    with pytest.raises(QueryError) as caught:
        bind(text)
    assert type(caught.value) is QueryError
    assert all(part in str(caught.value) for part in place)
    assert "sqlglot" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "  ;", "-- nothing", "SELECT 'open", "SELECT A.`open", "("])
def test_a_text_that_is_no_query_is_a_query_error(bind, text: str) -> None:
    with pytest.raises(QueryError):
        bind(text)


WORDS = (
    "SELECT FROM WHERE AND OR NOT A.k B.k = , ( ) [ ] RANGE 10 SECONDS s t A B JOIN ON USING * 'x' CASE END AS ; -> v"
)
PIECES = st.sampled_from(WORDS.split())


@given(st.lists(PIECES, max_size=14), st.lists(PIECES, max_size=4))
def test_any_jumble_of_words_is_a_query_or_a_query_error(front: list[str], back: list[str]) -> None:
    streams = {name: StreamSchema(name, ("k", "v"), time="v") for name in ("s", "t")}
    for text in (" ".join(front), f"SELECT A.v FROM s A, t B WHERE A.k = B.k AND {' '.join(back)}"):
        with suppress(QueryError):
            parse_query(text, streams)
