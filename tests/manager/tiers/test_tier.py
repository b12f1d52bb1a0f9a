"""Tiers: queries are put on clusters, operators on the processors of their cluster, and what makes no sense is
refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import ConfigError
from anabranch.manager.patterns import Grouping, OperatorGraph, Tier
from anabranch.manager.patterns.named import PATTERNS
from anabranch.manager.patterns.pattern import placements_of
from anabranch.manager.tiers.clusters import checked_clusters
from anabranch.manager.tiers.queries import at_home, check_stays, holds, wanted
from anabranch.plan.allocation import KnownAllocation
from tests.manager.patterns.graphs import graph_of, graphs
from tests.oracle.profiles import examples

GROUPS = 16
TWO = {"eu": [0, 1], "us": [2, 3]}


def asked(graph: OperatorGraph, **wishes: str | None) -> OperatorGraph:
    return replace(graph, wishes=wishes)


@st.composite
def tiers(draw: st.DrawFn) -> Tier:
    """Clusters of one to three processors, in any order, with any pattern inside."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    numbers = iter(draw(st.permutations(range(sum(sizes)))))
    clusters = {f"cluster {n}": [next(numbers) for _ in range(size)] for n, size in enumerate(sizes)}
    return Tier(clusters, draw(st.sampled_from(sorted(PATTERNS))))


@examples(200)
@given(graphs(), tiers(), st.data())
def test_all_operators_of_a_query_are_within_the_cluster_that_it_wants(
    graph: OperatorGraph, tier: Tier, data: st.DataObject
) -> None:
    clusters = checked_clusters(tier.clusters)
    wish = data.draw(st.none() | st.sampled_from(sorted(clusters.named)))
    graph = asked(graph, a=wish, b=None)
    placements = placements_of(tier, graph, GROUPS, clusters.count)
    homes: dict[str | None, set[str | None]] = {}
    for operator, placement in zip(graph.operators, placements, strict=True):
        homes.setdefault(operator.owner, set()).add(clusters.of_processors(placement))
    assert all(len(found) == 1 and None not in found for found in homes.values()), homes
    assert wish is None or homes.get("a", {wish}) == {wish}


@examples(100)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), tiers())
def test_a_query_goes_where_the_fewest_operators_are_for_each_processor_whatever_comes_later(
    sizes: list[int], tier: Tier
) -> None:
    clusters = checked_clusters(tier.clusters)
    names = [f"q{n}" for n in range(len(sizes))]
    owners = [name for name, size in zip(names, sizes, strict=True) for _ in range(size)]
    graph = replace(graph_of([[] for _ in owners], queries=owners), wishes=dict.fromkeys(names))
    homes, load = tier.assign(graph), Counter[str]()
    for name, size in zip(names, sizes, strict=True):
        share = {cluster: load[cluster] / len(hosts) for cluster, hosts in clusters.named.items()}
        assert share[homes[name]] == min(share.values())
        load[homes[name]] += size
    first = graph.part(range(sum(sizes[:-1])))
    fewer = tier.assign(replace(first, wishes=dict.fromkeys(names[:-1])))
    assert [fewer[name] for name in names[:-1]] == [homes[name] for name in names[:-1]]


def test_an_operator_that_is_shared_is_in_the_cluster_of_the_first_of_its_queries() -> None:
    graph = graph_of([[], [0], [0]], queries=["a", "a", "b"])
    shared = replace(graph.operators[0], queries=("a", "b"))
    graph = asked(replace(graph, operators=(shared, *graph.operators[1:])), a="eu", b="us")
    assert Tier(TWO, Grouping()).place(graph, range(4)) == {0: (0,), 1: (1,), 2: (2,)}


def known(placements: dict[str, tuple[int, ...]], wishes: dict[str, tuple[int, ...]]) -> KnownAllocation:
    return KnownAllocation(4, placements, dict.fromkeys(placements, 0), frozenset(), 4, wishes)


def test_a_query_stays_where_it_was_assigned_and_what_it_gets_new_goes_where_it_is() -> None:
    clusters = checked_clusters(TWO)
    graph = asked(graph_of([[], [0], []], queries=["a", "a", "b"]), a=None, b=None)
    sent = known({"op0": (0, 1), "op2": (2, 3)}, {"op0": (2, 3), "op2": (2, 3)})
    assert holds(clusters, sent)
    assert wanted(graph, clusters, sent).wishes == {"a": "us", "b": "us"}, "whatever has been removed since"
    assert wanted(asked(graph, a="eu", b=None), clusters, sent).wishes == {"a": "eu", "b": "us"}
    assert at_home(graph, clusters, sent).wishes == {"a": "eu", "b": "us"}, "it was sent"
    assert not holds(clusters, known({"op0": (1, 2)}, {})), "over two clusters, from before there were any"
    diffused = replace(sent, hosts={"op0": frozenset({0, 1, 2})})
    assert not holds(clusters, diffused), "a part of it, or what is on its way, is in another cluster"
    assert wanted(graph, None, sent) is graph


def test_another_query_in_the_place_of_one_does_not_want_to_be_elsewhere() -> None:
    clusters = checked_clusters(TWO)
    graph = asked(graph_of([[], [0], []], queries=["a", "a", "b"]), a="eu", b=None)
    sent = ((2, 3), (2, 3), (2, 3))
    for wish in (None, "eu", "us"):
        check_stays(graph, clusters, sent, "a", wish)
    with pytest.raises(
        ConfigError, match=r"'b' is in cluster 'us' .*; leave cluster='eu' out, .* run.send\('b', to='eu'"
    ):
        check_stays(graph, clusters, sent, "b", "eu")


@pytest.mark.parametrize(
    ("clusters", "told"),
    [
        ({}, "clusters are such as"),
        ([[0], [1]], "clusters are such as"),
        ({"": [0]}, "clusters are such as"),
        ({"eu": []}, "'eu' needs a list of processors"),
        ({"eu": "01"}, "'eu' needs a list of processors"),
        ({"eu": [0.5]}, "'eu' lists 0.5"),
        ({"eu": [-1, 0]}, "'eu' lists -1"),
        ({"eu": [True, 0]}, "'eu' lists True"),
        ({"eu": [0, 1], "us": [1, 2]}, "processor 1 is listed in the clusters 'eu' and 'us'"),
        ({"eu": [0, 0]}, "processor 0 is listed in the cluster 'eu', twice"),
        ({"eu": [0], "us": [2]}, "processor 1 is in no cluster"),
    ],
)
def test_clusters_that_make_no_sense_are_refused(clusters: object, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Tier(clusters)  # type: ignore[arg-type]


def test_a_tier_keeps_its_clusters_whatever_becomes_of_those_that_it_was_given() -> None:
    given = {"eu": [0, 1], "us": [2]}
    tier = Tier(given)
    given["us"].append(3)
    del given["eu"]
    assert tier == Tier({"eu": (0, 1), "us": (2,)})


def test_other_arguments_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="there is no placement 'groupng'; did you mean 'grouping'"):
        Tier(TWO, "groupng")
    with pytest.raises(ConfigError, match="cannot be a Tier"):
        Tier(TWO, Tier(TWO))
    with pytest.raises(ConfigError, match="there is no cluster 'asia'"):
        Tier(TWO).place(asked(graph_of([[]]), q="asia"), range(4))
