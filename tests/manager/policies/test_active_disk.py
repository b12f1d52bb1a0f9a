"""Pushing on purpose: only while memory is even and output is not, and never more than the query lacks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import ConfigError
from anabranch.manager.actions import RelocateGroups, SpillGroups
from anabranch.manager.policies.active_disk import ActiveDisk
from anabranch.manager.policies.spill import Spill
from anabranch.manager.snapshot import ProcessorView, Snapshot
from tests.manager.snapshots import operator, processor, snapshot
from tests.oracle.profiles import examples


def giving(
    number: int,
    sizes: Sequence[int],
    results: int = 0,
    memory: int | None = 100,
    produced: Sequence[int] | None = None,
    moves: bool = False,
) -> ProcessorView:
    """A processor with groups of these sizes, which gave so many results in the last step."""
    groups = operator({100 * number + n: size for n, size in enumerate(sizes)}, produced)
    return processor(number, groups, memory=memory, results=results, moves=moves)


def uneven(at: float = 0.0, memory: int | None = 100, slow: int = 10) -> Snapshot:
    """Two processors with the same memory; the groups of the first give more."""
    return snapshot(
        giving(0, [20] * 4, results=100, memory=memory),
        giving(1, [20] * 4, results=slow, memory=memory, produced=[50, 1, 60, 70]),
        at=at,
    )


def forced(actions: Sequence[object]) -> list[SpillGroups]:
    return [action for action in actions if isinstance(action, SpillGroups) and "forced" in action.reason]


def after_a_sample(policy: ActiveDisk, second: Snapshot) -> list[SpillGroups]:
    assert list(policy.decide(uneven())) == []
    return forced(list(policy.decide(second)))


def test_the_slow_processor_pushes_its_least_productive_groups() -> None:
    [push] = after_a_sample(ActiveDisk(need=1_000), uneven(at=45))
    assert (push.processor, push.groups) == (1, (100, 101))
    assert "2.5 results each in the last sample, those of processor 0 25.0" in push.reason


def test_output_is_compared_over_the_time_span_not_over_a_batch() -> None:
    policy = ActiveDisk(need=1_000)
    assert after_a_sample(policy, uneven(at=44)) == []
    assert forced(list(policy.decide(uneven(at=45)))) != []
    assert forced(list(policy.decide(uneven(at=89)))) == [], "the next sample has begun"
    assert forced(list(policy.decide(uneven(at=90)))) != []


def test_a_small_difference_of_output_is_left_alone() -> None:
    assert after_a_sample(ActiveDisk(need=1_000), uneven(at=45, slow=50)) == []
    assert after_a_sample(ActiveDisk(need=1_000, rate_difference=1.9), uneven(at=45, slow=50)) != []
    assert after_a_sample(ActiveDisk(need=1_000), uneven(at=45, slow=0)) != []


def test_the_rate_is_per_partition_group() -> None:
    few, many = giving(0, [40, 40], results=40), giving(1, [8] * 10, results=100)
    policy = ActiveDisk(need=1_000, rate_difference=1.9)
    assert list(policy.decide(snapshot(few, many))) == []
    assert [push.processor for push in forced(list(policy.decide(snapshot(few, many, at=45))))] == [1]


def test_nothing_is_forced_without_budgets_or_without_a_push() -> None:
    assert after_a_sample(ActiveDisk(need=1_000), uneven(at=45, memory=None)) == []
    assert after_a_sample(ActiveDisk(need=1_000, spill=Spill(push=0)), uneven(at=45)) == []


def test_while_memory_is_uneven_groups_move_and_nothing_is_forced() -> None:
    policy = ActiveDisk(need=1_000)
    list(policy.decide(uneven()))
    tilted = snapshot(giving(0, [20] * 4, results=100), giving(1, [20] * 2), at=45)
    actions = list(policy.decide(tilted))
    assert [type(action) for action in actions] == [RelocateGroups]
    assert forced(list(policy.decide(uneven(at=60)))) == [], "what was sampled before does not count"
    assert forced(list(policy.decide(uneven(at=105)))) != []


def test_a_move_under_way_ends_the_sample() -> None:
    policy = ActiveDisk(need=1_000)
    list(policy.decide(uneven()))
    moving = snapshot(giving(0, [20] * 4, results=100, moves=True), giving(1, [20] * 4), at=45)
    assert list(policy.decide(moving)) == []
    assert forced(list(policy.decide(uneven(at=50)))) == []


def test_a_processor_that_spills_anyway_is_not_forced_as_well() -> None:
    policy = ActiveDisk(need=1_000)
    full = (giving(0, [20] * 4, results=100), giving(1, [20] * 4, results=10, memory=79))
    list(policy.decide(snapshot(*full)))
    actions = list(policy.decide(snapshot(*full, at=45)))
    assert {action.processor for action in actions} == {1}
    assert forced(actions) == []


def test_with_enough_memory_for_all_nothing_is_forced() -> None:
    assert after_a_sample(ActiveDisk(need=200), uneven(at=45)) == []
    assert after_a_sample(ActiveDisk(need=220), uneven(at=45)) == [], "20 bytes are not less than 20"
    assert sum(push.bytes for push in after_a_sample(ActiveDisk(need=221), uneven(at=45))) == 20


def test_the_need_is_estimated_from_the_growth_so_far() -> None:
    def run(first: int) -> int:
        policy = ActiveDisk()
        list(policy.decide(snapshot(giving(0, [first]), giving(1, [first]))))
        return sum(push.bytes for push in after_start(policy))

    def after_start(policy: ActiveDisk) -> list[SpillGroups]:
        list(policy.decide(uneven(at=1)))
        return forced(list(policy.decide(uneven(at=46))))

    assert run(first=60) == 0, "160 bytes of state, 40 more to come, 200 of memory"
    assert run(first=40) == 20, "80 more to come: less than 40 may be forced"
    assert run(first=1) == 40, "30% of 80 bytes, in groups of 20"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rate_difference": 0.5}, "rate_difference is how many times .* not 0.5"),
        ({"need": "much"}, "'much' is not a size"),
        ({"difference": -1}, "difference is the share"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ActiveDisk(**wrong)  # type: ignore[arg-type]


@examples(100)
@given(
    need=st.integers(1, 2_000),
    sizes=st.lists(st.integers(1, 40), min_size=4, max_size=12),
    results=st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=2, max_size=20),
)
def test_what_is_forced_in_a_run_stays_below_what_memory_lacks(
    need: int, sizes: list[int], results: list[tuple[int, int]]
) -> None:
    policy = ActiveDisk(need=need, span="0 seconds")
    memory, total = sum(sizes), 0
    for nth, (first, second) in enumerate(results):
        seen = snapshot(giving(0, sizes, first, memory=memory), giving(1, sizes, second, memory=memory), at=float(nth))
        total += sum(push.bytes for push in forced(list(policy.decide(seen))))
    assert total < need - 2 * memory or total == 0
