"""The search for join orders gives what an enumeration of all trees gives."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.plan.arrangement import Shape, UnconnectedError, arrange
from anabranch.plan.join_keys import reaches
from anabranch.plan.orders.join_estimates import Estimates, independent_estimates
from anabranch.plan.orders.join_orders import RANKINGS, Wish, best_orders
from anabranch.plan.orders.order_cost import JoinOrderCost, order_cost
from anabranch.plan.query import MAX_INPUTS, LogicalQuery
from tests.plan.logical import all_trees, binary_trees, query_of

WISHES: tuple[Wish, ...] = ("work", "latency", "memory")
TREES = Callable[[tuple[int, ...]], Iterator[Shape]]


@st.composite
def estimated_queries(draw: st.DrawFn, most_inputs: int) -> tuple[LogicalQuery, Estimates]:
    """A connected query with random rates, windows and selectivities."""
    inputs = draw(st.integers(3, most_inputs))
    numbers = st.integers(0, inputs - 1)
    classes = draw(st.lists(st.frozensets(numbers, min_size=2), max_size=3))
    for n in range(1, inputs):
        before = {m for members in classes if n in members for m in members if m < n}
        if not before:
            classes.append(frozenset({n, draw(st.integers(0, n - 1))}))
    windows = draw(st.lists(st.integers(1, 5_000_000), min_size=inputs, max_size=inputs))
    rates = draw(st.lists(st.floats(0.1, 1_000), min_size=inputs, max_size=inputs))
    equal = draw(st.lists(st.floats(0.001, 1), min_size=len(classes), max_size=len(classes)))
    query = query_of(inputs, classes, windows)
    return query, independent_estimates(query, rates, equal)


def _enumerated(query: LogicalQuery, estimates: Estimates, trees: TREES) -> list[JoinOrderCost]:
    costs = []
    for shape in trees(tuple(range(len(query.inputs)))):
        try:
            costs.append(order_cost(query, shape, estimates))
        except UnconnectedError:
            continue
    return costs


def _first(cost: JoinOrderCost, wish: Wish) -> float:
    """What is ranked by first."""
    return RANKINGS[wish](cost)[0]


@settings(deadline=None)
@given(estimated_queries(4), st.sampled_from(WISHES))
def test_the_best_order_is_the_best_of_all_trees(estimated: tuple[LogicalQuery, Estimates], wish: Wish) -> None:
    query, estimates = estimated
    best = min(_enumerated(query, estimates, all_trees), key=RANKINGS[wish])
    chosen = best_orders(query, estimates, wish)[0]
    assert _first(chosen, wish) == pytest.approx(_first(best, wish))
    # Exchanges are whole numbers, so that sums in another order cannot hide which is second.
    if wish == "latency":
        assert chosen.work == pytest.approx(best.work)


@settings(deadline=None, max_examples=20)
@given(estimated_queries(5), st.sampled_from(WISHES))
def test_no_connected_binary_tree_is_better_than_the_best(
    estimated: tuple[LogicalQuery, Estimates], wish: Wish
) -> None:
    query, estimates = estimated
    best = _first(best_orders(query, estimates, wish, most=1)[0], wish)
    assert all(best <= _first(cost, wish) * (1 + 1e-9) for cost in _enumerated(query, estimates, binary_trees))


@settings(deadline=None)
@given(estimated_queries(4), st.sampled_from(WISHES), st.integers(1, 12))
def test_the_most_best_orders_are_those_of_all_trees(
    estimated: tuple[LogicalQuery, Estimates], wish: Wish, most: int
) -> None:
    query, estimates = estimated
    different = {_keyed(query, cost.shape): cost for cost in _enumerated(query, estimates, all_trees)}
    expected = sorted(_first(cost, wish) for cost in different.values())[:most]
    orders = best_orders(query, estimates, wish, most)
    assert [_first(order, wish) for order in orders] == pytest.approx(expected)
    assert len({_keyed(query, order.shape) for order in orders}) == len(orders)


def _keyed(query: LogicalQuery, shape: Shape) -> object:
    """A tree with its keys, whatever the order of parts."""
    trees: list[object] = list(range(len(query.inputs)))
    for meeting in arrange(len(query.inputs), reaches(query.aliases, query.equalities), shape):
        trees.append((frozenset(trees[part] for part in meeting.parts), meeting.keys))
    return trees[-1]


@settings(deadline=None, max_examples=50)
@given(estimated_queries(6), st.sampled_from(WISHES))
def test_the_order_that_is_taken_where_nothing_is_said_is_among_those_that_are_searched(
    estimated: tuple[LogicalQuery, Estimates], wish: Wish
) -> None:
    query, estimates = estimated
    default = order_cost(query, None, estimates)
    assert _first(best_orders(query, estimates, wish)[0], wish) <= _first(default, wish) * (1 + 1e-9)


def test_streams_that_share_one_key_are_joined_at_once() -> None:
    query = query_of(4, [{0, 1, 2, 3}])
    estimates = independent_estimates(query, [100.0, 10.0, 10.0, 100.0], [0.05])
    for wish in WISHES:
        assert best_orders(query, estimates, wish)[0].text == "A B C D"


def test_the_most_selective_streams_of_a_chain_are_joined_first() -> None:
    query = query_of(4, [{0, 1}, {1, 2}, {2, 3}])
    estimates = independent_estimates(query, [100.0] * 4, [0.5, 0.3, 0.001])
    assert best_orders(query, estimates, "work")[0].text == "A (B (C D))"


def test_a_bushy_chain_has_fewer_exchanges_than_a_deep_one_and_is_the_best_for_latency() -> None:
    query = query_of(4, [{0, 1}, {1, 2}, {2, 3}])
    estimates = independent_estimates(query, [100.0] * 4, [0.5, 0.3, 0.001])
    best, *_ = best_orders(query, estimates, "latency")
    assert (best.text, best.exchanges) == ("(A B) (C D)", 2)


def test_inputs_that_nothing_connects_have_no_order() -> None:
    query = query_of(4, [{0, 1}, {2, 3}])
    with pytest.raises(UnconnectedError):
        best_orders(query, independent_estimates(query, [1.0] * 4, [0.1] * 2))


@pytest.mark.parametrize(
    "classes",
    [
        [range(MAX_INPUTS)],
        [range(MAX_INPUTS)] * 2,
        [(n, n + 1) for n in range(MAX_INPUTS - 1)],
        [(0, n) for n in range(1, MAX_INPUTS)],
        [(m, n) for n in range(MAX_INPUTS) for m in range(n)],
    ],
    ids=["one class", "two classes", "chain", "star", "a class per pair"],
)
@pytest.mark.parametrize("wish", WISHES)
def test_the_most_streams_there_can_be_are_ordered_in_little_time(classes: list[range], wish: Wish) -> None:
    query = query_of(MAX_INPUTS, classes)
    estimates = independent_estimates(query, [10.0 + n for n in range(MAX_INPUTS)], [0.1] * len(classes))
    before = time.process_time()
    assert len(best_orders(query, estimates, wish)) == 10
    assert time.process_time() - before < 5, "it is well below a second where nothing else runs"
