"""Which groups are pushed, and when: pure decisions on made-up numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.manager.actions import SpillGroups
from anabranch.manager.policies.active_disk import ActiveDisk
from anabranch.manager.policies.lazy_disk import LazyDisk
from anabranch.manager.policies.spill import ORDERS, Spill
from anabranch.manager.snapshot import OperatorSeen, ProcessorSeen, Snapshot
from anabranch.state.groups import GroupSet
from anabranch.state.statistics import Statistics
from tests.oracle.profiles import examples

NOW = 1_000_000.0


def statistics(
    sizes: list[int],
    produced: list[int] | None = None,
    recent: list[float] | None = None,
    ages: list[float] | None = None,
) -> Statistics:
    count = len(sizes)
    made = np.array(produced or [1] * count, dtype=np.int64)
    return Statistics(
        np.arange(count),
        np.array(sizes, dtype=np.int64),
        made,
        np.array(recent if recent is not None else made, dtype=np.float64),
        NOW - np.array(ages or [0.0] * count),
        np.zeros(count, dtype=np.int64),
    )


def snapshot(*operators: Statistics, memory: int | None = 100, spillable: bool = True) -> Snapshot:
    seen = tuple(OperatorSeen(n, known, spillable) for n, known in enumerate(operators))
    active = sum(int(known.bytes.sum()) for known in operators)
    return Snapshot(7, NOW, (ProcessorSeen(0, active, seen, memory),))


def pushed(policy: Spill, seen: Snapshot) -> list[tuple[int, int]]:
    """(operator, group) of all that is pushed."""
    actions = list(policy.decide(seen))
    assert all(isinstance(action, SpillGroups) and action.processor == 0 for action in actions)
    return [(action.operator, group) for action in actions for group in action.groups]


def test_nothing_is_pushed_while_state_fits() -> None:
    assert pushed(Spill(), snapshot(statistics([50, 50]))) == []
    assert pushed(Spill(threshold=0.5), snapshot(statistics([50, 1]))) != []
    assert pushed(Spill(), snapshot(statistics([500]), memory=None)) == []


@pytest.mark.parametrize(
    ("order", "first"),
    [("least-productive", 2), ("most-productive", 0), ("largest", 1), ("least-recently-used", 3)],
)
def test_the_order_decides_what_goes_first(order: str, first: int) -> None:
    known = statistics([30, 40, 20, 20], produced=[300, 40, 2, 20], ages=[1, 2, 3, 4])
    assert pushed(Spill(push=0.1, threshold=1.0, order=order), snapshot(known, memory=109))[0] == (0, first)


def test_groups_without_results_are_the_least_productive_larger_ones_first() -> None:
    known = statistics([40, 60, 50], produced=[0, 5, 0])
    assert pushed(Spill(push=0.1), snapshot(known, memory=149)) == [(0, 2)]


def test_idle_groups_go_before_all_others_the_longest_idle_first() -> None:
    known = statistics([40, 40, 40], produced=[1000, 1, 900], ages=[700.0, 0.0, 650.0])
    assert pushed(Spill(push=0.6, idle="10 minutes"), snapshot(known)) == [(0, 0), (0, 2)]
    assert pushed(Spill(push=0.1, idle=None), snapshot(known, memory=119)) == [(0, 1)]


def test_what_counts_may_be_all_results_or_the_recent_ones() -> None:
    known = statistics([60, 60], produced=[1000, 10], recent=[0.5, 10.0])
    assert pushed(Spill(push=0.1, productivity="cumulative"), snapshot(known)) == [(0, 1)]
    assert pushed(Spill(push=0.1, productivity="recent"), snapshot(known)) == [(0, 0)]


def test_groups_of_all_operators_compete_but_for_those_that_cannot_be_spilled() -> None:
    first, second = statistics([60], produced=[600]), statistics([60], produced=[6])
    assert pushed(Spill(push=0.1), snapshot(first, second)) == [(1, 0)]
    assert pushed(Spill(push=0.1), snapshot(first, second, spillable=False)) == []


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
    found = pushed(Spill(push=push, threshold=threshold, order=order), snapshot(statistics(sizes), memory=memory))
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
    seen = snapshot(statistics([1_000] * 200), memory=190_000)
    policy = Spill(push=0.2, order="random")
    first = pushed(policy, seen)
    assert len(first) == 40
    assert first == pushed(policy, seen)
    assert first != pushed(policy, replace(seen, step=8))
    assert first != pushed(Spill(push=0.2, order="random", seed=1), seen)


def mixed(fixed: list[int], movable: list[int], memory: int, returned: list[int] | None = None) -> Snapshot:
    """A processor with an operator that cannot be spilled, and one that can; some groups of it have just returned."""
    back = None if returned is None else GroupSet.of(len(movable), returned)
    seen = (OperatorSeen(0, statistics(fixed), spillable=False), OperatorSeen(1, statistics(movable), returned=back))
    return Snapshot(7, NOW, (ProcessorSeen(0, sum(fixed) + sum(movable), seen, memory),))


def test_state_that_cannot_be_pushed_does_not_have_all_other_state_pushed() -> None:
    assert pushed(Spill(), mixed([500], [10, 10, 10], memory=100)) == [], "what can be pushed keeps half of the memory"
    assert pushed(Spill(push=0.1), mixed([500], [10] * 6, memory=100)) == [(1, 0), (1, 1)]
    assert pushed(Spill(push=0.1), mixed([40], [10] * 6, memory=100)) == [], "all fits"


def test_the_share_that_is_pushed_is_one_of_what_can_be_pushed() -> None:
    assert len(pushed(Spill(push=0.3), mixed([1_000], [10] * 10, memory=190))) == 3


def test_a_group_that_has_just_come_back_is_pushed_only_if_there_is_no_other() -> None:
    assert pushed(Spill(push=0.9), mixed([0], [40, 40, 40], memory=100, returned=[0, 2])) == [(1, 1)]
    assert len(pushed(Spill(push=0.9), mixed([0], [40, 40, 40], memory=100, returned=[0, 1, 2]))) == 3


@pytest.mark.parametrize("policy", [LazyDisk(), ActiveDisk()])
def test_the_disks_spare_what_spill_spares(policy: LazyDisk | ActiveDisk) -> None:
    assert list(policy.decide(mixed([500], [10, 10, 10], memory=100))) == []
