"""Sub-queries in FROM: streams made of streams by selections and UNION ALL."""

from __future__ import annotations

import pytest

from anabranch.errors import QueryError, UnsupportedError
from anabranch.plan.query import DERIVED_TIME, Output, Selection, Source, StreamSchema
from tests.language.conftest import Bind


def test_a_selection_is_a_source_of_its_input(bind: Bind) -> None:
    sub_query = "(SELECT k, v * 2 AS w FROM s WHERE v > 0 AND x = y) AS q [NOW]"
    query = bind(f"SELECT q.w, t.v FROM {sub_query}, t WHERE q.k = t.k AND w < 9")
    made, plain = query.inputs
    selection = Selection(("`v` > 0", "`x` = `y`"), (Output("k", "`k`"), Output("w", "`v` * 2")))
    assert made.sources == (Source("s", (selection,)),)
    assert (made.alias, made.window, made.key, made.conditions, made.columns) == (
        "q",
        0,
        ("`k`",),
        ("`w` < 9",),
        ("w",),
    )
    assert made.is_derived
    assert plain.sources == (Source("t"),)
    assert not plain.is_derived
    assert query.derived == (StreamSchema("(q)", ("k", "w"), DERIVED_TIME, None),)


def test_a_union_has_a_source_for_every_select_named_by_the_first(bind: Bind) -> None:
    text = (
        "SELECT q.a FROM (SELECT k AS a FROM w UNION ALL (SELECT v FROM z WHERE v > 1 UNION ALL SELECT x FROM w)) q "
        "[RANGE 1 SECOND], t WHERE q.a = t.k"
    )
    query = bind(text)
    assert query.inputs[0].sources == (
        Source("w", (Selection((), (Output("a", "`k`"),)),)),
        Source("z", (Selection(("`v` > 1",), (Output("a", "`v`"),)),)),
        Source("w", (Selection((), (Output("a", "`x`"),)),)),
    )
    assert query.derived[0].lateness == 1_000_000


def test_sub_queries_nest_and_a_union_inside_is_one_of_sources(bind: Bind) -> None:
    inner = "(SELECT k AS a FROM s UNION ALL SELECT v FROM t) i"
    text = f"SELECT q.b FROM (SELECT a + 1 AS b FROM {inner} WHERE i.a > 3) q, u WHERE q.b = u.k"
    outer = Selection(("`a` > 3",), (Output("b", "`a` + 1"),))
    assert bind(text).inputs[0].sources == (
        Source("s", (Selection((), (Output("a", "`k`"),)), outer)),
        Source("t", (Selection((), (Output("a", "`v`"),)), outer)),
    )


def test_stars_using_and_groups_work_on_what_a_sub_query_makes(bind: Bind) -> None:
    joined = bind("SELECT * FROM (SELECT k, v AS p FROM s) a JOIN (SELECT k, v AS q FROM t) b USING (k)")
    assert [output.name for output in joined.outputs] == ["k", "p", "q"]
    grouped = bind("SELECT p, count(*) AS n FROM (SELECT v % 2 AS p FROM w) a [RANGE 1 MINUTE] GROUP BY p")
    assert grouped.inputs[0].key == ("`p`",)
    assert grouped.inputs[0].window == 60_000_000


def test_time_counts_only_if_all_sources_have_one(bind: Bind) -> None:
    query = bind("SELECT q.k FROM (SELECT k FROM s UNION ALL SELECT k FROM timeless) q, t WHERE q.k = t.k")
    assert query.derived[0].time is None
    with pytest.raises(QueryError, match="not all streams in 'q' have an event time for a window"):
        bind("SELECT q.k FROM (SELECT k FROM s UNION ALL SELECT k FROM timeless) q [NOW], t WHERE q.k = t.k")


@pytest.mark.parametrize(
    ("sub_query", "told"),
    [
        ("(SELECT k FROM s UNION SELECT k FROM t) q", "UNION is not supported: only UNION ALL is"),
        ("(SELECT k FROM s UNION ALL BY NAME SELECT k FROM t) q", "BY NAME"),
        ("(SELECT k FROM s EXCEPT SELECT k FROM t) q", "EXCEPT"),
        ("(SELECT k FROM s ORDER BY k) q", "ORDER BY"),
        ("(SELECT k FROM s UNION ALL SELECT k FROM t LIMIT 3) q", "LIMIT"),
        ("(SELECT k FROM s [NOW]) q", "a window in a sub-query is not supported: write the window behind"),
        ("(SELECT k FROM s)", "a sub-query in FROM without an alias"),
        ("(SELECT k FROM s) q (a)", "a list of column names"),
        ("(s JOIN t ON s.k = t.k) q", "a join in parentheses"),
        ("((SELECT k FROM s) LIMIT 5) q", "LIMIT"),
        ("((SELECT k FROM s) WHERE k > 3) q", "WHERE"),
        ("((SELECT k FROM s) TABLESAMPLE (5 PERCENT) UNION ALL SELECT k FROM t) q", "TABLESAMPLE"),
        ("((SELECT k FROM s) JOIN t ON 1 = 1) q", "a nested join"),
        ("(SELECT k, v AS `:note` FROM s) q", "the name ':note' for a column"),
        (f"({' UNION ALL '.join(['SELECT k FROM s'] * 130)}) q", "a query over 130 SELECTs in sub-queries"),
        ("(SELECT k, transform(arr, v -> v + s.v) AS a FROM s) q", "a lambda's variable that is called as a column"),
    ],
)
def test_sub_queries_that_are_not_supported(bind: Bind, sub_query: str, told: str) -> None:
    with pytest.raises(UnsupportedError, match=told):
        bind(f"SELECT q.k FROM {sub_query}, u WHERE q.k = u.k")


@pytest.mark.parametrize(
    ("sub_query", "told"),
    [
        ("(SELECT k FROM s UNION ALL SELECT k, v FROM t) q", "UNION ALL of 1 and 2 columns; SELECT as many in each"),
        ("(SELECT k, k FROM s) q", "more than one column of the answer is called 'k'"),
        ("(SELECT v FROM s) q", "unknown column 'k' in q; known: v"),
        ("(SELECT k FROM nowhere) q", "unknown stream 'nowhere'"),
    ],
)
def test_wrong_sub_queries(bind: Bind, sub_query: str, told: str) -> None:
    with pytest.raises(QueryError, match=told):
        bind(f"SELECT q.k FROM {sub_query}, u WHERE q.k = u.k")
