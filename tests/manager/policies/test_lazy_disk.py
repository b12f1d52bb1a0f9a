"""Relocation first, disk last: which groups move where, and that moving and spilling keep out of each other's way."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import ConfigError
from anabranch.manager.actions import RelocateGroups, SpillGroups
from anabranch.manager.policies.lazy_disk import LazyDisk
from anabranch.manager.policies.spill import Spill
from anabranch.manager.snapshot import Snapshot
from tests.manager.snapshots import operator, processor, snapshot, statistics
from tests.oracle.profiles import examples


def moved(actions: Sequence[object]) -> list[tuple[int, int, int, int]]:
    """(family, group, sender, receiver) of all that moves."""
    moves = [action for action in actions if isinstance(action, RelocateGroups)]
    return [(move.family, group, move.sender, move.receiver) for move in moves for group in move.groups]


def pushed(actions: Sequence[object]) -> set[int]:
    return {action.processor for action in actions if isinstance(action, SpillGroups)}


def test_half_of_the_difference_moves_from_the_most_used_to_the_least_used() -> None:
    seen = snapshot(
        processor(0, operator({0: 30, 1: 30, 2: 30})),
        processor(1, operator({3: 50})),
        processor(2, operator({4: 30})),
    )
    [move] = LazyDisk().decide(seen)
    assert isinstance(move, RelocateGroups)
    assert (move.sender, move.receiver, move.bytes, len(move.groups)) == (0, 2, 30, 1)
    assert "less than 80% of 90 B" in move.reason


def test_nothing_moves_while_memory_is_even_enough() -> None:
    even = snapshot(processor(0, operator({0: 50, 1: 50})), processor(1, operator({2: 40, 3: 40})))
    assert list(LazyDisk().decide(even)) == []
    assert moved(list(LazyDisk(difference=0.9).decide(even))) == []
    uneven = snapshot(processor(0, operator({0: 90, 1: 10})), processor(1, operator({2: 40, 3: 30})))
    assert moved(list(LazyDisk().decide(uneven))) == [(0, 1, 0, 1)]
    assert moved(list(LazyDisk(difference=0.5).decide(uneven))) == []
    assert moved(list(LazyDisk(difference=0).decide(uneven))) == []


def test_groups_that_are_diffused_do_not_move() -> None:
    groups = operator({0: 20, 1: 20, 2: 20}, produced={0: 9, 1: 5, 2: 1}, diffused=[0])
    assert moved(list(LazyDisk().decide(snapshot(processor(0, groups), processor(1))))) == [(0, 1, 0, 1)]


def test_productive_groups_move_first() -> None:
    groups = operator({0: 20, 1: 20, 2: 20, 3: 20}, produced={0: 1, 1: 100, 2: 10, 3: 1})
    assert moved(list(LazyDisk().decide(snapshot(processor(0, groups), processor(1))))) == [(0, 1, 0, 1), (0, 2, 0, 1)]


@pytest.mark.parametrize("counts", ["cumulative", "recent"])
def test_groups_move_first_that_are_productive_now_whatever_spilling_goes_by(counts: str) -> None:
    groups = operator(statistics({0: 20, 1: 20, 2: 20}, {0: 1_000, 1: 100, 2: 10}, recent={0: 1, 1: 50, 2: 5}))
    policy = LazyDisk(spill=Spill(productivity=counts))
    assert moved(list(policy.decide(snapshot(processor(0, groups), processor(1))))) == [(0, 1, 0, 1)]


def test_a_group_that_does_not_fit_is_passed_over_for_a_smaller_one() -> None:
    groups = operator({0: 60, 1: 35, 2: 15}, produced={0: 1_000, 1: 100, 2: 1})
    seen = snapshot(processor(0, groups), processor(1, operator({9: 10})))
    assert moved(list(LazyDisk().decide(seen))) == [(0, 1, 0, 1), (0, 2, 0, 1)], "50 bytes may move"


def test_groups_with_state_on_disk_stay() -> None:
    groups = operator({0: 20, 1: 20, 2: 20}, produced={0: 1_000}, spilled=[0])
    assert moved(list(LazyDisk().decide(snapshot(processor(0, groups), processor(1))))) == [(0, 1, 0, 1)]


def test_groups_of_several_families_take_an_action_each() -> None:
    both = (operator({0: 20, 1: 20}), operator({0: 20, 1: 20}, number=1))
    actions = list(LazyDisk().decide(snapshot(processor(0, *both), processor(1))))
    assert sum(action.bytes for action in actions) == 40
    assert len({(action.sender, action.receiver) for action in actions}) == 1
    assert len({action.family for action in actions}) == len(actions)


def test_the_time_span_keeps_relocations_apart() -> None:
    policy = LazyDisk(span="45 seconds")
    seen = (processor(0, operator({0: 30, 1: 30})), processor(1))
    assert moved(list(policy.decide(snapshot(*seen))))
    assert not moved(list(policy.decide(snapshot(*seen, at=44.9))))
    assert moved(list(policy.decide(snapshot(*seen, at=45))))


def test_each_copy_of_a_policy_remembers_its_own_relocations() -> None:
    policy = LazyDisk()
    seen = snapshot(processor(0, operator({0: 30, 1: 30})), processor(1))
    assert moved(list(copy.deepcopy(policy).decide(seen)))
    assert moved(list(policy.decide(seen)))
    assert policy == LazyDisk()


def test_the_receiver_gets_no_more_than_it_has_room_for() -> None:
    groups = operator(dict.fromkeys(range(10), 10))
    small = processor(1, operator({20: 20}), memory=40)
    assert len(moved(list(LazyDisk().decide(snapshot(processor(0, groups, memory=200), small))))) == 2
    strict = LazyDisk(spill=Spill(threshold=0.75))
    assert len(moved(list(strict.decide(snapshot(processor(0, groups, memory=200), small))))) == 1


def test_nothing_moves_to_a_processor_that_is_over_its_budget() -> None:
    groups = operator(dict.fromkeys(range(10), 10))
    full = processor(1, operator({20: 20}), memory=19)
    actions = list(LazyDisk().decide(snapshot(processor(0, groups, memory=200), full)))
    assert moved(actions) == []
    assert pushed(actions) == {1}


def test_the_receiver_is_the_least_used_of_those_with_room() -> None:
    groups = operator(dict.fromkeys(range(10), 10))
    full, roomy = processor(1, operator({20: 20}), memory=20), processor(2, operator({30: 40}), memory=200)
    moves = moved(list(LazyDisk().decide(snapshot(processor(0, groups, memory=200), full, roomy))))
    assert {receiver for *_, receiver in moves} == {2}
    assert len(moves) == 3


def test_a_sender_over_its_budget_moves_state_rather_than_spilling_it() -> None:
    groups = operator(dict.fromkeys(range(12), 10))
    seen = (processor(0, groups, memory=100), processor(1, memory=100))
    policy = LazyDisk()
    actions = list(policy.decide(snapshot(*seen)))
    assert len(moved(actions)) == 6
    assert pushed(actions) == set()
    again = list(policy.decide(snapshot(*seen, at=1)))
    assert moved(again) == []
    assert pushed(again) == {0}, "no relocation is possible now"


def test_without_a_budget_memory_is_only_evened_out() -> None:
    seen = (processor(0, operator({0: 30, 1: 30})), processor(1))
    policy = LazyDisk()
    assert pushed(list(policy.decide(snapshot(*seen)))) == set()
    assert list(policy.decide(snapshot(*seen, at=1))) == []


def test_processors_with_a_move_under_way_are_left_alone() -> None:
    groups = dict.fromkeys(range(12), 10)
    first = processor(0, operator(groups), memory=100, moves=True)
    second, third = processor(1, operator({20: 50, 21: 10}), memory=100), processor(2, memory=100)
    actions = list(LazyDisk().decide(snapshot(first, second, third)))
    assert moved(actions) == [(0, 21, 1, 2)]
    assert pushed(actions) == set()
    assert list(LazyDisk().decide(snapshot(first, processor(1, memory=100, moves=True)))) == []


def test_spilling_elsewhere_goes_on_while_two_relocate() -> None:
    seen = snapshot(
        processor(0, operator(dict.fromkeys(range(12), 10)), memory=200),
        processor(1, operator({20: 30, 21: 30}), memory=50),
        processor(2, memory=200),
    )
    actions = list(LazyDisk().decide(seen))
    assert {(sender, receiver) for _, _, sender, receiver in moved(actions)} == {(0, 2)}
    assert pushed(actions) == {1}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"difference": 1.5}, "difference is the share .* not 1.5"),
        ({"difference": True}, "not True"),
        ({"span": 45}, "span must be a length of time, such as '45 seconds', not 45"),
        ({"span": "45 secs"}, "span: unknown unit"),
        ({"spill": None}, "spill must be a policy"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LazyDisk(**wrong)  # type: ignore[arg-type]


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Processors with groups of one or two families, some partly on disk, some moving, with or without budgets."""
    limited = draw(st.booleans())
    found, first = [], 0
    for number in range(draw(st.integers(2, 5))):
        operators = []
        for family in range(draw(st.integers(1, 2))):
            sizes = draw(st.lists(st.integers(0, 60), max_size=12))
            groups = dict(enumerate(sizes, start=first))
            produced = {group: draw(st.integers(0, 50)) for group in groups}
            spilled = [group for group in groups if draw(st.integers(0, 4)) == 0]
            operators.append(operator(groups, produced, spilled=spilled, number=family))
            first += len(sizes)
        memory = draw(st.integers(1, 600)) if limited else None
        found.append(processor(number, *operators, memory=memory, moves=draw(st.integers(0, 5)) == 0))
    return snapshot(*found)


