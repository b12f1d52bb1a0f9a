"""Hosts of a spread group are filled like water: all that get any of it have the same load, and none could get less."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.manager.policies.hot_groups.spreading import Cluster, HotGroup, spread_out

LOADS = st.lists(st.tuples(st.floats(0, 10), st.sampled_from([1.0, 2.0, 4.0])), min_size=2, max_size=8)


def cluster_of(processors: list[tuple[float, float]]) -> Cluster:
    return Cluster(
        {p: load for p, (load, _) in enumerate(processors)}, {p: slow for p, (_, slow) in enumerate(processors)}
    )


@settings(deadline=None, max_examples=50)
@given(LOADS, st.floats(0.01, 20), st.floats(0, 5))
def test_all_hosts_have_the_same_load_and_who_is_left_out_had_more(
    processors: list[tuple[float, float]], shared: float, copied: float
) -> None:
    cluster, hot = cluster_of(processors), HotGroup(0, 0, 0, 0, shared, copied)
    hosts = cluster.level(hot, range(len(processors)))
    assert sum(hosts.parts) == pytest.approx(1)
    after = cluster.add(hot, hosts)
    heights = [after.loads[p] for p in hosts.processors]
    assert max(heights) <= min(heights) + 0.01 * shared * max(cluster.slowness.values())
    for p in {*range(len(processors))} - {*hosts.processors}:
        assert cluster.loads[p] + cluster.slowness[p] * copied >= min(heights) * 0.99 - 0.01 * shared


@settings(deadline=None, max_examples=50)
@given(LOADS, st.lists(st.tuples(st.floats(0.1, 20), st.floats(0, 5)), min_size=1, max_size=3), st.integers(2, 8))
def test_spreading_never_makes_the_busiest_processor_busier(
    processors: list[tuple[float, float]], groups: list[tuple[float, float]], most: int
) -> None:
    empty = cluster_of(processors)
    hot = [HotGroup(0, n, n % len(processors), 0, *work) for n, work in enumerate(groups)]
    alone = empty
    for each in hot:
        alone = alone.add(each, empty.level(each, [each.home]))
    after, chosen = spread_out(empty, hot, most)
    assert max(after.loads.values()) <= max(alone.loads.values()) * (1 + 1e-9)
    assert all(1 <= len(chosen[each].processors) <= most for each in hot)


def test_the_best_number_of_hosts_is_where_the_next_one_costs_all_more_than_it_saves_one() -> None:
    """As in figure 4 of the paper, on many processors: more hosts would only multiply what is copied."""
    empty = Cluster(dict.fromkeys(range(100), 0.0), dict.fromkeys(range(100), 1.0))
    groups = [HotGroup(0, n, 10 * n, 0, 10.0, 1.0) for n in range(10)]
    after, chosen = spread_out(empty, groups, 100)
    hosts = {len(chosen[each].processors) for each in groups}
    assert 8 <= min(hosts) <= max(hosts) <= 12
    everywhere = 10 * (1.0 + 10.0 / 100)
    assert max(after.loads.values()) < everywhere / 4
