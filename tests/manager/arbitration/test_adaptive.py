"""`ab.Adaptive` in a closed loop with a small model: trouble is answered by what fits, and then there is rest."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import ConfigError
from anabranch.manager.actions import (
    DiffuseGroups,
    HoldGroups,
    MigrateQuery,
    PartOperator,
    RelocateGroups,
    SpillGroups,
)
from anabranch.manager.arbitration.record import WATCHED
from anabranch.manager.policies.adaptive import Adaptive
from tests.manager.arbitration.model import Model, even
from tests.oracle.profiles import examples

FAST = 1_000.0
GROUPS = 32


def model(adaptive: Adaptive | None = None, processors: int = 4, **fields: object) -> Model:
    """An even cluster, busy for 0.8 s per batch."""
    given: dict[str, object] = {
        "owners": even(GROUPS, processors),
        "speeds": [FAST] * processors,
        "rates": [100] * GROUPS,
        **fields,
    }
    return Model(Adaptive() if adaptive is None else adaptive, **given)  # type: ignore[arg-type]


def slowed(cluster: Model, processor: int, batches: int) -> None:
    """One processor is slower for some batches."""
    cluster.speeds[processor] = 0.3 * FAST
    cluster.run(batches)
    cluster.speeds[processor] = FAST


def test_nothing_is_done_to_a_cluster_that_is_even() -> None:
    cluster = model(memory=[1 << 30] * 4)
    cluster.run(40)
    assert cluster.log == cluster.told == []


def test_a_skewed_start_is_evened_out_within_ten_batches_and_that_is_all() -> None:
    cluster = model(processors=3, owners=[0] * 24 + [1] * 4 + [2] * 4)
    cluster.run(10)
    assert cluster.longest[9] < 0.7 * cluster.longest[0]
    cluster.run(50)
    assert cluster.longest[-1] < 0.5 * cluster.longest[0]
    assert len(cluster.events("adapt")) <= 6
    assert cluster.done(RelocateGroups, first=40) == []


def test_a_processor_that_gets_slow_is_relieved_within_ten_batches() -> None:
    cluster = model()
    cluster.run(10)
    cluster.speeds[1] = 0.3 * FAST
    cluster.run(10)
    assert cluster.longest[-1] < 0.55 * cluster.longest[10]
    cluster.run(40)
    assert cluster.longest[-1] < 0.45 * cluster.longest[10]
    assert cluster.done(RelocateGroups, first=40) == []


def test_a_processor_that_is_slow_for_a_moment_is_waited_for_by_nobody_and_keeps_its_groups() -> None:
    cluster = model()
    cluster.run(10)
    slowed(cluster, 1, batches=2)
    cluster.run(20)
    assert cluster.done(HoldGroups) == [12]
    assert cluster.done(RelocateGroups) == []


def test_rows_of_a_processor_that_stays_slow_do_not_wait_again_and_again() -> None:
    cluster = model(Adaptive(load_balancing=False, relocation=False))
    cluster.run(10)
    slowed(cluster, 1, batches=100)
    assert len(cluster.done(HoldGroups)) <= 24


def test_a_processor_that_is_over_its_memory_pushes_at_once() -> None:
    cluster = model(memory=[1 << 30] * 4)
    cluster.run(30)
    cluster.memory = [120_000] * 4
    cluster.run(1)
    assert cluster.done(SpillGroups) == [31] * 4
    assert all(cluster.bytes_at(p) <= 120_000 for p in range(4))


def test_a_processor_whose_memory_is_cut_gives_groups_away_if_another_one_has_room_and_time_for_them() -> None:
    cluster = model(memory=[1 << 30] * 4, rates=[100] * 24 + [20] * 8)
    cluster.run(30)
    cluster.memory = [120_000, 200_000, 200_000, 200_000]
    cluster.run(10)
    assert cluster.done(SpillGroups) == []
    assert cluster.bytes_at(0) <= 120_000


def test_a_query_goes_on_in_the_order_of_joins_that_a_turn_of_selectivity_makes_cheaper() -> None:
    cluster = model(orders={"A B": 1.0, "B A": 1.5})
    cluster.run(10)
    cluster.orders = {"A B": 3.0, "B A": 1.5}
    cluster.run(10)
    assert cluster.order == "B A"
    cluster.run(30)
    assert len(cluster.done(MigrateQuery)) == 1
    [outcome] = cluster.events("outcome")
    assert outcome.details["measured"]["gain"] == pytest.approx(outcome.details["predicted"]["gain"], rel=0.1)


def test_a_wish_that_is_refused_is_told_and_lets_others_go_on() -> None:
    cluster = model(orders={"A B": 1.0, "B A": 1.5}, refuses=True)
    cluster.run(10)
    cluster.orders = {"A B": 3.0, "B A": 1.5}
    cluster.run(4)
    assert len(cluster.done(MigrateQuery)) == 1
    [outcome] = cluster.events("outcome")
    assert outcome.details["measured"] is None
    assert outcome.text.endswith("it was not carried out")
    cluster.speeds[1] = 0.3 * FAST
    cluster.run(10)
    assert cluster.done(RelocateGroups)
    assert len(cluster.done(MigrateQuery)) == 1


def test_a_group_that_is_too_much_for_any_processor_is_spread_over_several() -> None:
    cluster = model()
    cluster.run(10)
    cluster.rates[12] = 2_500
    cluster.run(10)
    assert cluster.done(DiffuseGroups) == [12]
    assert cluster.longest[-1] < 0.7 * cluster.longest[10]
    cluster.run(30)
    assert len(cluster.log) <= 3


@pytest.mark.parametrize(("seconds", "pays"), [(0.01, True), (5.0, False)])
def test_a_join_that_is_fused_is_set_apart_for_that_if_it_saves_more_than_the_round_costs(
    seconds: float, pays: bool
) -> None:
    cluster = model()
    cluster.fused, cluster.round_seconds = True, seconds
    cluster.run(10)
    cluster.rates[12] = 2_500
    cluster.run(40)
    assert cluster.done(PartOperator) == ([12] if pays else [])
    assert len(cluster.done(DiffuseGroups)) <= 1
    if pays:
        assert cluster.longest[-1] < 0.7 * cluster.longest[10]
        [outcome] = [one for one in cluster.events("outcome") if one.details["adaptation"] == "diffusion"]
        assert outcome.details["measured"]["gain"] > 0


def test_each_adaptation_is_told_with_its_prediction_and_later_with_its_outcome() -> None:
    cluster = model()
    cluster.run(10)
    cluster.speeds[1] = 0.3 * FAST
    cluster.run(60)
    decided, outcomes = cluster.events("adapt"), cluster.events("outcome")
    assert len(decided) == len(outcomes) > 1
    for sentence in decided:
        assert sentence.details["predicted"].keys() == {"before", "after", "lasting", "once", "costs"}
    for sentence in outcomes:
        assert sentence.details["predicted"].keys() == sentence.details["measured"].keys() == {"per batch", "gain"}
    balanced = next(sentence for sentence in decided if sentence.details["adaptation"] == "load_balancing")
    assert balanced.details["processors"] == [1, 3]
    assert balanced.details["trust"] == 1.0
    assert "processor 1 is busy 100% of the time" in balanced.text


def test_a_proposer_that_was_wrong_is_believed_less_and_slowly_more_again() -> None:
    cluster = model()
    cluster.run(10)
    cluster.speeds[1] = 0.3 * FAST
    while not cluster.done(RelocateGroups):
        cluster.run(1)
    cluster.speeds[:] = [0.1 * FAST] * 4  # what was gained by the move is lost for another reason
    cluster.run(WATCHED + 1)
    trust = cluster.policy._arbiter.trust
    wrong = trust.of("load_balancing")
    assert wrong < 0.6
    for _ in range(10):
        trust.recover()
    assert wrong < trust.of("load_balancing") < wrong + 0.1


@pytest.mark.parametrize(
    ("kind", "trouble"),
    [
        ("spill", lambda cluster: setattr(cluster, "memory", [120_000] * 4)),
        ("load_balancing", lambda cluster: cluster.speeds.__setitem__(1, 0.3 * FAST)),
        ("skew_buffer", lambda cluster: cluster.speeds.__setitem__(1, 0.3 * FAST)),
        ("migration", lambda cluster: setattr(cluster, "orders", {"A B": 3.0, "B A": 1.5})),
        ("diffusion", lambda cluster: cluster.rates.__setitem__(12, 2_500)),
        ("relocation", lambda cluster: setattr(cluster, "memory", [120_000, 200_000, 200_000, 200_000])),
    ],
)
def test_what_is_switched_off_is_not_done(kind: str, trouble: Callable[[Model], None]) -> None:
    for on in (True, False):
        adaptive = Adaptive(**{kind: on})
        cluster = model(adaptive, memory=[1 << 30] * 4, orders={"A B": 1.0, "B A": 1.5}, rates=[100] * 24 + [20] * 8)
        cluster.run(10)
        trouble(cluster)
        cluster.run(30)
        told = {sentence.details["adaptation"] for sentence in cluster.events("adapt")}
        assert (kind in told) == on


def test_a_dry_run_tells_what_it_would_do_and_does_nothing() -> None:
    cluster = model(Adaptive(dry_run=True), memory=[1 << 30] * 4)
    cluster.run(10)
    cluster.memory = [40_000] * 4
    cluster.speeds[1] = 0.3 * FAST
    cluster.run(30)
    assert cluster.log == []
    assert {sentence.kind for _, sentence in cluster.told} == {"adapt"}
    assert {"spill", "load_balancing"} <= {sentence.details["adaptation"] for _, sentence in cluster.told}
    assert all("would be done" in sentence.text for _, sentence in cluster.told)
    assert len(cluster.told) <= 30 * 4


@given(st.integers(2, 5), st.integers(0, 1 << 30))
@examples(20)
def test_no_processor_takes_part_in_two_adaptations_at_a_time_whatever_happens(processors: int, seed: int) -> None:
    draw = random.Random(seed).random
    cluster = model(processors=processors, memory=[1 << 30] * processors, orders={"A B": 1.0, "B A": 1.5})
    for _ in range(8):
        cluster.speeds = [FAST * (0.2 + draw()) for _ in range(processors)]
        cluster.rates = [int(200 * draw() ** 4) for _ in range(GROUPS)]
        cluster.orders = {"A B": 1 + 2 * draw(), "B A": 1 + 2 * draw()}
        cluster.memory = [int(50_000 + 400_000 * draw()) for _ in range(processors)]
        cluster.run(8)
    parts: dict[int, list[int]] = {}
    for batch, sentence in cluster.told:
        if sentence.kind == "adapt" and sentence.details["adaptation"] not in ("spill", "skew_buffer"):
            for p in sentence.details["processors"]:
                parts.setdefault(p, []).append(batch)
    for batches in parts.values():
        assert all(later - earlier >= WATCHED for earlier, later in pairwise(batches))
    # A budget is kept at once, unless groups that have just moved away were not enough.
    last = [action for batch, action in cluster.log if batch == cluster.batch]
    moved = {p for action in last if isinstance(action, RelocateGroups) for p in (action.sender, action.receiver)}
    assert all(cluster.bytes_at(p) <= cluster.memory[p] for p in {*range(processors)} - moved)


def test_what_is_not_a_switch_is_refused() -> None:
    with pytest.raises(ConfigError, match="spill is True or False, not 'no'"):
        Adaptive(spill="no")  # type: ignore[arg-type]