@examples(300)
@given(seen=clusters(), difference=st.sampled_from([0.5, 0.8, 1.0]), threshold=st.sampled_from([0.5, 1.0]))
def test_a_relocation_never_overshoots_nor_fills_the_receiver_nor_meets_a_spill(
    seen: Snapshot, difference: float, threshold: float
) -> None:
    actions = list(LazyDisk(difference, spill=Spill(threshold=threshold)).decide(seen))
    by_number = {each.processor: each for each in seen.processors}
    moves = [action for action in actions if isinstance(action, RelocateGroups)]
    parties = {(move.sender, move.receiver) for move in moves}
    assert len(parties) <= 1
    assert not pushed(actions) & {number for pair in parties for number in pair}, "one adaptation at a time"
    assert not any(by_number[number].moves for number in pushed(actions))
    for sender, receiver in parties:
        gives, takes = by_number[sender], by_number[receiver]
        amount = sum(move.bytes for move in moves)
        assert gives.active_bytes == max(each.active_bytes for each in seen.processors if not each.moves)
        assert takes.active_bytes < difference * gives.active_bytes
        assert 0 < amount <= (gives.active_bytes - takes.active_bytes) / 2
        assert gives.active_bytes - amount >= takes.active_bytes + amount, "the imbalance is not turned around"
        assert takes.memory is None or takes.active_bytes + amount <= threshold * takes.memory
        assert not gives.moves
        assert not takes.moves
        known = gives.partitions()
        free = set(zip(known.family[~known.spilled].tolist(), known.group[~known.spilled].tolist(), strict=True))
        assert {(family, group) for family, group, *_ in moved(actions)} <= free
    for each in seen.processors:
        over = each.memory is not None and each.active_bytes > threshold * each.memory
        could = any(entry.statistics.bytes.sum() > 0 for entry in each.operators)
        involved = any(each.processor in pair for pair in parties)
        assert (each.processor in pushed(actions)) == (over and could and not each.moves and not involved)
