"""Flux's balancing of memory, alone and as a part of the hybrid policy."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.manager.policies.flux import FluxHybrid, FluxMemory
from tests.manager.policies.cluster import Cluster, Flux, fed, moved, round_of
from tests.manager.snapshots import snapshot
from tests.oracle.profiles import examples


def test_excess_memory_is_balanced_the_largest_partition_first() -> None:
    sizes = {0: 60, 1: 50, 2: 20, 10: 10}
    cut = fed(0, {0: 1, 1: 1, 2: 1}, sizes=sizes, memory=200)
    roomy = fed(1, {10: 1}, sizes=sizes, memory=200)
    assert moved(round_of(FluxMemory(), snapshot(cut, roomy))) == [(0, 0, 1)]


def test_without_budgets_sizes_are_balanced() -> None:
    sizes = {0: 60, 1: 50, 10: 10}
    for budget in (None, 50):
        seen = snapshot(fed(0, {0: 1, 1: 1}, sizes=sizes), fed(1, {10: 1}, sizes=sizes, memory=budget))
        [move] = round_of(FluxMemory(), seen)
        assert moved([move]) == [(0, 0, 1)]
        assert "processor 0 has 110 B of state" in move.reason


def test_the_imbalance_of_excess_memory_is_defined_below_and_at_zero() -> None:
    sizes = {0: 60, 1: 60, 10: 50, 11: 50}
    first, second = {0: 1, 1: 1}, {10: 1, 11: 1}
    for budget in (1_000, 120, 110, 100, 10):
        seen = snapshot(fed(0, first, sizes=sizes, memory=budget), fed(1, second, sizes=sizes, memory=budget))
        assert moved(round_of(FluxMemory(imbalance=1.21), seen)) == []
        # No group of 50 or 60 bytes can lower a difference of 20.
        assert moved(round_of(FluxMemory(imbalance=1.2), seen)) == []


def test_a_small_excess_is_relieved_whatever_the_ratio_while_somebody_has_room() -> None:
    sizes = {0: 95, 1: 8, 10: 90}
    over = fed(0, {0: 1, 1: 1}, sizes=sizes, memory=100)
    assert moved(round_of(FluxMemory(), snapshot(over, fed(1, {10: 1}, sizes=sizes, memory=100)))) == [(1, 0, 1)]
    fits = fed(0, {0: 1, 1: 1}, sizes=sizes, memory=110)
    assert moved(round_of(FluxMemory(), snapshot(fits, fed(1, {10: 1}, sizes=sizes, memory=110)))) == []


def test_a_receiver_is_not_brought_over_its_memory_unless_all_memory_is_exhausted() -> None:
    sizes = {0: 40, 1: 25, 2: 35, 10: 70}
    groups = dict.fromkeys(range(3), 1)
    tight = fed(1, {10: 1}, sizes=sizes, memory=100)
    donor = fed(0, groups, sizes=sizes, memory=100)
    assert moved(round_of(FluxMemory(), snapshot(donor, tight))) == [(1, 0, 1)], "there is room for 30 bytes"
    donor = fed(0, groups, sizes=sizes, memory=100, spilled_bytes=30)
    assert moved(round_of(FluxMemory(), snapshot(donor, tight))) == [(0, 0, 1)], "disk use is balanced"


def test_groups_that_are_diffused_do_not_move() -> None:
    first = fed(0, {0: 1, 1: 1, 2: 1}, sizes={0: 50, 1: 30, 2: 20}, diffused=[0])
    second = fed(1, {10: 1}, sizes={10: 10})
    assert moved(round_of(FluxMemory(), snapshot(first, second))) == [(1, 0, 1)]


def test_groups_on_disk_move_only_if_asked_for_and_after_those_in_memory() -> None:
    sizes = {0: 30, 1: 20, 2: 5, 10: 5}
    first = fed(0, {0: 1, 1: 1, 2: 1}, sizes=sizes, spilled=[0], spilled_bytes=10)
    second = fed(1, {10: 1}, sizes=sizes)
    assert moved(round_of(FluxMemory(on_disk=True), snapshot(first, second))) == [(1, 0, 1)]
    most = fed(0, {0: 1, 1: 1}, sizes=sizes, spilled=[0, 1], spilled_bytes=10)
    assert moved(round_of(FluxMemory(), snapshot(most, second))) == []
    [move] = round_of(FluxMemory(on_disk=True), snapshot(most, second))
    assert moved([move]) == [(0, 0, 1)]
    assert move.bytes == 35, "with its share of what is on disk"


@examples(200)
@given(
    sizes=st.lists(st.lists(st.integers(0, 60), max_size=8), min_size=2, max_size=5),
    budgets=st.lists(st.integers(1, 300), min_size=5, max_size=5),
    on_disk=st.booleans(),
    flags=st.lists(st.booleans(), min_size=40, max_size=40),
)
def test_memory_moves_lower_the_imbalance_and_fill_nobody_up(
    sizes: list[list[int]], budgets: list[int], on_disk: bool, flags: list[bool]
) -> None:
    by_group = {10 * p + g: size for p, own in enumerate(sizes) for g, size in enumerate(own)}
    seen = []
    for p, own in enumerate(sizes):
        groups = dict.fromkeys((10 * p + g for g in range(len(own))), 1)
        disk = [group for group in groups if flags[8 * p + group - 10 * p]]
        seen.append(fed(p, groups, sizes=by_group, memory=budgets[p], spilled=disk))
    moves = moved(round_of(FluxMemory(on_disk=on_disk), snapshot(*seen)))
    exhausted = sum(budgets[: len(seen)]) <= sum(by_group.values())
    for group, donor, receiver in moves:
        gives, takes = (seen[p].active_bytes - budgets[p] for p in (donor, receiver))
        size = by_group[group]
        assert gives > takes
        assert abs(gives - size - (takes + size)) < gives - takes
        assert exhausted or takes > 0 or takes + size <= 0
        assert on_disk or not flags[8 * donor + group - 10 * donor]


@pytest.mark.parametrize("policy", [FluxMemory, FluxHybrid])
def test_memory_cut_on_one_processor_evens_out(policy: Callable[..., Flux]) -> None:
    cluster = Cluster(policy(), [group % 4 for group in range(128)], [1000.0] * 4, [6] * 128, [256] * 4)
    rates = [10] * 128
    cluster.run(20, lambda _: rates)
    assert cluster.moves == [], "192 bytes each fit"
    assert cluster.memory is not None
    cluster.memory[0] = 128
    cluster.run(60, lambda _: rates)
    assert all(state <= memory for state, memory in zip(cluster.state(), cluster.memory, strict=True))
    done = len(cluster.moves)
    cluster.run(100, lambda _: rates)
    assert cluster.moves_between(200, 400) == 0
    assert len(cluster.moves) <= done + 8


def test_the_hybrid_balances_memory_while_it_is_short_and_load_otherwise() -> None:
    sizes = {0: 40, 1: 40, 10: 20, 11: 10}
    rows, idle = {0: 50, 1: 50}, {10: 10, 11: 20}

    def decided(memory: int, busy: tuple[float, float], spilled_bytes: int = 0) -> list[tuple[int, int, int]]:
        first = fed(0, rows, busy[0], sizes, memory, spilled_bytes=spilled_bytes)
        return moved(round_of(FluxHybrid(), snapshot(first, fed(1, idle, busy[1], sizes, memory))))

    assert decided(100, (0.1, 0.9)) == [(11, 1, 0)], "load, the other way; 10 and 11 give 0.3 and 0.6"
    assert decided(79, (0.1, 0.9)) == [(0, 0, 1)], "one is over its memory"
    assert decided(100, (0.1, 0.9), spilled_bytes=1) == [(0, 0, 1)], "something is spilled"
    assert decided(82, (0.1, 0.9)) == [], "no room for 10 bytes"
