"""A query is arranged for any shape of its joins without its text."""

from __future__ import annotations

import pytest

from anabranch.language import parse_query
from anabranch.language.shape import read_shape
from anabranch.plan.arrangement import UnconnectedError
from anabranch.plan.assembly import network_of
from anabranch.plan.join_order import arranged, rearranged
from anabranch.plan.network import Request
from anabranch.plan.query import StreamSchema

STREAMS = {name: StreamSchema(name, ("k", "j", "t", "v"), "t", 1_000) for name in "ABCD"}
TREES = ["auto", "multiway", "((A B) C) D", "((D C) B) A", "(A B) (C D)", "A (B (C D))", "(B C) A D"]
QUERIES = [
    "SELECT A.v, D.v AS w FROM A [RANGE 5 SECONDS], B, C, D WHERE A.k = B.k AND B.k = C.k AND C.k = D.k",
    "SELECT A.v, upper(D.v) AS w, 1 AS one FROM A, B, C, D WHERE A.k = B.k AND B.k = C.k AND C.k = D.k AND A.v < C.v "
    "AND B.v + D.v > 3 AND A.v IS NOT NULL AND 1 = 1 AND A.j = C.j AND A.k = A.j",
    "SELECT B.j, count(*) AS n FROM A [RANGE 5 SECONDS], B [RANGE 1 SECOND], C [NOW], D [RANGE 1 DAY] "
    "WHERE A.k = B.k AND B.k = C.k AND C.k = D.k AND D.v <> A.v GROUP BY B.j HAVING count(*) > 2",
    "SELECT A.v FROM A JOIN B USING (k) JOIN C USING (k) JOIN (SELECT v, k + 1 AS k FROM D WHERE v > 0) AS D USING (k)",
]


@pytest.mark.parametrize("text", QUERIES)
@pytest.mark.parametrize("joins", TREES)
def test_what_is_arranged_anew_is_what_the_text_gives_for_that_shape(text: str, joins: str) -> None:
    asked = parse_query(text, STREAMS, joins)
    for other in TREES:
        query = parse_query(text, STREAMS, other)
        assert query.logical == asked.logical, "the logical query knows nothing of the order"
        assert query.logical is not None
        shape = read_shape(joins, query.logical.aliases)
        again = rearranged(query, shape)
        assert again == asked
        assert network_of([Request("q", again)], STREAMS) == network_of([Request("q", asked)], STREAMS)


def test_a_shape_that_would_cross_streams_is_refused() -> None:
    query = parse_query("SELECT A.v FROM A, B, C WHERE A.k = B.k AND B.j = C.j", STREAMS)
    assert query.logical is not None
    with pytest.raises(UnconnectedError):
        arranged(query.logical, ((0, 2), 1))


def test_a_query_without_a_join_has_nothing_to_arrange() -> None:
    assert parse_query("SELECT k, count(*) AS n FROM A [NOW] GROUP BY k", STREAMS).logical is None
