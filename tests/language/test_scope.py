"""What a name means: aliases, columns, fields, spellings and variables."""

from __future__ import annotations

import pytest

from anabranch.errors import QueryError


def _expression(bind, item: str, from_: str = "s A, t B") -> str:
    return bind(f"SELECT {item} AS result FROM {from_} WHERE A.k = B.k").outputs[0].expression


def test_names_are_matched_without_case_and_come_out_as_registered(bind) -> None:
    query = bind("SELECT a.PAYLOAD FROM S A, T b WHERE A.K = B.k AND a.X > 1")
    assert query.outputs[0].expression == "`A.payload`"
    assert [part.alias for part in query.inputs] == ["A", "b"]
    assert [part.stream for part in query.inputs] == ["s", "t"]
    assert query.inputs[0].predicate == "`x` > 1"


def test_the_exact_spelling_wins_where_columns_differ_only_by_case(bind) -> None:
    query = bind("SELECT B.v AS low, B.V AS up FROM s A, odd B WHERE A.k = B.k")
    assert [output.expression for output in query.outputs] == ["`B.v`", "`B.V`"]
    assert query.inputs[1].columns == ("V", "v")


def test_an_unqualified_name_is_found_if_only_one_stream_has_it(bind) -> None:
    assert _expression(bind, "price", "s A, timeless B") == "`B.price`"
    assert _expression(bind, "payload.x", "s A, timeless B") == "`A.payload`.x"
    with pytest.raises(QueryError, match="column 'v' is ambiguous: in A and B; qualify it"):
        _expression(bind, "v")


def test_a_column_named_like_an_alias_gives_its_field_if_the_alias_has_no_such_column(bind) -> None:
    text = "SELECT payload.{} AS result FROM s A, timeless payload WHERE A.k = payload.k"
    assert bind(text.format("price")).outputs[0].expression == "`payload.price`"
    assert bind(text.format("size")).outputs[0].expression == "`A.payload`.size"


@pytest.mark.parametrize(
    ("item", "expression"),
    [
        ("B.`a.b`", "`B.a.b`"),
        ("B.`A.B`", "`B.a.b`"),
        ("B.`c``d`", "`B.c``d`"),
        ("B.end + B.order", "`B.end` + `B.order`"),
        ("user", "`B.user`"),
        ("day + 1", "`B.day` + 1"),
        ("B . day", "`B.day`"),
        ("datediff(day, A.ts, B.day)", "datediff(day, `A.ts`, `B.day`)"),
        ("datediff(day, A.ts)", "datediff(`B.day`, `A.ts`)"),
        ("B.`c``d`.`e.f`[0].g", "`B.c``d`.`e.f`[0].g"),
    ],
)
def test_odd_names_survive(bind, item: str, expression: str) -> None:
    assert _expression(bind, item, "s A, odd B") == expression


def test_a_column_called_end_does_not_close_a_case(bind) -> None:
    query = bind(
        "SELECT A.v FROM s A, odd B WHERE A.k = B.k AND CASE WHEN B.end = 1 AND end = 2 THEN true END AND A.v = 1"
    )
    assert query.inputs[1].predicate == "CASE WHEN `end` = 1 AND `end` = 2 THEN true END"
    assert query.inputs[0].predicate == "`v` = 1"


@pytest.mark.parametrize(
    ("item", "expression"),
    [
        ("transform(A.arr, x -> x + 1)", "transform(`A.arr`, x -> x + 1)"),
        ("transform(A.arr, X -> x + A.x)", "transform(`A.arr`, X -> x + `A.x`)"),
        ("aggregate(A.arr, 0, (v, e) -> v + e)", "aggregate(`A.arr`, 0, (v, e) -> v + e)"),
        ("transform(A.arr, a -> a.v)", "transform(`A.arr`, a -> a.v)"),
    ],
)
def test_the_variables_of_a_lambda_are_no_columns(bind, item: str, expression: str) -> None:
    assert _expression(bind, item) == expression


def test_a_condition_whose_column_a_lambda_would_capture_stays_above_the_join(bind) -> None:
    query = bind(
        "SELECT A.v FROM s A, t B WHERE A.k = B.k AND exists(A.arr, x -> x = A.x) AND exists(A.arr, e -> e = A.x)"
    )
    assert query.residual == "exists(`A.arr`, x -> x = `A.x`)"
    assert query.inputs[0].predicate == "exists(`arr`, e -> e = `x`)"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("SELECT A.v FROM timelss A, t B WHERE A.k = B.k", "unknown stream 'timelss'; did you mean 'timeless'"),
        (
            "SELECT A.payloda FROM s A, t B WHERE A.k = B.k",
            "unknown column 'payloda' in A; did you mean 'payload'",
        ),
        ("SELECT payloda FROM s A, t B WHERE A.k = B.k", "unknown column 'payloda'; did you mean 'payload'"),
        ("SELECT AA.v FROM s A, t B WHERE A.k = B.k", "unknown alias 'AA'; did you mean 'A'"),
        ("SELECT s.v FROM s A, t B WHERE A.k = B.k", "stream 's' is known here as A; write A"),
        ("SELECT C.* FROM s A, t B WHERE A.k = B.k", "unknown alias 'C'"),
        ("SELECT A.v FROM db.s A, t B WHERE A.k = B.k", "unknown stream 'db.s'"),
    ],
)
def test_an_unknown_name_is_answered_with_a_suggestion(bind, text: str, complaint: str) -> None:
    with pytest.raises(QueryError, match=complaint):
        bind(text)
