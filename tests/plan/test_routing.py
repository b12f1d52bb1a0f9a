"""Every group of every port is routed, and each combination of rows meets at exactly one processor."""

from __future__ import annotations

import json
from collections import Counter
from itertools import product
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import ConfigError
from anabranch.plan.placement import as_blocks, even_placement
from anabranch.plan.routing import (
    Everywhere,
    Owner,
    PortRouting,
    Routing,
    Spread,
    check_routing,
    check_routings,
    owned_by,
    port_routings,
    processors_of,
)
from tests.oracle.profiles import examples
from tests.plan.routings import routings

GROUPS, PROCESSORS = 16, 4
HOSTS = (1, 2)
SPREAD, EVERYWHERE = Spread(HOSTS, (1.0, 3.0)), Everywhere(HOSTS)
PLACED = Routing((1,) * GROUPS)


def sent(routing: PortRouting, groups: list[int], row_hashes: list[int]) -> list[set[int]]:
    rows, processors = processors_of(routing, np.array(groups, np.int64), np.array(row_hashes, np.uint64))
    found: list[set[int]] = [set() for _ in groups]
    for row, processor in zip(rows.tolist(), processors.tolist(), strict=True):
        assert processor not in found[row], "nobody gets a row twice"
        found[row].add(processor)
    return found


@examples(100)
@given(st.data(), st.integers(1, 3))
def test_every_combination_of_rows_meets_at_exactly_one_processor(data: st.DataObject, ports: int) -> None:
    routing = data.draw(routings(GROUPS, PROCESSORS, ports))
    check_routing(routing, ports, GROUPS, PROCESSORS)
    hashes = data.draw(st.lists(st.integers(0, 2**64 - 1), min_size=3, max_size=3))
    every = [(group, value) for group in range(GROUPS) for value in hashes]
    by_port = [sent(routing.port(n), [g for g, _ in every], [v for _, v in every]) for n in range(ports)]
    for group in range(GROUPS):
        rows = [number for number, (own, _) in enumerate(every) if own == group]
        for combination in product(rows, repeat=ports):
            assert len(set.intersection(*(by_port[n][row] for n, row in enumerate(combination)))) == 1


@examples(60)
@given(routings(GROUPS, PROCESSORS, 2))
def test_a_port_routes_every_group_as_the_operator_says(routing: Routing) -> None:
    for group in range(GROUPS):
        for n in range(2):
            route = routing.port(n).route(group)
            owner = routing.owner(group)
            assert route.hosts == routing.hosts(group)
            assert (owner is None) == (not isinstance(route, Owner))
            assert owner in (None, *route.hosts)
            assert routing.placement[group] in route.hosts


@examples(60)
@given(routings(GROUPS, PROCESSORS, 3))
def test_a_routing_survives_its_json(routing: Routing) -> None:
    assert Routing.from_json(json.loads(json.dumps(routing.to_json()))) == routing


def test_a_routing_with_owners_alone_is_stored_as_the_blocks_of_its_placement() -> None:
    placement = even_placement(256, 3)
    assert Routing(placement).to_json() == as_blocks(placement)
    assert all(not isinstance(route, dict) for route in Routing(placement).to_json())


def test_hosts_get_rows_by_their_weights_and_by_content_alone() -> None:
    hashes = np.random.default_rng(1).integers(0, 2**64, 40_000, np.uint64)
    groups = np.zeros(len(hashes), np.int64)
    routing = PLACED.diffuse([0], (SPREAD, EVERYWHERE)).port(0)
    rows, processors = processors_of(routing, groups, hashes)
    counts = Counter(processors.tolist())
    assert counts[1] == pytest.approx(10_000, rel=0.05)
    assert counts[2] == pytest.approx(30_000, rel=0.05)
    order = np.random.default_rng(2).permutation(len(hashes))
    again = dict(zip(order[processors_of(routing, groups, hashes[order])[0]].tolist(), range(len(hashes)), strict=True))
    shuffled = processors_of(routing, groups, hashes[order])[1]
    assert [shuffled[again[row]] for row in rows.tolist()] == processors.tolist()


@pytest.mark.parametrize(
    ("routing", "message"),
    [
        (Routing((1,) * (GROUPS - 1)), "15 of 16 groups have a processor"),
        (Routing((1,) * (GROUPS + 1)), "17 of 16 groups have a processor"),
        (Routing((1,) * 15 + (PROCESSORS,)), "group 15 is on processor 4 of 4"),
        (Routing((-1,) + (1,) * 15), "group 0 is on processor -1 of 4"),
        (PLACED.diffuse([3], (SPREAD,)), "group 3: 1 of 2 ports have a route"),
        (PLACED.diffuse([3], (SPREAD, SPREAD)), "exactly one port must be spread, not of 2"),
        (PLACED.diffuse([3], (EVERYWHERE, EVERYWHERE)), "exactly one port must be spread, not of 0"),
        (PLACED.diffuse([3], (SPREAD, Everywhere((1, 2, 3)))), "different hosts"),
        (PLACED.diffuse([3], (Spread((1, 1), (1, 1)), Everywhere((1, 1)))), "each once"),
        (PLACED.diffuse([3], (Spread((1, 4), (1, 1)), Everywhere((1, 4)))), "two or more of 4 processors"),
        (PLACED.diffuse([3], (Spread((1,), (1,)), Everywhere((1,)))), "two or more of 4 processors"),
        (PLACED.diffuse([3], (Spread((0, 2), (1, 1)), Everywhere((0, 2)))), "its home, processor 1, is no host"),
        (PLACED.diffuse([3], (Spread(HOSTS, (1,)), EVERYWHERE)), "a positive weight for each of 2 hosts"),
        *(
            (PLACED.diffuse([3], (Spread(HOSTS, (1.0, weight)), EVERYWHERE)), "a positive weight")
            for weight in (0.0, -1.0, inf, nan)
        ),
        (PLACED.diffuse([3], (Spread(HOSTS, (1e308, 1e308)), EVERYWHERE)), "too large"),
        (PLACED.diffuse([GROUPS], (SPREAD, EVERYWHERE)), "group 16 is diffused twice, out of order, or not there"),
        (Routing((1,) * GROUPS, ((3, (SPREAD, EVERYWHERE)),) * 2), "group 3 is diffused twice"),
    ],
)
def test_a_routing_that_breaks_a_rule_is_refused(routing: Routing, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_routing(routing, 2, GROUPS, PROCESSORS)


def test_a_grouping_cannot_be_diffused() -> None:
    with pytest.raises(ConfigError, match="operator 1 cannot be routed: group 3: only what joins can be diffused"):
        check_routings([PLACED, PLACED.diffuse([3], (SPREAD,))], [0, 0, 1], GROUPS, PROCESSORS)
    with pytest.raises(ConfigError, match="routings of 1 operators, but 2 operators"):
        check_routings([PLACED], [0, 0, 1], GROUPS, PROCESSORS)


def test_groups_that_have_moved_have_their_new_owner_and_others_stay() -> None:
    routing = PLACED.diffuse([3], (SPREAD, EVERYWHERE)).moved({4, 5}, 0)
    assert [routing.owner(group) for group in range(6)] == [1, 1, 1, None, 0, 0]


def test_many_groups_and_operators_share_what_they_have_in_common() -> None:
    ports = port_routings(owned_by([even_placement(65_536, 64)] * 2), [0, 0, 1, 1, 1])
    assert len(set(ports)) == 1, "and are rendered once"
