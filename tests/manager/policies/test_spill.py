"""Which groups are pushed, and when: pure decisions on made-up numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.manager.actions import SpillGroups
from anabranch.manager.policies.active_disk import ActiveDisk
from anabranch.manager.policies.lazy_disk import LazyDisk
from anabranch.manager.policies.spill import ORDERS, Spill
from anabranch.manager.snapshot import Snapshot
from anabranch.state.statistics import Statistics
from tests.manager.snapshots import operator, processor, snapshot, statistics
from tests.oracle.profiles import examples


def alone(*operators: Statistics, memory: int | None = 100, spillable: bool = True) -> Snapshot:
    """A single processor with these operators."""
    seen = [operator(known, number=n, spillable=spillable) for n, known in enumerate(operators)]
    return snapshot(processor(0, *seen, memory=memory))


def pushed(policy: Spill, seen: Snapshot) -> list[tuple[int, int]]:
    """(operator, group) of all that is pushed."""
    actions = list(policy.decide(seen))
    assert all(isinstance(action, SpillGroups) and action.processor == 0 for action in actions)
    return [(action.operator, group) for action in actions for group in action.groups]


def test_nothing_is_pushed_while_state_fits() -> None:
    assert pushed(Spill(), alone(statistics([50, 50]))) == []
    assert pushed(Spill(threshold=0.5), alone(statistics([50, 1]))) != []
    assert pushed(Spill(), alone(statistics([500]), memory=None)) == []


@pytest.mark.parametrize(
    ("order", "first"),
    [("least-productive", 2), ("most-productive", 0), ("largest", 1), ("least-recently-used", 3)],
)
def test_the_order_decides_what_goes_first(order: str, first: int) -> None:
    known = statistics([30, 40, 20, 20], produced=[300, 40, 2, 20], ages=[1, 2, 3, 4])
    assert pushed(Spill(push=0.1, threshold=1.0, order=order), alone(known, memory=109))[0] == (0, first)


def test_groups_without_results_are_the_least_productive_larger_ones_first() -> None:
    known = statistics([40, 60, 50], produced=[0, 5, 0])
    assert pushed(Spill(push=0.1), alone(known, memory=149)) == [(0, 2)]


def test_idle_groups_go_before_all_others_the_longest_idle_first() -> None:
    known = statistics([40, 40, 40], produced=[1000, 1, 900], ages=[700.0, 0.0, 650.0])
    assert pushed(Spill(push=0.6, idle="10 minutes"), alone(known)) == [(0, 0), (0, 2)]
    assert pushed(Spill(push=0.1, idle=None), alone(known, memory=119)) == [(0, 1)]


def test_what_counts_may_be_all_results_or_the_recent_ones() -> None:
    known = statistics([60, 60], produced=[1000, 10], recent=[0.5, 10.0])
    assert pushed(Spill(push=0.1, productivity="cumulative"), alone(known)) == [(0, 1)]
    assert pushed(Spill(push=0.1, productivity="recent"), alone(known)) == [(0, 0)]


def test_groups_of_all_operators_compete_but_for_those_that_cannot_be_spilled() -> None:
    first, second = statistics([60], produced=[600]), statistics([60], produced=[6])
    assert pushed(Spill(push=0.1), alone(first, second)) == [(1, 0)]
    assert pushed(Spill(push=0.1), alone(first, second, spillable=False)) == []


@examples(100)
@given(
    sizes=st.lists(st.integers(0, 100), min_size=1, max_size=30),
    push=st.sampled_from([0, 0.1, 0.2, 0.3, 0.5, 1]),
    threshold=st.sampled_from([0.5, 0.8, 1]),
    order=st.sampled_from(sorted(ORDERS)),
    memory=st.integers(1, 1_000),
)
def test_as_much_is_pushed_as_was_asked_for_and_as_is_needed(
    sizes: list[int], push: float, threshold: float, order: str, memory: int
) -> None:
    found = pushed(Spill(push=push, threshold=threshold, order=order), alone(statistics(sizes), memory=memory))
    total, gone = sum(sizes), sum(sizes[group] for _, group in found)
    assert len(found) == len(set(found))
    if push == 0 or total <= threshold * memory:
        assert found == []
        return
    goal = max(push * total, total - threshold * memory)
    assert gone >= goal
    assert total - gone <= threshold * memory
    most = goal + len(sizes)  # sizes are rounded up
    assert gone - max(sizes[group] for _, group in found) < most, "not a group more than needed"


def test_chance_is_the_same_for_the_same_step_and_another_for_the_next() -> None:
    seen = alone(statistics([1_000] * 200), memory=190_000)
    policy = Spill(push=0.2, order="random")
    first = pushed(policy, seen)
    assert len(first) == 40
    assert first == pushed(policy, seen)
    assert first != pushed(policy, replace(seen, step=8))
    assert first != pushed(Spill(push=0.2, order="random", seed=1), seen)


def mixed(fixed: list[int], movable: list[int], memory: int, returned: Sequence[int] = ()) -> Snapshot:
    """A processor with an operator that cannot be spilled, and one that can; some groups of it have just returned."""
    seen = (operator(fixed, spillable=False), operator(movable, number=1, returned=returned))
    return snapshot(processor(0, *seen, memory=memory))


def test_state_that_cannot_be_pushed_does_not_have_all_other_state_pushed() -> None:
    assert pushed(Spill(), mixed([500], [10, 10, 10], memory=100)) == [], "what can be pushed keeps half of the memory"
    assert pushed(Spill(push=0.1), mixed([500], [10] * 6, memory=100)) == [(1, 0), (1, 1)]
    assert pushed(Spill(push=0.1), mixed([40], [10] * 6, memory=100)) == [], "all fits"


def test_the_share_that_is_pushed_is_one_of_what_can_be_pushed() -> None:
    assert len(pushed(Spill(push=0.3), mixed([1_000], [10] * 10, memory=190))) == 3


def test_a_group_that_has_just_come_back_is_pushed_only_if_there_is_no_other() -> None:
    assert pushed(Spill(push=0.9), mixed([0], [40, 40, 40], memory=100, returned=[0, 2])) == [(1, 1)]
    assert len(pushed(Spill(push=0.9), mixed([0], [40, 40, 40], memory=100, returned=[0, 1, 2]))) == 3


def test_groups_that_are_diffused_are_not_pushed() -> None:
    full = snapshot(processor(0, operator([40, 40, 40], diffused=[0, 1]), memory=100))
    assert pushed(Spill(push=0.9), full) == [(0, 2)]


@pytest.mark.parametrize("policy", [LazyDisk(), ActiveDisk()])
def test_the_disks_spare_what_spill_spares(policy: LazyDisk | ActiveDisk) -> None:
    assert list(policy.decide(mixed([500], [10, 10, 10], memory=100))) == []
