"""Diffusion spreads groups that are more than a processor's fair share, as widely as pays, and never to and fro."""

from __future__ import annotations

from collections.abc import Callable
from math import log2

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import ConfigError
from anabranch.manager.actions import DiffuseGroups
from anabranch.manager.policies.diffusion import FIRST_REST, LAST_REST, Diffusion
from tests.manager.policies.diffused import GROUPS, Batch, DiffusedCluster, batch

HOT = 3


def steady(rows: Batch) -> Callable[[int], Batch]:
    return lambda _: rows


def test_a_group_that_no_placement_can_balance_is_spread_after_a_period_and_then_stays_so() -> None:
    cluster = DiffusedCluster(Diffusion())
    cluster.run(4, steady(batch({HOT: (1_500, 1_500)})))
    assert cluster.busiest > 2
    assert cluster.actions == []
    cluster.run(60, steady(batch({HOT: (1_500, 1_500)})))
    assert [number for number, _ in cluster.actions] == [5]
    assert cluster.busiest < 1.1
    assert len(cluster.hosts(HOT)) == 4


def test_groups_that_fit_a_processor_are_left_alone() -> None:
    cluster = DiffusedCluster(Diffusion())
    cluster.run(50, steady(batch({HOT: (400, 400)})))
    assert cluster.actions == []


def test_the_faster_stream_is_the_master_so_that_the_slower_one_is_replicated() -> None:
    for rows, master in (((2_000, 500), 0), ((500, 2_000), 1), ((100, 50, 3_000), 2)):
        cluster = DiffusedCluster(Diffusion(), ports=len(rows))
        cluster.run(6, steady(batch({HOT: rows}, ports=len(rows))))
        assert cluster.master(HOT) == master
        overhead = (len(cluster.hosts(HOT)) - 1) * (sum(rows) - max(rows))
        came = sum(rows) + 100 * len(rows) * (GROUPS - 1)
        assert sum(cluster.rows) == pytest.approx(came + overhead, abs=len(cluster.hosts(HOT)))


def test_each_further_host_has_to_save_more_than_it_costs() -> None:
    few = DiffusedCluster(Diffusion(), processors=8)
    few.run(6, steady(batch({HOT: (2_000, 2_000)}, cold=1, results=0.0)))
    many = DiffusedCluster(Diffusion(), processors=8)
    many.run(6, steady(batch({HOT: (2_000, 2_000)}, cold=1, results=50.0)))
    assert (len(few.hosts(HOT)), len(many.hosts(HOT))) == (3, 8), "the next of k hosts saves shared / k (k + 1)"


def test_no_group_gets_more_hosts_than_it_may() -> None:
    cluster = DiffusedCluster(Diffusion(hosts=2))
    cluster.run(6, steady(batch({HOT: (1_500, 1_500)})))
    assert len(cluster.hosts(HOT)) == 2


def test_the_least_loaded_processors_become_hosts() -> None:
    cluster = DiffusedCluster(Diffusion(hosts=3), processors=4)
    crowded = dict.fromkeys(range(8, 12), (400, 400))
    cluster.run(6, steady(batch({HOT: (6_000, 6_000), **crowded})))
    assert cluster.routing.placement[8] == 2
    assert set(cluster.hosts(HOT)) == {0, 1, 3}


def test_hosts_with_other_work_or_less_speed_get_less() -> None:
    cluster = DiffusedCluster(Diffusion(), slow={2: 3.0})
    cluster.run(6, steady(batch({HOT: (4_000, 4_000)}, cold=200)))
    weights = dict(zip(cluster.hosts(HOT), cluster.weights(HOT), strict=True))
    assert weights.get(2, 0.0) < weights[1] / 2
    cluster = DiffusedCluster(Diffusion())
    cluster.run(6, steady(batch({HOT: (4_000, 4_000), 8: (900, 900)}, cold=50)))
    weights = dict(zip(cluster.hosts(HOT), cluster.weights(HOT), strict=True))
    assert weights[2] < weights[1]
    assert cluster.busiest < 1.2


def test_a_host_that_turns_out_to_be_slow_gets_less() -> None:
    cluster = DiffusedCluster(Diffusion(), slow={2: 2.0})
    cluster.run(6, steady(batch({HOT: (4_000, 4_000)}, cold=1)))
    before = dict(zip(cluster.hosts(HOT), cluster.weights(HOT), strict=True))
    cluster.run(FIRST_REST, steady(batch({HOT: (4_000, 4_000)}, cold=1)))
    after = dict(zip(cluster.hosts(HOT), cluster.weights(HOT), strict=True))
    assert after.get(2, 0.0) < before[2] / 1.5
    assert len(cluster.actions) == 2


