"""The columns of the answer: their names and what the stars stand for."""

from __future__ import annotations

import pytest

from anabranch.errors import QueryError, UnsupportedError
from anabranch.language import parse_query
from anabranch.plan.query import Output, StreamSchema

SMALL = {name: StreamSchema(name, columns) for name, columns in {"p": ("k", "a"), "q": ("b", "k")}.items()}


def _names(text: str) -> list[str]:
    return [output.name for output in parse_query(text, SMALL).outputs]


@pytest.mark.parametrize(
    ("item", "name", "expression"),
    [
        ("A.v", "v", "`A.v`"),
        ("A.V", "v", "`A.v`"),
        ("A.v AS w", "w", "`A.v`"),
        ("A.v w", "w", "`A.v`"),
        ("A.v AS `odd name`", "odd name", "`A.v`"),
        ("A.payload.x", "x", "`A.payload`.x"),
        ("A.payload.p.q.r.s", "s", "`A.payload`.p.q.r.s"),
        ("A.arr[0]", "A.arr[0]", "`A.arr`[0]"),
        ("A.v  +  1", "A.v + 1", "`A.v` + 1"),
        ("42", "42", "42"),
    ],
)
def test_an_output_is_named_by_alias_column_field_or_text(bind, item: str, name: str, expression: str) -> None:
    query = bind(f"SELECT {item} FROM s A, t B WHERE A.k = B.k")
    assert query.outputs == (Output(name, expression),)


def test_stars_expand_in_the_order_of_from_and_of_each_stream() -> None:
    assert _names("SELECT A.*, B.b FROM p A, q B WHERE A.k = B.k") == ["k", "a", "b"]
    assert _names("SELECT b.B, a.* FROM p A, q B WHERE A.k = B.k") == ["b", "k", "a"]


def test_using_shows_its_columns_once_and_first() -> None:
    query = parse_query("SELECT * FROM p A JOIN q B USING (K)", SMALL)
    assert query.outputs == (Output("k", "`A.k`"), Output("a", "`A.a`"), Output("b", "`B.b`"))
    assert query.inputs[1].columns == ("b",)
    assert parse_query("SELECT k FROM p A JOIN q B USING (k)", SMALL).outputs == (Output("k", "`A.k`"),)


def test_using_reaches_back_to_the_comma_only(bind) -> None:
    query = bind("SELECT s.v FROM s, t JOIN u USING (k) WHERE s.k = t.k")
    assert [part.key for part in query.inputs] == [("`k`",)] * 3
    with pytest.raises(QueryError, match="column 'k' is ambiguous: in s and t; qualify it"):
        bind("SELECT k FROM s, t JOIN u USING (k) WHERE s.k = t.k")
    with pytest.raises(QueryError, match="column 'v' in USING is ambiguous: in s and t"):
        bind("SELECT s.k FROM s JOIN t USING (k) JOIN u USING (v)")
    with pytest.raises(QueryError, match="unknown column 'kk' in USING; did you mean 'k'"):
        parse_query("SELECT a FROM p JOIN q USING (kk)", SMALL)


def test_names_that_clash_are_refused_with_a_hint() -> None:
    with pytest.raises(QueryError, match="called 'k'; give them aliases with AS"):
        _names("SELECT * FROM p A, q B WHERE A.k = B.k")
    with pytest.raises(QueryError, match="called 'x'; give them aliases with AS"):
        _names("SELECT A.a AS x, B.b AS X FROM p A, q B WHERE A.k = B.k")


@pytest.mark.parametrize("item", ["* EXCEPT (k)", "A.payload.*", "struct(A.*)", "hash(*)", "A.v AS (a, b)"])
def test_other_stars_and_aliases_are_refused(bind, item: str) -> None:
    with pytest.raises(UnsupportedError):
        bind(f"SELECT {item} FROM s A, t B WHERE A.k = B.k")
