"""What an order costs is counted as the engine would run it."""

from __future__ import annotations

import pytest

from anabranch.language import parse_query
from anabranch.language.shape import read_shape
from anabranch.plan.arrangement import UnconnectedError
from anabranch.plan.assembly import network_of
from anabranch.plan.join_keys import reaches
from anabranch.plan.join_order import arranged
from anabranch.plan.network import Request
from anabranch.plan.orders.join_estimates import independent_estimates
from anabranch.plan.orders.order_cost import order_cost
from anabranch.plan.query import StreamSchema
from anabranch.plan.rounds import rounds_of
from tests.plan.logical import all_trees, query_of

STREAMS = {name: StreamSchema(name, ("k", "j", "i", "t"), "t", 1_000) for name in "ABCD"}
WINDOWS = "A [RANGE 1 SECOND], B [RANGE 1 SECOND], C [RANGE 1 SECOND], D [RANGE 1 SECOND]"
CHAIN = query_of(4, [{0, 1}, {1, 2}, {2, 3}])


@pytest.mark.parametrize(
    "where",
    [
        "A.k = B.k AND B.k = C.k AND C.k = D.k",
        "A.k = B.k AND B.j = C.j AND C.i = D.i",
        "A.k = B.k AND B.k = C.k AND B.j = C.j AND C.j = D.j AND A.k = A.i",
        "A.k = B.k AND B.k = C.k AND C.k = D.k AND B.j = C.j AND A.j = D.j",
    ],
)
def test_every_order_has_as_many_exchanges_as_its_network_has_rounds(where: str) -> None:
    query = parse_query(f"SELECT A.t FROM {WINDOWS} WHERE {where}", STREAMS).logical
    assert query is not None
    classes = reaches(query.aliases, query.equalities)
    estimates = independent_estimates(query, [1.0] * 4, [0.1] * len(classes))
    counted = 0
    for shape in all_trees((0, 1, 2, 3)):
        try:
            cost = order_cost(query, shape, estimates)
        except UnconnectedError:
            with pytest.raises(UnconnectedError):
                arranged(query, shape)
            continue
        network = network_of([Request("q", arranged(query, shape))], STREAMS)
        # Conditions between operators are evaluated in place.
        ports = {(n, p) for n, operator in enumerate(network.operators) for p in range(len(operator.ports))}
        assert cost.exchanges == rounds_of(network, fused=ports).count
        assert read_shape(cost.text, query.aliases) == cost.shape == shape
        counted += 1
    assert counted


def test_rows_between_operators_are_those_of_all_but_the_root() -> None:
    estimates = independent_estimates(CHAIN, [10.0] * 4, [0.1, 0.2, 0.3])
    deep = order_cost(CHAIN, (((0, 1), 2), 3), estimates)
    inside = [frozenset({0, 1}), frozenset({0, 1, 2})]
    assert deep.intermediate_rate == pytest.approx(sum(map(estimates.rate, inside)))
    assert deep.intermediate_rows == pytest.approx(sum(map(estimates.rows, inside)))
    assert deep.text == "((A B) C) D"


def test_work_counts_rows_that_come_and_are_exchanged_and_meet() -> None:
    query = query_of(3, [{0, 1}, {1, 2}])
    estimates = independent_estimates(query, [10.0] * 3, [0.1, 0.2])
    pair, result = estimates.rate(frozenset({0, 1})), estimates.rate(frozenset({0, 1, 2}))
    # Rows of streams and of the pair come and are exchanged; what an operator makes has met there.
    assert order_cost(query, ((0, 1), 2), estimates).work == pytest.approx(3 * 10 * 2 + pair * 2 + pair + result)


def test_operators_on_one_key_run_fused_without_an_exchange() -> None:
    query = query_of(3, [{0, 1, 2}])
    estimates = independent_estimates(query, [10.0] * 3, [0.1])
    deep, flat = (order_cost(query, shape, estimates) for shape in (((0, 1), 2), (0, 1, 2)))
    pair = estimates.rate(frozenset({0, 1}))
    assert (deep.exchanges, flat.exchanges) == (1, 1)
    assert deep.work - flat.work == pytest.approx(pair * 2), "it comes and has met, but is not exchanged"
    assert (flat.intermediate_rate, flat.intermediate_rows) == (0, 0)


def test_what_is_checked_after_it_met_is_work() -> None:
    query = query_of(3, [{0, 1, 2}, {0, 1}])
    estimates = independent_estimates(query, [10.0] * 3, [0.5, 0.01])
    result = estimates.rate(frozenset({0, 1, 2}))
    assert order_cost(query, (0, 1, 2), estimates).work == pytest.approx(3 * 10 * 2 + result / 0.01)


def test_the_order_that_is_taken_where_nothing_is_said_is_shown_as_a_tree() -> None:
    estimates = independent_estimates(CHAIN, [10.0] * 4, [0.1, 0.2, 0.3])
    default = order_cost(CHAIN, None, estimates)
    assert default == order_cost(CHAIN, default.shape, estimates)
    assert default.text == "(A B) (C D)"


def test_an_order_that_would_cross_streams_has_no_cost() -> None:
    estimates = independent_estimates(CHAIN, [10.0] * 4, [0.1, 0.2, 0.3])
    with pytest.raises(UnconnectedError):
        order_cost(CHAIN, ((0, 2), (1, 3)), estimates)
