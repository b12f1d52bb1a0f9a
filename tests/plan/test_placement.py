"""Where groups are at first, after they have moved, and on another number of processors."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import ConfigError
from anabranch.plan.placement import (
    as_blocks,
    check_shares,
    families_of,
    from_blocks,
    moved,
    placement_by_shares,
    rescaled,
)
from tests.oracle.profiles import examples


def test_two_thirds_on_one_processor() -> None:
    placement = placement_by_shares(256, (4, 1, 1))
    assert Counter(placement) == {0: 171, 1: 42, 2: 43}
    assert list(placement) == sorted(placement), "in blocks"


@examples(100)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any), st.sampled_from([1, 4, 64, 256]))
def test_every_group_has_an_owner_whatever_the_shares(shares: list[int], groups: int) -> None:
    counts = Counter(placement_by_shares(groups, shares))
    assert sum(counts.values()) == groups
    for processor, share in enumerate(shares):
        assert abs(counts[processor] - groups * share / sum(shares)) <= 1


@pytest.mark.parametrize(
    ("shares", "told"),
    [
        ([1, 2], "2 shares for 3 processors"),
        ([0, 0, 0], "not all 0"),
        ([1, -1, 1], "from 0 on"),
        ([1, float("nan"), 1], "from 0 on"),
        ([1, "a", 1], "a list of shares"),
        ("uneven", "'even' or a list of shares"),
        (7, "'even' or a list of shares"),
    ],
)
def test_shares_that_make_no_sense_are_refused(shares: object, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        check_shares(shares, 3)


def test_even_is_the_default() -> None:
    assert check_shares("even", 3) is None


@examples(200)
@given(st.lists(st.integers(0, 4), min_size=8, max_size=8), st.integers(1, 8))
def test_rescaling_is_even_and_moves_as_few_groups_as_that_allows(placement: list[int], processors: int) -> None:
    after = rescaled(tuple(placement), processors)
    counts, before = Counter(after), Counter(placement)
    assert set(after) <= set(range(processors))
    assert max(counts.values()) - min(counts[p] for p in range(processors)) <= 1
    least, rest = divmod(len(placement), processors)
    kept = sorted((min(before[p], least + 1) - min(before[p], least) for p in range(processors)), reverse=True)
    stay = sum(min(before[p], least) for p in range(processors)) + sum(kept[:rest])
    assert sum(a == b for a, b in zip(after, placement, strict=True)) == stay


def test_moving_changes_the_owner_of_some_groups_only() -> None:
    assert moved((0, 0, 1, 1), {1, 2}, 3) == (0, 3, 3, 1)
    assert from_blocks(as_blocks((0, 3, 3, 1))) == (0, 3, 3, 1)


def test_fused_operators_are_a_family() -> None:
    assert families_of(5, [(0, 1), (2, 3), (1, 3)]) == (0, 0, 0, 0, 4)
    assert families_of(3, []) == (0, 1, 2)
