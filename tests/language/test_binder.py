"""Where the parts of a query go: keys, predicates, the residual, columns and outputs."""

from __future__ import annotations

import pytest

from anabranch.errors import QueryError, UnsupportedError
from anabranch.language import parse_query
from anabranch.plan.query import MAX_INPUTS, JoinInput, Output, Source, StreamSchema


def test_a_query_is_bound_to_keys_predicates_a_residual_and_needed_columns(bind) -> None:
    text = """
        SELECT A.v, B.x AS bx
        FROM s [RANGE 10 SECONDS] A, t B
        WHERE A.k = B.k AND A.v > 3 AND (B.x IS NULL OR B.x < 1) AND A.y < B.y
    """
    query = bind(text)
    assert query.text == text
    assert query.inputs == (
        JoinInput("A", "s", 10_000_000, ("`k`",), ("`v` > 3",), ("v", "y"), (Source("s"),)),
        JoinInput("B", "t", None, ("`k`",), ("`x` IS NULL OR `x` < 1",), ("x", "y"), (Source("t"),)),
    )
    assert query.outputs == (Output("v", "`A.v`"), Output("bx", "`B.x`"))
    assert query.residual == "`A.y` < `B.y`"


def test_commas_inner_joins_cross_joins_and_using_mean_the_same(bind) -> None:
    texts = [
        "SELECT A.v FROM s A, t B WHERE A.k = B.k",
        "SELECT A.v FROM s A JOIN t B ON A.k = B.k",
        "SELECT A.v FROM s A INNER JOIN t B ON (A.k) == ((B.k))",
        "SELECT A.v FROM s A CROSS JOIN t B WHERE (A.k = B.k)",
        "SELECT A.v FROM s A JOIN t B USING (k)",
        "SELECT A.v FROM s A JOIN t B WHERE A.k = B.k;",
    ]
    assert len({(query.inputs, query.outputs, query.residual) for query in map(bind, texts)}) == 1


def test_conjuncts_are_split_through_parentheses_but_not_inside_or_not_between_or_case(bind) -> None:
    query = bind(
        "SELECT A.v FROM s A, t B WHERE A.k = B.k AND ((A.v BETWEEN 1 AND 2 AND (A.x = 1)) AND B.x = 2) "
        "AND NOT (B.v = 1 AND B.y = 2) AND CASE WHEN A.x = 1 AND A.y = 2 THEN true ELSE false END"
    )
    assert query.inputs[0].predicate == (
        "(`v` BETWEEN 1 AND 2) AND (`x` = 1) AND (CASE WHEN `x` = 1 AND `y` = 2 THEN true ELSE false END)"
    )
    assert query.inputs[1].predicate == "(`x` = 2) AND (NOT (`v` = 1 AND `y` = 2))"
    assert query.residual is None


def test_or_across_streams_and_conditions_over_no_stream_go_to_the_residual(bind) -> None:
    query = bind("SELECT A.v FROM s A, t B WHERE A.k = B.k AND 1 = 0 AND (A.x = 1 OR B.x = 2)")
    assert query.residual == "(1 = 0) AND (`A.x` = 1 OR `B.x` = 2)"
    assert query.inputs[1].columns == ("x",)


def test_an_equality_of_expressions_is_a_key_if_each_side_reads_one_stream(bind) -> None:
    query = bind("SELECT A.v FROM s A, t B WHERE lower(A.k) = concat('x', B.k) AND A.x + A.y = B.x AND A.v = A.x + B.v")
    assert query.inputs[0].key == ("lower(`k`)", "`x` + `y`")
    assert query.inputs[1].key == ("concat('x', `k`)", "`x`")
    assert query.residual == "`A.v` = `A.x` + `B.v`"


def test_a_second_expression_of_the_same_stream_in_a_key_becomes_its_predicate(bind) -> None:
    query = bind("SELECT A.v FROM s A, t B WHERE A.x = B.k AND A.y = B.k")
    assert [part.key for part in query.inputs] == [("`x`",), ("`k`",)]
    assert query.inputs[0].predicate == "`x` = `y`"