def test_two_hot_groups_are_spread_together() -> None:
    cluster = DiffusedCluster(Diffusion())
    cluster.run(6, steady(batch({HOT: (3_000, 2_000), 9: (2_000, 3_000)})))
    assert cluster.busiest < 1.2
    assert (cluster.master(HOT), cluster.master(9)) == (0, 1)


def test_the_master_changes_when_rates_cross_by_more_than_the_hysteresis() -> None:
    cluster = DiffusedCluster(Diffusion(hysteresis=1.2))
    cluster.run(40, steady(batch({HOT: (2_000, 1_000)})))
    cluster.run(40, steady(batch({HOT: (1_450, 1_550)})))
    assert cluster.master(HOT) == 0
    cluster.run(6, steady(batch({HOT: (1_000, 2_000)})))
    assert cluster.master(HOT) == 1
    number, last = cluster.actions[-1]
    assert "rows of B come in a batch" in last.reason
    assert number <= 86


def test_what_is_not_hot_any_more_is_gathered_once_it_has_rested() -> None:
    cluster = DiffusedCluster(Diffusion())
    cluster.run(6, steady(batch({HOT: (1_500, 1_500)})))
    cluster.run(FIRST_REST - 2, steady(batch({})))
    assert cluster.left() == 0
    cluster.run(3, steady(batch({})))
    assert cluster.left() == 1
    assert cluster.routing.diffused == ()
    cluster.run(40, steady(batch({})))
    assert len(cluster.actions) == 2


def test_a_group_that_cannot_be_diffused_now_is_not_proposed() -> None:
    for fields in ({"spilled": [HOT]}, {"held": {HOT: 5}}):
        cluster = DiffusedCluster(Diffusion(), **fields)  # type: ignore[arg-type]
        cluster.run(20, steady(batch({HOT: (1_500, 1_500)})))
        assert cluster.actions == []


def test_work_that_is_little_beside_what_every_step_takes_is_left_alone() -> None:
    cluster = DiffusedCluster(Diffusion())
    cluster.run(20, steady(batch({HOT: (15, 15)}, cold=1)))
    assert cluster.actions == []


def test_noise_in_what_is_measured_changes_nothing() -> None:
    cluster = DiffusedCluster(Diffusion(), noise=0.3)
    cluster.run(100, steady(batch({HOT: (1_500, 1_500)})))
    assert len(cluster.actions) == 1
    assert cluster.busiest < 1.3


def test_the_reason_says_what_is_expected() -> None:
    cluster = DiffusedCluster(Diffusion())
    cluster.run(6, steady(batch({HOT: (2_000, 1_000)})))
    (_, action), *_ = cluster.actions
    assert isinstance(action, DiffuseGroups)
    assert "times a processor's fair share; expected then: " in action.reason
    assert "3,000 rows more a batch received" in action.reason


def most_changes(batches: int) -> float:
    """How often a group may be gathered, or changed while it is diffused."""
    return log2(1 + batches / FIRST_REST) + batches / LAST_REST


@pytest.mark.parametrize("every", [5, 19])
def test_skew_that_comes_and_goes_changes_a_bounded_number_of_times(every: int) -> None:
    cluster = DiffusedCluster(Diffusion())
    cluster.run(300, lambda n: batch({HOT: (1_500, 1_500)} if n // every % 2 else {}))
    assert cluster.left() <= most_changes(300)
    assert cluster.entered() + cluster.left() <= 2 * most_changes(300) + 1


@pytest.mark.parametrize("every", [5, 19])
def test_rates_that_cross_again_and_again_switch_a_bounded_number_of_times(every: int) -> None:
    cluster = DiffusedCluster(Diffusion())
    cluster.run(300, lambda n: batch({HOT: (2_000, 1_000) if n // every % 2 else (1_000, 2_000)}))
    assert cluster.entered() + cluster.left() <= 2 * most_changes(300) + 1


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 3), st.integers(1, 40), st.integers(1, 40)), max_size=8))
def test_whatever_the_load_does_no_group_changes_more_often_than_that(
    phases: list[tuple[int, int, int, int]],
) -> None:
    cluster = DiffusedCluster(Diffusion(), noise=0.2)
    for batches, group, first, second in phases:
        cluster.run(batches, steady(batch({4 * group: (100 * first, 100 * second)})))
    for group in range(GROUPS):
        changes = sum(group in action.groups for _, action in cluster.actions)
        assert changes <= 2 * most_changes(max(cluster.number, 1)) + 1


@pytest.mark.parametrize("arguments", [{"period": 0}, {"hosts": 1}, {"hysteresis": 0.9}, {"period": True}])
def test_arguments_that_make_no_sense_are_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(arguments))):
        Diffusion(**arguments)  # type: ignore[arg-type]
