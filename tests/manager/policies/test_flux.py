"""Flux's rounds and its load balancing, on made-up numbers and in a closed loop with a model of a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import ConfigError
from anabranch.manager.policies.flux import FluxHybrid, FluxLoad, FluxMemory
from anabranch.manager.policies.flux_rounds import CALM, FIRST_REST, LAST_REST, LONGEST, RECENT
from tests.manager.policies.cluster import Cluster, Flux, fed, moved, round_of
from tests.manager.snapshots import NOW, snapshot
from tests.oracle.profiles import examples

# A round.


def test_the_largest_partition_that_lowers_the_imbalance_moves_from_the_busiest_to_the_idlest() -> None:
    seen = snapshot(
        fed(0, {0: 500, 1: 300, 2: 200}, busy=1.0),
        fed(1, {10: 500}, busy=0.5),
        fed(2, {20: 200}, busy=0.2),
    )
    assert moved(round_of(FluxLoad(), seen)) == [(0, 0, 2)]


def test_pairs_are_formed_from_the_ends_inwards() -> None:
    levels = [0.8, 0.1, 0.7, 0.2]
    seen = snapshot(*(fed(p, {10 * p + g: 10 for g in range(8)}, busy) for p, busy in enumerate(levels)))
    assert [(sender, receiver) for _, sender, receiver in moved(round_of(FluxLoad(), seen))] == [(0, 1), (2, 3)]


def test_the_first_pair_that_fails_the_test_ends_the_round() -> None:
    levels = [0.80, 0.50, 0.50, 0.70]
    seen = snapshot(*(fed(p, {10 * p + g: 10 for g in range(8)}, busy) for p, busy in enumerate(levels)))
    assert len(moved(round_of(FluxLoad(imbalance=1.3), seen))) == 2
    assert len(moved(round_of(FluxLoad(imbalance=1.5), seen))) == 1, "0.7 against 0.5 is not enough"
    assert len(moved(round_of(FluxLoad(imbalance=1.7), seen))) == 0


def test_a_pair_without_a_partition_that_helps_does_not_end_the_round() -> None:
    hot = fed(0, {0: 100}, 0.95)
    others = [fed(p, {10 * p + g: 10 for g in range(8)}, busy) for p, busy in ((1, 0.9), (2, 0.6), (3, 0.5))]
    assert [(sender, receiver) for _, sender, receiver in moved(round_of(FluxLoad(), snapshot(hot, *others)))] == [
        (1, 2)
    ]


def test_a_donor_below_the_mean_and_a_receiver_in_full_use_are_not_considered() -> None:
    full = snapshot(fed(0, {0: 5, 1: 5}, 1.0), fed(1, {10: 5, 11: 5}, 0.75))
    assert moved(round_of(FluxLoad(utilisation=0.7), full)) == []
    assert moved(round_of(FluxLoad(utilisation=0.75), full)) == []
    assert moved(round_of(FluxLoad(utilisation=0.75), snapshot(fed(0, {0: 9, 1: 1}, 1.0), full.processors[1]))) == [
        (1, 0, 1)
    ]
    levels = [0.9, 0.9, 0.9, 0.3, 0.1, 0.1]
    low = snapshot(*(fed(p, {10 * p + g: 10 for g in range(8)}, busy) for p, busy in enumerate(levels)))
    assert len(moved(round_of(FluxLoad(), low))) == 3
    levels = [0.9, 0.9, 0.4, 0.2, 0.1, 0.1]
    low = snapshot(*(fed(p, {10 * p + g: 10 for g in range(8)}, busy) for p, busy in enumerate(levels)))
    assert len(moved(round_of(FluxLoad(), low))) == 2, "0.4 is below the mean"


def test_only_what_arrived_in_the_round_counts_and_a_count_that_went_down_was_reset() -> None:
    policy = FluxLoad(minimum="1 second")
    first = snapshot(fed(0, {0: 900, 1: 10, 2: 500}), fed(1, {10: 5}))
    second = snapshot(fed(0, {0: 901, 1: 30, 2: 100}, 0.8), fed(1, {10: 25}, 0.2), at=1)
    assert list(policy.decide(first)) == []
    [move] = policy.decide(second)
    assert moved([move]) == [(1, 0, 1)], "1, 20 and 100 rows: the last would be too much for the receiver"
    assert move.reason.endswith("expected then: the first is busy 67% of the time, the second is busy 40% of the time")


def test_groups_with_state_on_disk_and_processors_with_a_move_under_way_are_left_alone() -> None:
    busy, idle = fed(0, {0: 30, 1: 20, 2: 50}, 0.9, spilled=[0]), fed(1, {10: 10}, 0.1)
    assert moved(round_of(FluxLoad(), snapshot(busy, idle))) == [(2, 0, 1)]
    moving = fed(2, {20: 10}, 0.0, moves=True)
    assert moved(round_of(FluxLoad(), snapshot(busy, idle, moving))) == [(2, 0, 1)]


def test_groups_that_are_diffused_stay_and_their_rows_count_all_the_same() -> None:
    seen = snapshot(fed(0, {0: 60, 1: 30, 2: 10}, 1.0, diffused=[0]), fed(1, {10: 20}, 0.2))
    [move] = round_of(FluxLoad(), seen)
    assert moved([move]) == [(1, 0, 1)]
    assert move.reason.endswith("expected then: the first is busy 70% of the time, the second is busy 50% of the time")


def test_a_receiver_that_has_done_nothing_is_taken_to_be_as_fast_as_the_donor() -> None:
    seen = snapshot(fed(0, {0: 60, 1: 40}, 1.0), fed(1, {}))
    [move] = round_of(FluxLoad(), seen)
    assert moved([move]) == [(0, 0, 1)]
    assert move.reason.endswith("expected then: the first is busy 40% of the time, the second is busy 60% of the time")


def test_several_partitions_may_move_at_a_time_as_long_as_each_helps() -> None:
    seen = snapshot(fed(0, dict.fromkeys(range(10), 10), 1.0), fed(1, {10: 10, 11: 10}, 0.2))
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
    seen = [fed(p, {10 * p + g: n for g, n in enumerate(own)}, busy[p]) for p, own in enumerate(tuples)]
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
        seen = snapshot(fed(0, rows, 0.8), fed(1, {}), at=batch)
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
        first = fed(0, dict.fromkeys(range(8), 10 * look), levels[0], moves=moves)
        second = fed(1, {99: 10 * look}, levels[1], moves=moves)
        if list(policy.decide(snapshot(first, second, at=look))):
            found.append(look)
    assert found == decided


def test_a_fixed_minimum_neither_grows_nor_makes_groups_rest() -> None:
    policy = FluxLoad(minimum="1 second")
    cluster = Cluster(policy, [0, 0, 0, 0, 1, 1, 1, 1], [100, 100])
    cluster.run(200, whoever_has_groups_gets_the_rows(2))
    assert len(cluster.moves) > 90
    assert policy._rounds.damping.doublings == 0


# The closed loop, and the bounds that the essay of `flux_rounds` derives.


def most_turns_back(batches: float) -> float:
    """In how many rounds load can turn back, of so many batches, when delta_min tunes itself."""
    return min(LONGEST, log2(1 + batches)) + batches / (2 * CALM)


def most_moves_of_a_group(batches: float) -> float:
    """How often one group can move in so many batches, when delta_min tunes itself."""
    return 1 + min(log2(LAST_REST / FIRST_REST), log2(1 + batches / FIRST_REST)) + batches / LAST_REST


def most_moves_per_minute(minutes: float, batch: float, processors: int, groups: int, per_round: int = 1) -> float:
    """How many groups can move per minute on average over a run with batches of so many seconds, whatever happens."""
    batches = 60 * minutes / batch
    by_rounds = per_round * (processors // 2) * batches / 2
    return min(by_rounds, groups * most_moves_of_a_group(batches)) / minutes


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
    flows: dict[tuple[int, int], int] = {}
    before: dict[int, int] = {}
    found = 0
    for batch in sorted({batch for batch, *_ in moves}):
        own = [move[1:] for move in moves if move[0] == batch]
        past = [when for g, s, r in own for when in (flows.get((r, s)), before.get(g))]
        found += any(when is not None and batch - when < RECENT for when in past)
        for group, sender, receiver in own:
            flows[sender, receiver], before[group] = batch, batch
    return found


def test_a_static_imbalance_is_evened_out_and_then_moves_stop() -> None:
    cluster = Cluster(FluxLoad(), [0] * 32 + [1] * 16 + [2] * 8 + [3] * 8, [100.0] * 4)
    rates = [2] * 64
    assert max(cluster.utilisation(rates)) / min(cluster.utilisation(rates)) == 4
    cluster.run(100, lambda _: rates)
    assert max(cluster.utilisation(rates)) / min(cluster.utilisation(rates)) < 1.2
    done = len(cluster.moves)
    assert done <= 20, "16 would be enough"
    cluster.run(200, lambda _: rates)
    assert len(cluster.moves) == done


@pytest.mark.parametrize(("per_round", "batches"), [(1, 250), (4, 80)])
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


def test_the_first_round_that_goes_back_moves_one_partition() -> None:
    cluster = Cluster(FluxLoad(per_round=4), [group % 2 for group in range(64)], [400.0, 1000.0])
    cluster.run(30, lambda _: [20] * 64)
    cluster.speeds.reverse()
    cluster.run(120, lambda _: [20] * 64)
    rounds = Counter((batch, sender) for batch, _, sender, _ in cluster.moves)
    assert max(moved for (_, sender), moved in rounds.items() if sender == 0) == 4
    back = [moved for (_, sender), moved in sorted(rounds.items()) if sender == 1]
    assert back[:3] == [1, 4, 4], "by then it is clear that more was not too much before"


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
    groups, batches = 32, 800
    owners = [group % processors for group in range(groups)]
    cluster = Cluster(FluxLoad(per_round=per_round), owners[:], [400.0] * processors)
    cluster.run(batches, whoever_has_groups_gets_the_rows(period))
    minutes = batches / 60
    assert (cluster.time - NOW) / 60 == pytest.approx(minutes)
    assert len(cluster.moves) / minutes <= most_moves_per_minute(minutes, 1.0, processors, groups, per_round)
    assert turning_back(cluster.moves) <= most_turns_back(batches)
    times = Counter(group for _, group, *_ in cluster.moves)
    assert max(times.values(), default=0) <= most_moves_of_a_group(batches)
    if period < RECENT:
        last = cluster.moves_between(batches * 3 // 4, batches + 1)
        assert last < cluster.moves_between(0, batches // 4) or not cluster.moves
        undamped = Cluster(FluxLoad(per_round=per_round, minimum="1 second"), owners[:], [400.0] * processors)
        undamped.run(batches // 4, whoever_has_groups_gets_the_rows(period))
        assert last < len(undamped.moves) / 10


def noisy(chance: np.random.Generator, noise: float) -> Callable[[Cluster], Sequence[int]]:
    """The same for all groups on average, but each batch finds each processor with another amount of work."""

    def rates(cluster: Cluster) -> Sequence[int]:
        factors = np.exp(chance.normal(0, noise, len(cluster.speeds)))
        return [round(100 * factors[owner]) for owner in cluster.owners]

    return rates


@pytest.mark.parametrize("seed", range(4))
def test_noise_moves_little_and_what_is_slow_is_still_found(seed: int) -> None:
    owners = [group % 4 for group in range(64)]
    chance = np.random.default_rng(seed)
    cluster = Cluster(FluxLoad(per_round=4), owners[:], [2_000.0] * 4)
    cluster.run(100, noisy(chance, 0.2))
    fixed = Cluster(FluxLoad(per_round=4, minimum="1 second"), owners[:], [2_000.0] * 4)
    fixed.run(100, noisy(chance, 0.2))
    assert len(cluster.moves) < len(fixed.moves) / 4
    cluster.speeds[0] = 800.0
    cluster.run(60, noisy(chance, 0.2))
    assert len(cluster.owned(0)) <= 12, "of 16; equal shares of the work would be 8"


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


# Arguments.


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
