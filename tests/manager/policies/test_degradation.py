"""Degradation lets a processor whose cost got worse shed its costliest operators, those first that remove an edge."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.manager.costs import CpuTime, NetworkOutputRate
from anabranch.manager.costs.cost_table import cost_table
from anabranch.manager.policies.degradation import Degradation
from anabranch.manager.policies.redistribution import FIRST_REST, SAMPLE, Eligible
from tests.manager.placed import PlacedCluster, placed

# Five joins one above the other; each gives twice what it gets.
CHAIN = {n: (n - 1,) for n in range(1, 5)}


def test_nothing_moves_while_costs_are_what_they_were() -> None:
    cluster = PlacedCluster(Degradation(CpuTime()), [0, 0, 0, 1], 2)
    cluster.run(50, lambda _: {"cpu": [0.3, 0.3, 0.3, 0.01]})
    assert cluster.moves == []


def test_a_processor_that_got_worse_sheds_its_costliest_operator() -> None:
    cluster = PlacedCluster(Degradation(CpuTime()), [0, 0, 1], 2)
    cluster.run(40, lambda batch: {"cpu": [0.1, 0.2, 0.1] if batch <= SAMPLE else [0.2, 0.4, 0.1]})
    assert cluster.moves[0][1:] == (1, 1)
    assert len(cluster.moves) == 1, "what it has then is the new measure"


def test_an_operator_whose_move_removes_a_crossing_edge_goes_first_and_to_the_other_end_of_it() -> None:
    seen = placed([0, 0, 1, 2], 3, fed_by={2: (0,)}, cpu=[0.3, 0.4, 0.1, 0.0])
    moves = list(Degradation(CpuTime()).moves(cost_table(CpuTime(), seen), Eligible(), {0: 0.5, 1: 0.1, 2: 0.0}))
    assert moves[0][:2] == (0, 1)
    assert "1 edge fewer will cross" in moves[0].reason


def test_it_sheds_until_it_is_as_it_was() -> None:
    seen = placed([0] * 4, 3, cpu=[0.1, 0.1, 0.1, 0.1])
    moves = list(Degradation(CpuTime()).moves(cost_table(CpuTime(), seen), Eligible(), {0: 0.2, 1: 0.0, 2: 0.0}))
    assert len(moves) == 2
    assert {move.processor for move in moves} == {1, 2}


def test_where_all_got_worse_nothing_moves_but_what_removes_an_edge() -> None:
    load = {0: 0.1, 1: 0.1}
    apart = placed([0, 0, 1], 2, cpu=[0.2, 0.2, 0.3])
    assert list(Degradation(CpuTime()).moves(cost_table(CpuTime(), apart), Eligible(), load)) == []
    joined = placed([0, 0, 1], 2, fed_by={2: (0,)}, cpu=[0.2, 0.2, 0.2])
    [move] = Degradation(CpuTime()).moves(cost_table(CpuTime(), joined), Eligible(), load)
    assert move[:2] == (0, 1)


def test_a_chain_that_was_dealt_out_in_turn_comes_together_while_its_windows_fill() -> None:
    cluster = PlacedCluster(Degradation(), list(range(5)), 5, CHAIN)

    def load(batch: int) -> dict[str, Sequence[float]]:
        return {"results": [10 * batch * 2**n for n in range(5)]}

    before = cluster.crossing()
    cluster.run(60, load)
    assert before == 4
    assert cluster.crossing() <= 1
    sent = cost_table(NetworkOutputRate(), placed(cluster.homes, 5, fed_by=CHAIN, results=[1, 2, 4, 8, 16]))
    assert sum(map(sent.cost, range(5))) <= 15 / 100 / 2, "at most half of what the first placement sends"


def test_an_edge_with_many_rows_goes_before_two_with_few() -> None:
    # Operator 0 has two edges to processor 1, operator 3 one that carries more; both begin on processor 0.
    seen = placed([0, 1, 1, 0, 2], 3, fed_by={1: (0,), 2: (0,), 4: (3,)}, results=[10, 0, 0, 500, 0])
    table = cost_table(NetworkOutputRate(), seen)
    first, *_ = Degradation().moves(table, Eligible(), {0: 1.0, 1: 0.0, 2: 0.0})
    assert first[:2] == (3, 2)
    assert (table.saved(3, 2), table.saved(3, 1)) == (5.0, 0.0)
    moved = table.moved(3, 2)
    assert (moved.cost(0), moved.cost(2)) == (0.1, 0.0), "nothing is sent any more, so nobody gets heavier by it"
    assert table.moved(4, 0).cost(0) == 0.1, "nor if the one that takes the rows comes to them"


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.floats(0.01, 1)), min_size=1, max_size=9),
    st.lists(st.floats(0, 1), min_size=3, max_size=3),
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=12),
)
def test_no_receiver_becomes_heavier_than_its_sender_was_and_no_move_adds_an_edge(
    operators: Sequence[tuple[int, float]], before: Sequence[float], pairs: Sequence[tuple[int, int]]
) -> None:
    fed_by: dict[int, tuple[int, ...]] = {}
    for lower, upper in pairs:
        if lower < upper < len(operators):
            fed_by[upper] = (*fed_by.get(upper, ()), lower)
    seen = placed([home for home, _ in operators], 3, fed_by=fed_by, cpu=[cost for _, cost in operators])
    table = cost_table(CpuTime(), seen)
    moved = []
    for operator, receiver, _ in Degradation(CpuTime()).moves(table, Eligible(), dict(enumerate(before))):
        sender = table.operators[operator].home
        assert sender is not None
        assert table.edges_removed(operator, receiver) >= 0
        was = table.cost(sender)
        table = table.moved(operator, receiver)
        assert table.cost(receiver) <= was + 1e-9
        moved.append(operator)
    assert len(moved) == len(set(moved))


@settings(deadline=None)
@given(st.integers(1, 30))
def test_a_load_that_comes_and_goes_moves_no_operator_more_than_a_few_times(length: int) -> None:
    batches = 400
    cluster = PlacedCluster(Degradation(CpuTime()), [0, 0, 1, 1], 2)
    turned = ([0.1, 0.1, 0.6, 0.6], [0.6, 0.6, 0.1, 0.1])
    cluster.run(batches, lambda batch: {"cpu": turned[batch // length % 2]})
    for n in range(4):
        assert sum(operator == n for _, operator, _ in cluster.moves) <= 1 + log2(1 + batches / FIRST_REST)
