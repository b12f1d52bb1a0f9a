"""Rounds: every operator after what it needs, and no exchange that is not needed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.plan.rounds import Dataflow, Edge, compile_rounds


@st.composite
def plans(draw: st.DrawFn) -> tuple[list[int], list[Edge], list[tuple[int, ...]]]:
    """Operators with keys, the tree above each other, and a placement for each."""
    operators = draw(st.integers(1, 7))
    keys = draw(st.lists(st.integers(0, 2), min_size=operators, max_size=operators))
    places = st.sampled_from([(0, 0, 1, 1), (0, 1, 0, 1), (1, 1, 1, 1)])
    placements = draw(st.lists(places, min_size=operators, max_size=operators))
    edges = [
        Edge(lower, draw(st.integers(lower + 1, operators - 1)), 0, crosses=draw(st.booleans()))
        for lower in range(operators - 1)
    ]
    return keys, edges, placements


@given(plans())
def test_an_edge_crosses_exactly_if_rows_have_to_move_and_then_costs_a_round(
    plan: tuple[list[int], list[Edge], list[tuple[int, ...]]],
) -> None:
    keys, edges, placements = plan
    rounds = compile_rounds(keys, edges, placements)
    assert sorted((*rounds.crossing, *rounds.local), key=repr) == sorted(edges, key=repr)
    for edge in edges:
        alike = (keys[edge.lower], placements[edge.lower]) == (keys[edge.upper], placements[edge.upper])
        assert (edge in rounds.local) == (alike and not edge.crosses)
        assert rounds.of[edge.upper] >= rounds.of[edge.lower] + (edge in rounds.crossing)


@given(plans())
def test_no_operator_runs_later_than_it_has_to(plan: tuple[list[int], list[Edge], list[tuple[int, ...]]]) -> None:
    keys, edges, placements = plan
    rounds = compile_rounds(keys, edges, placements)
    for n, number in enumerate(rounds.of):
        below = [rounds.of[edge.lower] + (edge in rounds.crossing) for edge in edges if edge.upper == n]
        assert number == max(below, default=0)
    assert sorted(n for number in range(rounds.count) for n in rounds.operators(number)) == list(range(len(keys)))


def test_a_bushy_chain_of_three_keys_takes_two_rounds_and_a_deep_one_three() -> None:
    bushy = compile_rounds(["x", "z", "y"], [Edge(0, 2, 0), Edge(1, 2, 1)])
    assert (bushy.of, bushy.count) == ((0, 0, 1), 2)
    deep = compile_rounds(["x", "y", "z"], [Edge(0, 1, 0), Edge(1, 2, 0)])
    assert (deep.of, deep.count) == ((0, 1, 2), 3)


def test_a_tree_on_one_key_is_one_round() -> None:
    rounds = compile_rounds(["x"] * 3, [Edge(0, 1, 0), Edge(1, 2, 0)])
    assert (rounds.count, rounds.crossing) == (1, ())


def test_an_operator_before_its_input_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="operator 0 is numbered before its input"):
        compile_rounds(["x", "x"], [Edge(1, 0, 0)])


@given(plans())
def test_an_edge_crosses_processors_if_its_ends_are_not_whole_on_one_and_not_fused(
    plan: tuple[list[int], list[Edge], list[tuple[int, ...]]],
) -> None:
    keys, edges, placements = plan
    flow = Dataflow(tuple(keys), tuple(edges))
    counts, rounds = flow.count(placements), flow.rounds(placements)
    assert counts.rounds == rounds.count
    on_one = [edge for edge in edges if len({*placements[edge.lower], *placements[edge.upper]}) == 1]
    assert counts.crossing == len([edge for edge in rounds.crossing if edge not in on_one]) == len(counts.senders)