def test_an_equality_that_leaves_out_a_stream_is_checked_above_the_join(bind) -> None:
    query = bind("SELECT A.v FROM s A, t B, u C WHERE A.k = B.k AND C.k = A.k AND A.x = B.y")
    assert [part.key for part in query.inputs] == [("`k`",)] * 3
    assert query.residual == "`A.x` = `B.y`"
    assert [part.columns for part in query.inputs] == [("k", "v", "x"), ("k", "y"), ("k",)], "also for other orders"


@pytest.mark.parametrize("conjunct", ["A.k = B.k IS NULL", "A.k = B.k = true", "A.k = B.x < B.y", "NOT A.k = B.k"])
def test_an_equality_with_another_operator_beside_it_is_no_key_as_spark_reads_it(bind, conjunct: str) -> None:
    query = bind(f"SELECT A.v FROM s A, t B WHERE A.v = B.v AND {conjunct}")
    assert [part.key for part in query.inputs] == [("`v`",)] * 2
    assert query.residual == conjunct.replace("A.k", "`A.k`").replace("B.k", "`B.k`").replace("B.x", "`B.x`").replace(
        "B.y", "`B.y`"
    )


def test_a_side_that_is_itself_a_condition_keeps_its_parentheses(bind) -> None:
    query = bind(
        "SELECT A.v FROM s A, t B, u C WHERE A.k = B.k AND B.k = C.k AND A.y = (B.x = 1) "
        "AND (A.x IS NULL) = C.v AND C.v = (B.x OR B.y) AND C.v = ((C.y))"
    )
    assert [part.key for part in query.inputs] == [
        ("`k`", "(`x` IS NULL)"),
        ("`k`", "(`x` OR `y`)"),
        ("`k`", "`v`"),
    ]
    assert query.inputs[2].predicate == "`v` = `y`"
    assert query.residual == "`A.y` = (`B.x` = 1)"


def test_an_equality_of_rows_is_no_key(bind) -> None:
    query = bind("SELECT A.v FROM s A, t B WHERE A.v = B.v AND (A.x, A.y) = (B.x, B.y)")
    assert query.residual == "(`A.x`, `A.y`) = (`B.x`, `B.y`)"


def test_null_safe_equality_is_refused_between_streams_and_fine_within_one(bind) -> None:
    with pytest.raises(UnsupportedError, match="<=> between streams"):
        bind("SELECT A.v FROM s A, t B WHERE A.k <=> B.k")
    query = bind("SELECT A.v FROM s A, t B WHERE A.k = B.k AND A.x <=> A.y")
    assert query.inputs[0].predicate == "`x` <=> `y`"


@pytest.mark.parametrize(
    ("condition", "complaint"),
    [
        ("A.k = B.k", "no equality connects C with A and B"),
        ("A.v > 1", "connect A, B and C by a key"),
    ],
)
def test_streams_without_a_common_key_are_refused_by_name(bind, condition: str, complaint: str) -> None:
    with pytest.raises(UnsupportedError, match=complaint):
        bind(f"SELECT A.v FROM s A, t B, u C WHERE {condition}")


def test_a_stream_joins_itself_under_two_aliases(bind) -> None:
    query = bind("SELECT A.v, B.v AS w FROM s A, s B WHERE A.k = B.k")
    assert [(part.alias, part.stream) for part in query.inputs] == [("A", "s"), ("B", "s")]


def test_a_stream_twice_or_an_alias_twice_is_refused(bind) -> None:
    with pytest.raises(QueryError, match="in FROM twice; give each an alias"):
        bind("SELECT s.v FROM s, s WHERE s.k = s.k")
    with pytest.raises(QueryError, match="alias 'a' is used twice"):
        bind("SELECT A.v FROM s A, t a WHERE A.k = a.k")
    with pytest.raises(QueryError, match="alias 's' is used twice"):
        bind("SELECT s.v FROM s, t s WHERE s.k = s.k")


