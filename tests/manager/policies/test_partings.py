"""Joins that run fused with others are set apart where that pays the round that it costs, and never to and fro."""

from __future__ import annotations

from collections.abc import Callable
from math import log2

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.manager.actions import PartOperator
from anabranch.manager.policies.diffusion import FIRST_REST, LAST_REST, Diffusion
from tests.manager.policies.diffused import GROUPS, Batch, DiffusedCluster, batch

HOT = 3


def steady(rows: Batch) -> Callable[[int], Batch]:
    return lambda _: rows


def fused(**fields: float) -> DiffusedCluster:
    return DiffusedCluster(Diffusion(), fused=True, **fields)  # type: ignore[arg-type]


def test_a_fused_join_is_set_apart_with_all_its_hot_groups_and_joins_again_when_none_is_diffused() -> None:
    cluster = fused(round_seconds=0.001)
    cluster.run(60, steady(batch({HOT: (6_000, 6_000), 8: (7_000, 3_000)})))
    [(number, action)] = cluster.actions
    assert isinstance(action, PartOperator)
    assert (number, action.name) == (5, "join 0")
    assert {group for diffusion in action.diffusions for group in diffusion.groups} == {HOT, 8}
    assert "with 1.0 ms for being apart from the join 1" in action.reason
    assert cluster.busiest < 1.2
    cluster.run(60, steady(batch({})))
    assert (cluster.apart, cluster.routing.diffused, cluster.parted) == (False, (), 1)


def test_a_round_that_costs_more_than_diffusion_saves_is_not_paid() -> None:
    rows = batch({HOT: (6_000, 6_000)})
    free = fused()
    free.run(10, steady(rows))
    before, after = 0.086, 0.021  # seconds of the busiest processor without diffusion, and with it
    assert free.parted == 1
    for seconds, parted in (((before - after) / 2, 1), (before - after, 0)):
        cluster = fused(round_seconds=seconds)
        cluster.run(60, steady(rows))
        assert cluster.parted == parted


def test_what_was_asked_for_is_waited_for_before_it_is_asked_for_again() -> None:
    cluster = fused()
    load = batch({HOT: (6_000, 6_000)})
    cluster.carry_out = lambda _: None  # type: ignore[method-assign, assignment]
    cluster.run(8, steady(load))
    assert [number for number, _ in cluster.actions] == [5]
    cluster.run(12, steady(load))
    assert [number for number, _ in cluster.actions] == [5, 10, 15, 20]


def most_partings(batches: int) -> float:
    """How often an operator may be set apart."""
    return 1 + log2(1 + batches / FIRST_REST) + batches / LAST_REST


@pytest.mark.parametrize("every", [5, 19])
def test_skew_that_comes_and_goes_parts_a_bounded_number_of_times(every: int) -> None:
    cluster = fused()
    cluster.run(300, lambda n: batch({HOT: (6_000, 6_000)} if n // every % 2 else {}))
    assert 1 <= cluster.parted <= most_partings(300)


@pytest.mark.parametrize("every", [3, 7])
def test_a_hot_key_that_wanders_from_group_to_group_does_not_part_an_operator_each_time(every: int) -> None:
    cluster = fused()
    cluster.run(300, lambda n: batch({n // every % GROUPS: (6_000, 6_000)}))
    assert cluster.parted <= most_partings(300)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 3), st.integers(1, 80), st.integers(1, 80)), max_size=8))
def test_whatever_the_load_does_no_operator_parts_more_often_than_that(
    phases: list[tuple[int, int, int, int]],
) -> None:
    cluster = DiffusedCluster(Diffusion(), fused=True, noise=0.2, round_seconds=0.002)
    for batches, group, first, second in phases:
        cluster.run(batches, steady(batch({4 * group: (100 * first, 100 * second)})))
    assert cluster.parted <= most_partings(max(cluster.number, 1))
