"""What queries have in common is in the network once, and what they have not is not."""

from __future__ import annotations

import pytest

from anabranch.language import parse_query
from anabranch.plan.assembly import network_of
from anabranch.plan.network import Network, Request
from anabranch.plan.query import StreamSchema
from anabranch.plan.rounds import rounds_of
from anabranch.plan.texts import substituted

SECOND = 1_000_000
STREAMS = {
    name: StreamSchema(name, ("k", "x", "y", "v", "ts"), "ts", 5 * SECOND) for name in ("A", "B", "C", "D", "`A.v`")
}
PAIRS = "SELECT A.v, B.v AS w FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS] WHERE A.k = B.k"


def network(*texts: str, since: list[int] | None = None, joins: str = "auto") -> Network:
    started = since or [1] * len(texts)
    return network_of(
        [
            Request(f"q{n}", parse_query(text, STREAMS, joins), began)
            for n, (text, began) in enumerate(zip(texts, started, strict=True))
        ],
        STREAMS,
    )


@pytest.mark.parametrize(
    "other",
    [
        "SELECT b.v FROM B [RANGE 10 SECONDS] AS b, A [RANGE 10 SECONDS] AS a WHERE b.k = a.k",
        "SELECT A.x + B.x AS s FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS] WHERE A.k = B.k AND A.v < B.v",
        "SELECT B.y FROM B [RANGE 10 SECONDS] JOIN A [RANGE 10 SECONDS] ON B.k = A.k",
    ],
)
def test_one_join_answers_queries_that_differ_in_names_order_select_and_residual(other: str) -> None:
    made = network(PAIRS, other)
    assert len(made.operators) == 1
    assert len(made.inputs) == 2
    assert [answer.branches[0].node for answer in made.answers] == [2, 2]


def test_the_shared_join_carries_what_any_query_needs_under_the_names_of_the_first() -> None:
    made = network(
        PAIRS,
        "SELECT a.x, b.y AS z FROM B [RANGE 10 SECONDS] AS b, A [RANGE 10 SECONDS] AS a WHERE a.k = b.k AND a.v > b.x",
    )
    (join,) = made.operators
    assert join.columns == (("A", "x"), ("A", "v"), ("B", "x"), ("B", "y"), ("B", "v"))
    first, second = made.answers
    assert [output.expression for output in first.outputs] == ["`A.v`", "`B.v`"]
    assert [(output.name, output.expression) for output in second.outputs] == [("x", "`A.x`"), ("z", "`B.y`")]
    assert second.branches[0].conditions == ("`A.v` > `B.x`",)
    assert made.inputs[0].entry.columns == ("x", "v")


def test_columns_that_are_cast_with_colons_get_the_names_of_the_shared_join_too() -> None:
    swapped = "SELECT B.v::int, A.x :: string AS s FROM B [RANGE 10 SECONDS] AS A, A [RANGE 10 SECONDS] AS B"
    made = network(PAIRS, f"{swapped} WHERE A.k = B.k AND B.x::int > A.v ::int")
    (branch,) = made.answers[1].branches
    assert [output.expression for output in branch.outputs] == ["`A.v`::int", "`B.x` :: string"]
    assert branch.conditions == ("`A.x`::int > `B.v` ::int",)


@pytest.mark.parametrize(
    "other",
    [
        "SELECT A.v FROM A [RANGE 11 SECONDS], B [RANGE 10 SECONDS] WHERE A.k = B.k",
        "SELECT A.v FROM A, B [RANGE 10 SECONDS] WHERE A.k = B.k",
        "SELECT A.v FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS] WHERE A.k = B.k AND A.v > 0",
        "SELECT A.v FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS] WHERE A.k = B.x",
        "SELECT A.v FROM A [RANGE 10 SECONDS], C [RANGE 10 SECONDS] WHERE A.k = C.k",
        "SELECT s.v FROM (SELECT k, v, ts FROM A) AS s [RANGE 10 SECONDS], B [RANGE 10 SECONDS] WHERE s.k = B.k",
    ],
)
def test_another_stream_window_predicate_or_key_makes_another_join(other: str) -> None:
    made = network(PAIRS, other)
    assert len(made.operators) == 2
    assert len({entry.entry.alias for entry in made.inputs}) == len(made.inputs) == 4