def test_aliases_with_dots_may_not_make_two_columns_one() -> None:
    streams = {"p": StreamSchema("p", ("k", "b.c")), "q": StreamSchema("q", ("k", "c"))}
    with pytest.raises(QueryError, match=r"'A\.b\.c' is a column of both 'A' and 'A\.b'"):
        parse_query("SELECT A.k FROM p A, q `A.b` WHERE A.k = `A.b`.k", streams)


def test_one_stream_and_more_than_the_limit_are_refused(bind) -> None:
    with pytest.raises(
        UnsupportedError, match="a query over one stream without GROUP BY or DISTINCT is not supported: "
    ):
        bind("SELECT s.v FROM s")
    names = [f"a{number}" for number in range(MAX_INPUTS + 1)]
    froms = [", ".join(f"s {name}" for name in names[:count]) for count in (MAX_INPUTS, MAX_INPUTS + 1)]
    keys = [" AND ".join(f"a0.k = {name}.k" for name in names[1:count]) for count in (MAX_INPUTS, MAX_INPUTS + 1)]
    assert len(bind(f"SELECT a0.v FROM {froms[0]} WHERE {keys[0]}").inputs) == MAX_INPUTS
    with pytest.raises(UnsupportedError, match=f"at most {MAX_INPUTS} are"):
        bind(f"SELECT a0.v FROM {froms[1]} WHERE {keys[1]}")


def test_a_chain_of_keys_becomes_operators_that_carry_what_is_needed_above_them(bind) -> None:
    text = "SELECT A.v FROM s A, t B, u C WHERE A.k = B.k AND B.x = C.x AND A.y < B.y AND A.y + C.y > B.v"
    query = bind(text)
    lower, upper = query.operators
    assert (lower.parts, lower.keys) == ((0, 1), (("`k`",), ("`k`",)))
    assert lower.conditions == ("`A.y` < `B.y`",)
    assert lower.columns == (("A", "v"), ("A", "y"), ("B", "v"), ("B", "x"), ("B", "y"))
    assert (upper.parts, upper.keys) == ((2, 3), (("`x`",), ("`B.x`",)))
    assert upper.conditions == ("`A.y` + `C.y` > `B.v`",)
    assert upper.columns == (("A", "v"), ("A", "y"), ("B", "v"), ("C", "y"))
    assert query.inputs[1].predicate == "`x` IS NOT NULL"
    assert [query.inputs_of(part) for part in range(5)] == [(0,), (1,), (2,), (0, 1), (0, 1, 2)]


@pytest.mark.parametrize(
    ("joins", "complaint"),
    [
        ("(A B", r"'\(' is not closed"),
        ("A B) C", r"'\)' closes nothing"),
        ("(A B) () C", "around nothing"),
        ("(A B) D", "there is no 'D' in FROM"),
        ("(A B) A C", "A occurs twice"),
        ("A B", "C does not occur"),
        ("", "A, B, C does not occur"),
        ("A B `C", "cannot be read"),
        ("((A C) B)", "without an equality"),
    ],
)
def test_a_shape_that_makes_no_sense_is_refused_with_the_reason(bind, joins: str, complaint: str) -> None:
    with pytest.raises(QueryError, match=complaint):
        bind("SELECT A.v FROM s A, t B, u C WHERE A.k = B.k AND B.x = C.x", joins)


def test_shapes_may_be_written_loosely(bind) -> None:
    text = "SELECT A.v FROM s A, t B, u C WHERE A.k = B.k AND B.k = C.k"
    trees = ["((A B) C)", "(a,b) c", " ( `A` B ) (C)"]
    assert {tuple(operator.parts for operator in bind(text, joins).operators) for joins in trees} == {((0, 1), (3, 2))}
    assert bind(text, "multiway").operators == bind(text, "AUTO").operators == bind(text).operators
