"""Patterns: every operator exactly once, on processors that are there, and what each of them promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import ConfigError
from anabranch.manager.patterns import FewestRounds, Grouping, OperatorGraph, RoundRobin, Spread
from anabranch.manager.patterns.named import PATTERNS, pattern_of
from anabranch.manager.patterns.pattern import check_placed, placements_of
from anabranch.plan.placement import even_placement
from tests.manager.patterns.graphs import chain, graph_of, graphs
from tests.oracle.profiles import examples

GROUPS = 8
counts = st.integers(1, 5)


@examples(100)
@given(graphs(), counts, st.sampled_from(sorted(PATTERNS)))
def test_every_operator_is_placed_exactly_once_on_processors_that_are_there(
    graph: OperatorGraph, processors: int, name: str
) -> None:
    some = tuple(range(3, 3 + processors))
    given = check_placed(PATTERNS[name], graph, some, PATTERNS[name].place(graph, some))
    assert sorted(given) == list(range(len(graph.operators)))
    placements = placements_of(PATTERNS[name], graph, GROUPS, processors)
    assert {len(placement) for placement in placements} == {GROUPS}
    assert {p for placement in placements for p in placement} <= set(range(processors))


@examples(100)
@given(graphs(), counts)
def test_round_robin_gives_every_processor_as_many_operators_or_one_less(graph: OperatorGraph, processors: int) -> None:
    workload = Counter(RoundRobin().place(graph, range(processors)).values())
    assert max(workload[p] for p in range(processors)) - min(workload[p] for p in range(processors)) <= 1


@examples(100)
@given(graphs(), counts)
def test_grouping_gives_no_processor_more_operators_than_the_average_rounded_up(
    graph: OperatorGraph, processors: int
) -> None:
    workload = Counter(Grouping().place(graph, range(processors)).values())
    assert max(workload.values()) <= -(-len(graph.operators) // processors)


@examples(50)
@given(st.integers(1, 20), counts)
def test_grouping_cuts_a_chain_as_seldom_as_there_are_further_processors(length: int, processors: int) -> None:
    graph = chain(length)
    crossing = {
        name: graph.flow.count(placements_of(PATTERNS[name], graph, GROUPS, processors)).crossing for name in PATTERNS
    }
    assert crossing["grouping"] <= processors - 1
    assert crossing["round-robin"] == (length - 1 if processors > 1 else 0)


@examples(200)
@given(graphs(), counts)
def test_fewest_rounds_needs_no_more_rounds_than_any_other_pattern(graph: OperatorGraph, processors: int) -> None:
    rounds = {
        name: graph.flow.count(placements_of(PATTERNS[name], graph, GROUPS, processors)).rounds for name in PATTERNS
    }
    assert rounds["fewest-rounds"] == min(rounds.values()) == graph.flow.rounds().count


@examples(200)
@given(graphs(), counts)
def test_fewest_rounds_gives_nobody_more_than_a_fair_share_and_one_family(
    graph: OperatorGraph, processors: int
) -> None:
    homes = FewestRounds().place(graph, range(processors))
    families = graph.families()
    work = {n: op.fan_in**2 for n, op in enumerate(graph.operators) if homes[n] is not None}
    heaviest = max((sum(work.get(m, 0) for m in work if families[m] == families[n]) for n in work), default=0)
    for p in range(processors):
        assert sum(work[n] for n in work if homes[n] == p) <= sum(work.values()) / processors + heaviest


def test_five_joins_on_one_key_are_one_round_wherever_there_are_processors() -> None:
    joins = graph_of([[]] + [[n, n] for n in range(4)])
    assert FewestRounds().place(joins, range(4)) == dict.fromkeys(range(5)), "all of it is too much for one of them"
    assert FewestRounds().place(joins, [7]) == dict.fromkeys(range(5), 7)


def test_neighbours_of_a_whole_family_come_to_it_while_it_has_room() -> None:
    # Two chains of two operators that share no key: two families each, and an edge between them.
    graph = graph_of([[], [0], [], [2]], keys=["w", "x", "y", "z"])
    homes = FewestRounds().place(graph, range(2))
    assert graph.flow.count(placements_of(FewestRounds(), graph, GROUPS, 2)).crossing == 0
    assert homes[0] == homes[1] != homes[2] == homes[3]


def test_what_is_spread_is_on_all_processors_or_on_those_that_a_pattern_names() -> None:
    class Half:
        def place(self, graph: OperatorGraph, processors: Sequence[int]) -> Mapping[int, int | tuple[int, ...] | None]:
            return {0: None, 1: (0, 2), 2: 1}

    assert placements_of(Half(), chain(3), 4, 3) == ((0, 0, 1, 2), (0, 0, 2, 2), (1, 1, 1, 1))
    assert placements_of(Spread(), chain(1), 8, 2) == (even_placement(8, 2),)
    assert placements_of(Spread(), chain(1), 8, 2, shares=[3, 1]) == ((0,) * 6 + (1,) * 2,)


@pytest.mark.parametrize(
    ("gives", "told"),
    [
        ({0: 0}, "does not place operator 1 .* exactly once"),
        ({0: 0, 1: 2}, "places operator 1 on 2; the processors are 0, 1"),
        ({0: 0, 1: (0, 9)}, r"places operator 1 on \(0, 9\)"),
        ({0: 0, 1: ()}, "places operator 1 on"),
        ({0: 0, 1: 1, 2: 0}, "there are those from 0 to 1"),
        ({0: 0, 1: True}, "places operator 1 on True"),
        ([0, 1], "must give a dict"),
    ],
)
def test_a_placement_that_is_not_valid_is_refused(gives: object, told: str) -> None:
    class Wrong:
        def place(self, graph: OperatorGraph, processors: Sequence[int]) -> object:
            return gives

    with pytest.raises(ConfigError, match=told):
        placements_of(Wrong(), chain(2), GROUPS, 2)  # type: ignore[arg-type]


def test_patterns_have_names_and_what_is_none_is_refused() -> None:
    assert pattern_of("grouping") == Grouping()
    with pytest.raises(ConfigError, match="there is no placement 'groupng'; did you mean 'grouping'"):
        pattern_of("groupng")
    with pytest.raises(ConfigError, match=r"write Grouping\(\) instead of Grouping"):
        pattern_of(Grouping)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="a pattern such as ab.Grouping"):
        pattern_of(None)  # type: ignore[arg-type]