def test_a_join_can_be_the_answer_to_one_query_and_a_part_of_another() -> None:
    chain = (
        "SELECT A.v, C.v AS c FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS], C [RANGE 10 SECONDS] "
        "WHERE A.k = B.k AND B.x = C.x AND A.y < B.y"
    )
    assert len(network(chain, PAIRS).operators) == 3, "rows of B without an x are in pairs, and in no chain"
    made = network(chain, f"{PAIRS} AND B.x IS NOT NULL")
    assert [len(operator.ports) for operator in made.operators] == [2, 2]
    lower, upper = made.operators
    assert made.answers[1].branches[0].node == len(made.inputs)
    assert made.answers[1].branches[0].conditions == ()
    through = next(port for port in upper.ports if port.node >= len(made.inputs))
    assert through.conditions == ("`A.y` < `B.y`",), "the condition is the longer query's alone"
    assert ("A", "y") in lower.columns
    assert ("A", "y") not in through.columns, "nothing above needs it"
    assert rounds_of(made).of == (0, 1)


def test_the_same_join_twice_in_a_query_is_two_operators() -> None:
    text = "SELECT a.v, c.v AS w FROM A a, B b, A c, B d WHERE a.k = b.k AND c.k = d.k AND a.x = c.x"  # (a b) and (c d)
    made = network(text, text, joins="(a b) (c d)")
    assert len(made.operators) == 3
    assert len(made.inputs) == 4


def test_queries_that_do_not_begin_together_share_nothing() -> None:
    assert len(network(PAIRS, PAIRS, since=[1, 2]).operators) == 2
    assert len(network(PAIRS, PAIRS, PAIRS, since=[1, 2, 2]).operators) == 2


def test_groupings_are_shared_whatever_is_selected_of_the_groups() -> None:
    per_key = "SELECT A.k, count(*) AS n FROM A [RANGE 1 MINUTE] GROUP BY A.k"
    frequent = "SELECT a.k AS key FROM A [RANGE 1 MINUTE] AS a GROUP BY a.k HAVING count(*) > 3"
    made = network(per_key, frequent)
    assert len(made.operators) == 1
    assert made.answers[1].branches[0].conditions == ("`agg.0` > 3",)
    assert len(network(per_key, per_key.replace("count(*)", "max(A.v)")).operators) == 2


def test_a_grouping_shares_the_join_below_it_with_a_query_that_only_joins() -> None:
    grouped = "SELECT A.x, count(*) AS n FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS] WHERE A.k = B.k GROUP BY A.x"
    made = network(PAIRS, grouped)
    assert [operator.grouping is None for operator in made.operators] == [True, False]
    assert [answer.branches[0].node for answer in made.answers] == [2, 3]


def test_what_is_late_for_one_query_only_is_not_shared() -> None:
    """A row of B is late where groups have to be complete, but never where it is joined to unbounded rows alone."""
    plain = "SELECT A.v FROM A [RANGE 10 SECONDS], B WHERE A.k = B.k"
    grouped = "SELECT A.x, count(*) AS n FROM A [RANGE 10 SECONDS], B WHERE A.k = B.k GROUP BY A.x"
    assert len(network(plain, grouped).operators) == 3


def test_keys_of_several_columns_are_hashed_in_one_order_all_over_a_plan() -> None:
    text = "SELECT A.v FROM A, B, C WHERE A.x = B.y AND A.k = B.k AND B.k = C.k AND B.y = C.x"
    made = network(text, joins="(A B) C")
    assert rounds_of(made).count == 1


def test_fields_types_and_variables_are_no_columns() -> None:
    text = "transform(`arr`, `k` -> `k` + `v`) || CAST(`s` AS STRUCT<`k`: INT>).`k` || aggregate(`a`, 0, (`v`, x) -> x)"
    mapping = {"`k`": "X", "`s`": "S", "`arr`": "R"}
    assert substituted(text, mapping) == (
        "transform(R, `k` -> `k` + `v`) || CAST(S AS STRUCT<`k`: INT>).`k` || aggregate(`a`, 0, (`v`, x) -> x)"
    )


def test_names_are_replaced_where_they_are_names() -> None:
    text = "`A.v` + length('`A.v`') + `B.v` -- `A.v`\n + \"`A.v`\" /* `A.v` */ + r'\\' + `A.v`"
    assert substituted(text, {"`A.v`": "`a.v`"}) == (
        "`a.v` + length('`A.v`') + `B.v` -- `A.v`\n + \"`A.v`\" /* `A.v` */ + r'\\' + `a.v`"
    )
