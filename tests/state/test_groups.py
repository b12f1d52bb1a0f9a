"""Partition groups are contiguous ranges of the hash, and placements cover all of them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import ConfigError
from anabranch.plan.placement import even_placement
from anabranch.state.groups import (
    MAX_GROUPS,
    GroupSet,
    check_groups,
    group_bits,
    group_counts,
    group_starts,
)
from tests.oracle.profiles import examples

HASH_SPACE = 1 << 64

group_numbers = st.integers(0, 10).map(lambda bits: 1 << bits)
edges = st.sampled_from([0, 1, HASH_SPACE // 2 - 1, HASH_SPACE // 2, HASH_SPACE - 2, HASH_SPACE - 1])
hashes = st.lists(edges | st.integers(0, HASH_SPACE - 1), max_size=50).map(sorted)


def group_of(value: int, groups: int) -> int:
    return value * groups // HASH_SPACE


@examples(100)
@given(values=hashes, groups=group_numbers)
def test_every_group_is_one_contiguous_slice_of_sorted_hashes(values: list[int], groups: int) -> None:
    starts = group_starts(groups).tolist()
    assert [group_of(start, groups) for start in starts] == list(range(groups))
    assert [group_of(start - 1, groups) for start in starts[1:]] == list(range(groups - 1))
    members = [group_of(value, groups) for value in values]
    assert members == sorted(members)


@examples(100)
@given(values=hashes, groups=group_numbers)
def test_counts_per_group_equal_a_count_one_by_one(values: list[int], groups: int) -> None:
    counted = group_counts(np.array(values, dtype=np.uint64), groups)
    naive = Counter(group_of(value, groups) for value in values)
    assert counted.tolist() == [naive[group] for group in range(groups)]


@examples(100)
@given(groups=group_numbers, data=st.data())
def test_the_default_placement_is_contiguous_even_and_leaves_nobody_out(groups: int, data: st.DataObject) -> None:
    processors = data.draw(st.integers(1, groups))
    placement = even_placement(groups, processors)
    assert len(placement) == groups
    assert list(placement) == sorted(placement)
    sizes = Counter(placement)
    assert set(sizes) == set(range(processors))
    assert max(sizes.values()) - min(sizes.values()) <= 1


@examples(60)
@given(groups=group_numbers, data=st.data(), values=hashes)
def test_sets_of_groups_are_sets(groups: int, data: st.DataObject, values: list[int]) -> None:
    numbers = st.sets(st.integers(0, groups - 1))
    some, others = data.draw(numbers), data.draw(numbers)
    left, right = GroupSet.of(groups, some), GroupSet.of(groups, others)
    assert left.numbers().tolist() == sorted(some)
    assert (left & right).numbers().tolist() == sorted(some & others)
    assert (left | right).numbers().tolist() == sorted(some | others)
    assert (left - right).numbers().tolist() == sorted(some - others)
    assert len(left) == len(some)
    assert bool(left) == bool(some)
    assert GroupSet.from_text(groups, left.to_text()) == left
    held = left.holds(np.array(values, dtype=np.uint64))
    assert held.tolist() == [group_of(value, groups) in some for value in values]
    assert len(GroupSet.all(groups)) == groups


@pytest.mark.parametrize("groups", [0, -1, 3, 6, MAX_GROUPS * 2, 2.0, "16"])
def test_a_number_of_groups_that_is_no_power_of_two_is_refused(groups: object) -> None:
    with pytest.raises(ConfigError, match="power of two"):
        check_groups(groups)  # type: ignore[arg-type]


@pytest.mark.parametrize("groups", [1, 2, 256, MAX_GROUPS])
def test_powers_of_two_are_numbers_of_groups(groups: int) -> None:
    assert check_groups(groups) == groups
    assert 2 ** group_bits(groups) == groups


@pytest.mark.parametrize("processors", [0, -1, 5])
def test_a_placement_needs_a_processor_and_a_group_for_each(processors: int) -> None:
    with pytest.raises(ConfigError, match="processors"):
        even_placement(4, processors)
