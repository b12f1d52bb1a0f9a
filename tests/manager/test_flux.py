"""Flux on made-up numbers, and in a closed loop with a small model of a cluster that does what is decided.

In the model every group has a rate and every processor a speed. A batch takes as long as its slowest processor, at
least a second, and groups that move are at their new place in the next batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import ConfigError
from anabranch.manager.actions import RelocateGroups
from anabranch.manager.policies.flux import FluxHybrid, FluxLoad, FluxMemory
from anabranch.manager.policies.flux_rounds import (
    RECENT,
    most_moves_of_a_group,
    most_moves_per_minute,
    most_turns_back,
)
from anabranch.manager.snapshot import OperatorSeen, ProcessorSeen, Snapshot
from anabranch.state.groups import GroupSet
from anabranch.state.statistics import Statistics
from tests.oracle.profiles import examples

NOW = 1_000_000.0
COUNT = 1_024

Flux = FluxLoad | FluxMemory | FluxHybrid


def processor(
    number: int,
    arrived: dict[int, int],
    busy: float = 0.0,
    sizes: dict[int, int] | None = None,
    memory: int | None = None,
    spilled: Sequence[int] = (),
    spilled_bytes: int = 0,
    moves: bool = False,
) -> ProcessorSeen:
    """A processor with groups that so many rows have arrived for, of 10 bytes unless told."""
    groups = np.array(sorted(arrived), dtype=np.int64)
    size = np.array([10 if sizes is None else sizes[group] for group in groups.tolist()], dtype=np.int64)
    count = len(groups)
    rows = np.array([arrived[group] for group in groups.tolist()], dtype=np.int64)
    known = Statistics(groups, size, np.ones(count, dtype=np.int64), np.ones(count), np.full(count, NOW), rows)
    seen = OperatorSeen(0, known, spilled=GroupSet.of(COUNT, spilled) if len(spilled) else None)
    active = int(size.sum())
    return ProcessorSeen(number, active, (seen,), memory, busy, spilled_bytes=spilled_bytes, moves=moves)


def snapshot(*processors: ProcessorSeen, at: float = 0.0, seconds: float = 1.0) -> Snapshot:
    return Snapshot(7, NOW + at, processors, seconds)


def empty(seen: Snapshot) -> Snapshot:
    """The same processors a second earlier, when nothing had arrived."""
    nobody = [ProcessorSeen(each.processor, 0, (), each.memory) for each in seen.processors]
    return Snapshot(6, seen.time - 1, tuple(nobody), 1.0)


def round_of(policy: Flux, seen: Snapshot) -> list[RelocateGroups]:
    """What is decided after a round of one batch, in which all that has ever arrived came."""
    assert list(policy.decide(empty(seen))) == []
    return list(policy.decide(seen))


def moved(actions: Sequence[RelocateGroups]) -> list[tuple[int, int, int]]:
    return [(group, move.sender, move.receiver) for move in actions for group in move.groups]


@dataclass
class Cluster:
    """The model."""

    policy: Flux
    owners: list[int]
    speeds: list[float]
    sizes: list[int] | None = None
    memory: list[int] | None = None
    time: float = NOW
    batch: int = 0
    moves: list[tuple[int, int, int, int]] = field(default_factory=list)
    arrived: list[int] = field(default_factory=list)

    def owned(self, number: int) -> list[int]:
        return [group for group, owner in enumerate(self.owners) if owner == number]

    def busy(self, rates: Sequence[int]) -> list[float]:
        return [sum(rates[group] for group in self.owned(p)) / speed for p, speed in enumerate(self.speeds)]

    def utilisation(self, rates: Sequence[int]) -> list[float]:
        busy = self.busy(rates)
        return [seconds / max(1.0, *busy) for seconds in busy]

    def state(self) -> list[int]:
        assert self.sizes is not None
        return [sum(self.sizes[group] for group in self.owned(p)) for p in range(len(self.speeds))]

    def run(self, batches: int, rates: Callable[[Cluster], Sequence[int]]) -> None:
        for _ in range(batches):
            self.step(rates(self))

    def step(self, rates: Sequence[int]) -> None:
        busy = self.busy(rates)
        seconds = max(1.0, *busy)
        self.time, self.batch = self.time + seconds, self.batch + 1
        self.arrived = [sum(pair) for pair in zip(self.arrived or [0] * len(rates), rates, strict=True)]
        seen = [
            processor(
                p,
                {group: self.arrived[group] for group in self.owned(p)},
                busy[p],
                None if self.sizes is None else dict(enumerate(self.sizes)),
                None if self.memory is None else self.memory[p],
            )
            for p in range(len(self.speeds))
        ]
        for group, sender, receiver in moved(
            list(self.policy.decide(Snapshot(self.batch, self.time, tuple(seen), seconds)))
        ):
            assert self.owners[group] == sender
            self.owners[group] = receiver
            self.moves.append((self.batch, group, sender, receiver))

    def moves_between(self, first: int, last: int) -> int:
        return sum(first <= batch < last for batch, *_ in self.moves)


# A round.


def test_the_largest_partition_that_lowers_the_imbalance_moves_from_the_busiest_to_the_idlest() -> None:
    seen = snapshot(
        processor(0, {0: 500, 1: 300, 2: 200}, busy=1.0),
        processor(1, {10: 500}, busy=0.5),
        processor(2, {20: 200}, busy=0.2),
    )
    assert moved(round_of(FluxLoad(), seen)) == [(0, 0, 2)]


def test_pairs_are_formed_from_the_ends_inwards() -> None:
    levels = [0.8, 0.1, 0.7, 0.2]
    seen = snapshot(*(processor(p, {10 * p + g: 10 for g in range(8)}, busy) for p, busy in enumerate(levels)))
    assert [(sender, receiver) for _, sender, receiver in moved(round_of(FluxLoad(), seen))] == [(0, 1), (2, 3)]


def test_the_first_pair_that_fails_the_test_ends_the_round() -> None:
    levels = [0.80, 0.50, 0.50, 0.70]
    seen = snapshot(*(processor(p, {10 * p + g: 10 for g in range(8)}, busy) for p, busy in enumerate(levels)))
    assert len(moved(round_of(FluxLoad(imbalance=1.3), seen))) == 2
    assert len(moved(round_of(FluxLoad(imbalance=1.5), seen))) == 1, "0.7 against 0.5 is not enough"
    assert len(moved(round_of(FluxLoad(imbalance=1.7), seen))) == 0


def test_a_pair_without_a_partition_that_helps_does_not_end_the_round() -> None:
    hot = processor(0, {0: 100}, 0.95)
    others = [processor(p, {10 * p + g: 10 for g in range(8)}, busy) for p, busy in ((1, 0.9), (2, 0.6), (3, 0.5))]
    assert [(sender, receiver) for _, sender, receiver in moved(round_of(FluxLoad(), snapshot(hot, *others)))] == [
        (1, 2)
    ]


def test_a_donor_below_the_mean_and_a_receiver_in_full_use_are_not_considered() -> None:
    full = snapshot(processor(0, {0: 5, 1: 5}, 1.0), processor(1, {10: 5, 11: 5}, 0.8))
    assert moved(round_of(FluxLoad(utilisation=0.7), full)) == []
    assert moved(round_of(FluxLoad(utilisation=0.8), full)) == []
    assert moved(
        round_of(FluxLoad(utilisation=0.8), snapshot(processor(0, {0: 9, 1: 1}, 1.0), full.processors[1]))
    ) == [(1, 0, 1)]
    levels = [0.9, 0.9, 0.9, 0.3, 0.1, 0.1]
    low = snapshot(*(processor(p, {10 * p + g: 10 for g in range(8)}, busy) for p, busy in enumerate(levels)))
    assert len(moved(round_of(FluxLoad(), low))) == 3
    levels = [0.9, 0.9, 0.4, 0.2, 0.1, 0.1]
    low = snapshot(*(processor(p, {10 * p + g: 10 for g in range(8)}, busy) for p, busy in enumerate(levels)))
    assert len(moved(round_of(FluxLoad(), low))) == 2, "0.4 is below the mean"


def test_only_what_arrived_in_the_round_counts_and_a_count_that_went_down_was_reset() -> None:
    policy = FluxLoad()
    first = snapshot(processor(0, {0: 900, 1: 10, 2: 500}), processor(1, {10: 5}))
    second = snapshot(processor(0, {0: 901, 1: 30, 2: 100}, 0.8), processor(1, {10: 25}, 0.2), at=1)
    assert list(policy.decide(first)) == []
    [move] = policy.decide(second)
    assert moved([move]) == [(1, 0, 1)], "1, 20 and 100 rows: the last would be too much for the receiver"
    assert move.reason.endswith("expected then: is busy 67% of the time, is busy 40% of the time")


def test_groups_with_state_on_disk_and_processors_with_a_move_under_way_are_left_alone() -> None:
    busy, idle = processor(0, {0: 30, 1: 20, 2: 50}, 0.9, spilled=[0]), processor(1, {10: 10}, 0.1)
    assert moved(round_of(FluxLoad(), snapshot(busy, idle))) == [(2, 0, 1)]
    moving = processor(2, {20: 10}, 0.0, moves=True)
    assert moved(round_of(FluxLoad(), snapshot(busy, idle, moving))) == [(2, 0, 1)]


def test_a_receiver_that_has_done_nothing_is_taken_to_be_as_fast_as_the_donor() -> None:
    seen = snapshot(processor(0, {0: 60, 1: 40}, 1.0), processor(1, {}))
    [move] = round_of(FluxLoad(), seen)
    assert moved([move]) == [(0, 0, 1)]
    assert move.reason.endswith("expected then: is busy 40% of the time, is busy 60% of the time")


def test_several_partitions_may_move_at_a_time_as_long_as_each_helps() -> None:
    seen = snapshot(processor(0, dict.fromkeys(range(10), 10), 1.0), processor(1, {10: 10, 11: 10}, 0.2))
    assert len(moved(round_of(FluxLoad(per_round=3), seen))) == 3
    assert len(moved(round_of(FluxLoad(per_round=9), seen))) == 4, "then both are busy 60% of the time"


@examples(200)
@given(
    tuples=st.lists(st.lists(st.integers(0, 100), max_size=8), min_size=2, max_size=6),
    busy=st.lists(st.floats(0, 1), min_size=6, max_size=6),
)
def test_estimates_are_the_papers_and_each_move_is_the_first_that_lowers_the_imbalance(
    tuples: list[list[int]], busy: list[float]
) -> None:
    seen = [processor(p, {10 * p + g: n for g, n in enumerate(own)}, busy[p]) for p, own in enumerate(tuples)]
    moves = moved(round_of(FluxLoad(), snapshot(*seen)))
    assert len({party for _, *pair in moves for party in pair}) == 2 * len(moves), "a site moves one partition at most"
    mean = sum(busy[: len(seen)]) / len(seen)
    for group, donor, receiver in moves:
        used, least = busy[donor], busy[receiver]
        assert used >= mean - 1e-9
        assert used >= 1.2 * least
        assert least <= 0.9
        total, other = sum(tuples[donor]), sum(tuples[receiver])

        def then(
            n: int, used: float = used, least: float = least, total: int = total, other: int = other
        ) -> list[float]:
            takes = least * (1 + n / other) if other and least else least + used * n / total
            return [used * (1 - n / total), takes]

        def helps(n: int, used: float = used, least: float = least) -> bool:
            gives, takes = then(n)
            return abs(gives - takes) < used - least - 1e-9 and takes <= 1 and takes < used - 1e-9

        moving = tuples[donor][group - 10 * donor]
        gives, takes = then(moving)
        assert abs(gives - takes) < used - least
        assert takes <= 1
        assert not any(helps(n) for n in tuples[donor] if n > moving), "larger ones would not do"


# Rounds.


def test_nothing_is_decided_before_a_whole_round_was_seen() -> None:
    policy = FluxLoad(minimum="3 seconds")
    rows = {0: 0, 1: 0}
    decided = []
    for batch in range(5):
        rows = {group: count + 10 for group, count in rows.items()}
        seen = snapshot(processor(0, rows, 0.8), processor(1, {}), at=batch)
        decided.append(bool(list(policy.decide(seen))))
    assert decided == [False, False, False, True, False], "a first look, and three batches"


@pytest.mark.parametrize(("even_until", "decided"), [(10, [2, 18]), (18, [2, 22]), (22, [2, 24]), (24, [2, 25])])
def test_a_round_collects_for_as_long_as_the_last_moves_took_then_for_half_as_long(
    even_until: int, decided: list[int]
) -> None:
    policy = FluxLoad(minimum="0 seconds")
    found = []
    for look in range(1, decided[-1] + 1):
        levels = (0.5, 0.5) if 2 < look <= even_until else (0.8, 0.0)
        moves = 2 < look < 10  # so the move phase takes eight seconds
        first = processor(0, dict.fromkeys(range(8), 10 * look), levels[0], moves=moves)
        second = processor(1, {99: 10 * look}, levels[1], moves=moves)
        if list(policy.decide(snapshot(first, second, at=look))):
            found.append(look)
    assert found == decided


def test_a_fixed_minimum_neither_grows_nor_makes_groups_rest() -> None:
    policy = FluxLoad(minimum="1 second")
    cluster = Cluster(policy, [0, 0, 0, 0, 1, 1, 1, 1], [100, 100])
    cluster.run(200, whoever_has_groups_gets_the_rows(2))
    assert len(cluster.moves) > 90
    assert policy._rounds.damping.doublings == 0


# The closed loop.


def whoever_has_groups_gets_the_rows(period: int) -> Callable[[Cluster], Sequence[int]]:
    """The worst that can happen: every so many batches all groups that the next processor has by then become hot."""
    hot: set[int] = set()

    def rates(cluster: Cluster) -> Sequence[int]:
        if cluster.batch % period == 0:
            hot.clear()
            hot.update(cluster.owned(cluster.batch // period % len(cluster.speeds)))
        return [12 if group in hot else 2 for group in range(len(cluster.owners))]

    return rates


def turning_back(moves: Sequence[tuple[int, int, int, int]]) -> int:
    """In how many rounds load went back within `RECENT` batches, which are no more than so many rounds."""
    gave: dict[int, int] = {}
    received: dict[int, int] = {}
    before: dict[int, int] = {}
    found = 0
    for batch in sorted({batch for batch, *_ in moves}):
        own = [move[1:] for move in moves if move[0] == batch]
        past = [store.get(key) for g, s, r in own for store, key in ((received, s), (gave, r), (before, g))]
        found += any(when is not None and batch - when < RECENT for when in past)
        for group, sender, receiver in own:
            gave[sender], received[receiver], before[group] = batch, batch, batch
    return found


def test_a_static_imbalance_is_evened_out_and_then_moves_stop() -> None:
    cluster = Cluster(FluxLoad(), [0] * 32 + [1] * 16 + [2] * 8 + [3] * 8, [100.0] * 4)
    rates = [2] * 64
    assert max(cluster.utilisation(rates)) / min(cluster.utilisation(rates)) == 4
    cluster.run(60, lambda _: rates)
    assert max(cluster.utilisation(rates)) / min(cluster.utilisation(rates)) < 1.2
    done = len(cluster.moves)
    assert done <= 20, "16 would be enough"
    cluster.run(200, lambda _: rates)
    assert len(cluster.moves) == done


@pytest.mark.parametrize(("per_round", "batches"), [(1, 120), (4, 40)])
def test_a_processor_slowed_to_two_fifths_ends_as_used_as_the_others(per_round: int, batches: int) -> None:
    cluster = Cluster(FluxLoad(per_round=per_round), [group % 4 for group in range(256)], [400.0] + [1000.0] * 3)
    rates = [10] * 256
    assert min(cluster.utilisation(rates)) == pytest.approx(0.4), "the others wait for it"
    cluster.run(batches, lambda _: rates)
    used = cluster.utilisation(rates)
    assert max(used) - min(used) < 1 - 1 / 1.2, "what th_imb leaves alone"
    assert max(cluster.busy(rates)) <= 1, "batches are as short again as if nothing had happened"
    done = len(cluster.moves)
    cluster.run(100, lambda _: rates)
    assert len(cluster.moves) == done


@examples(15)
@given(
    rates=st.lists(st.integers(1, 60), min_size=8, max_size=40),
    speeds=st.lists(st.sampled_from([40.0, 100.0, 200.0]), min_size=2, max_size=4),
    policy=st.sampled_from([FluxLoad, FluxHybrid]),
    per_round=st.integers(1, 4),
)
def test_under_a_steady_load_moves_end_while_all_processors_have_something_to_do(
    rates: list[int], speeds: list[float], policy: Callable[..., Flux], per_round: int
) -> None:
    cluster = Cluster(policy(per_round=per_round), [group % len(speeds) for group in range(len(rates))], speeds)
    emptied = False

    def steady(cluster: Cluster) -> Sequence[int]:
        nonlocal emptied
        emptied |= not all(cluster.owned(p) for p in range(len(speeds)))
        return rates

    cluster.run(250, steady)
    assert emptied or cluster.moves_between(200, 251) == 0


def test_hot_groups_that_swap_sides_are_mixed_and_then_stay() -> None:
    def rates(cluster: Cluster) -> Sequence[int]:
        hot = cluster.batch // 6 % 2
        return [12 if group % 2 == hot else 1 for group in range(32)]

    cluster = Cluster(FluxLoad(), [group % 2 for group in range(32)], [200.0, 200.0])
    cluster.run(600, rates)
    assert cluster.moves_between(0, 100) <= 16
    assert cluster.moves_between(400, 601) == 0


@pytest.mark.parametrize("period", [2, 4, 6, 10, 40])
@pytest.mark.parametrize("processors", [2, 4])
@pytest.mark.parametrize("per_round", [1, 4])
def test_an_oscillating_load_keeps_moves_below_the_bounds_and_makes_them_fewer(
    period: int, processors: int, per_round: int
) -> None:
    groups, batches = 32, 1_600
    owners = [group % processors for group in range(groups)]
    cluster = Cluster(FluxLoad(per_round=per_round), owners[:], [300.0] * processors)
    cluster.run(batches, whoever_has_groups_gets_the_rows(period))
    minutes = batches / 60
    assert (cluster.time - NOW) / 60 == pytest.approx(minutes)
    assert len(cluster.moves) / minutes <= most_moves_per_minute(minutes, 1.0, processors, groups, per_round)
    assert turning_back(cluster.moves) <= most_turns_back(batches)
    assert max(Counter(group for _, group, *_ in cluster.moves).values()) <= most_moves_of_a_group(batches)
    if period < RECENT:
        last = cluster.moves_between(batches * 3 // 4, batches + 1)
        assert last < cluster.moves_between(0, batches // 4)
        undamped = Cluster(FluxLoad(per_round=per_round, minimum="1 second"), owners[:], [300.0] * processors)
        undamped.run(batches // 4, whoever_has_groups_gets_the_rows(period))
        assert last < len(undamped.moves) / 10


@examples(30)
@given(seed=st.integers(0, 1_000), per_round=st.integers(1, 3), processors=st.integers(2, 5))
def test_whatever_the_load_does_the_bounds_hold(seed: int, per_round: int, processors: int) -> None:
    chance = np.random.default_rng(seed)
    groups, batches = 24, 300

    def rates(cluster: Cluster) -> Sequence[int]:
        found = np.full(groups, 2)
        found[chance.integers(0, groups, chance.integers(0, 6))] = 60
        return found.tolist()

    cluster = Cluster(
        FluxLoad(per_round=per_round), chance.integers(0, processors, groups).tolist(), [400.0] * processors
    )
    cluster.run(batches, rates)
    rounds = {batch for batch, *_ in cluster.moves}
    assert len(rounds) <= batches / 2
    assert len(cluster.moves) <= per_round * (processors // 2) * len(rounds)
    times = Counter(group for _, group, *_ in cluster.moves)
    assert max(times.values(), default=0) <= most_moves_of_a_group(batches)
    minutes = (cluster.time - NOW) / 60
    assert len(cluster.moves) / minutes <= most_moves_per_minute(minutes, 1.0, processors, groups, per_round)


# Memory.


def test_excess_memory_is_balanced_the_largest_partition_first() -> None:
    sizes = {0: 60, 1: 50, 2: 20, 10: 10}
    cut = processor(0, {0: 1, 1: 1, 2: 1}, sizes=sizes, memory=200)
    roomy = processor(1, {10: 1}, sizes=sizes, memory=200)
    assert moved(round_of(FluxMemory(), snapshot(cut, roomy))) == [(0, 0, 1)]


def test_without_budgets_sizes_are_balanced() -> None:
    sizes = {0: 60, 1: 50, 10: 10}
    for budget in (None, 50):
        seen = snapshot(processor(0, {0: 1, 1: 1}, sizes=sizes), processor(1, {10: 1}, sizes=sizes, memory=budget))
        [move] = round_of(FluxMemory(), seen)
        assert moved([move]) == [(0, 0, 1)]
        assert "processor 0 has 110 B of state" in move.reason


def test_the_imbalance_of_excess_memory_is_defined_below_and_at_zero() -> None:
    sizes = {0: 60, 1: 60, 10: 50, 11: 50}
    first, second = {0: 1, 1: 1}, {10: 1, 11: 1}
    for budget in (1_000, 120, 110, 100, 10):
        seen = snapshot(
            processor(0, first, sizes=sizes, memory=budget), processor(1, second, sizes=sizes, memory=budget)
        )
        assert moved(round_of(FluxMemory(imbalance=1.21), seen)) == []
        # No group of 50 or 60 bytes can lower a difference of 20.
        assert moved(round_of(FluxMemory(imbalance=1.2), seen)) == []


def test_a_small_excess_is_relieved_whatever_the_ratio_while_somebody_has_room() -> None:
    sizes = {0: 95, 1: 8, 10: 90}
    over = processor(0, {0: 1, 1: 1}, sizes=sizes, memory=100)
    assert moved(round_of(FluxMemory(), snapshot(over, processor(1, {10: 1}, sizes=sizes, memory=100)))) == [(1, 0, 1)]
    fits = processor(0, {0: 1, 1: 1}, sizes=sizes, memory=110)
    assert moved(round_of(FluxMemory(), snapshot(fits, processor(1, {10: 1}, sizes=sizes, memory=110)))) == []


def test_a_receiver_is_not_brought_over_its_memory_unless_all_memory_is_exhausted() -> None:
    sizes = {0: 40, 1: 25, 2: 35, 10: 70}
    groups = dict.fromkeys(range(3), 1)
    tight = processor(1, {10: 1}, sizes=sizes, memory=100)
    donor = processor(0, groups, sizes=sizes, memory=100)
    assert moved(round_of(FluxMemory(), snapshot(donor, tight))) == [(1, 0, 1)], "there is room for 30 bytes"
    donor = processor(0, groups, sizes=sizes, memory=100, spilled_bytes=30)
    assert moved(round_of(FluxMemory(), snapshot(donor, tight))) == [(0, 0, 1)], "disk use is balanced"


def test_groups_on_disk_move_only_if_asked_for_and_after_those_in_memory() -> None:
    sizes = {0: 30, 1: 20, 2: 5, 10: 5}
    first = processor(0, {0: 1, 1: 1, 2: 1}, sizes=sizes, spilled=[0], spilled_bytes=10)
    second = processor(1, {10: 1}, sizes=sizes)
    assert moved(round_of(FluxMemory(on_disk=True), snapshot(first, second))) == [(1, 0, 1)]
    most = processor(0, {0: 1, 1: 1}, sizes=sizes, spilled=[0, 1], spilled_bytes=10)
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
        seen.append(processor(p, groups, sizes=by_group, memory=budgets[p], spilled=disk))
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
        first = processor(0, rows, busy[0], sizes, memory, spilled_bytes=spilled_bytes)
        return moved(round_of(FluxHybrid(), snapshot(first, processor(1, idle, busy[1], sizes, memory))))

    assert decided(100, (0.1, 0.9)) == [(11, 1, 0)], "load, the other way; 10 and 11 give 0.3 and 0.6"
    assert decided(79, (0.1, 0.9)) == [(0, 0, 1)], "one is over its memory"
    assert decided(100, (0.1, 0.9), spilled_bytes=1) == [(0, 0, 1)], "something is spilled"
    assert decided(82, (0.1, 0.9)) == [], "no room for 10 bytes"


@pytest.mark.parametrize(
    ("policy", "wrong", "message"),
    [
        (FluxLoad, {"imbalance": 0.9}, "imbalance is how many times .* not 0.9"),
        (FluxLoad, {"utilisation": 0}, "utilisation is a share of the time"),
        (FluxLoad, {"per_round": 0}, "per_round is a number of partitions"),
        (FluxMemory, {"minimum": 10}, "minimum must be a length of time, such as '10 seconds', not 10"),
        (FluxMemory, {"on_disk": "yes"}, "on_disk is True or False, not 'yes'"),
        (FluxHybrid, {"per_round": True}, "per_round is a number of partitions"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    policy: Callable[..., Flux], wrong: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        policy(**wrong)
