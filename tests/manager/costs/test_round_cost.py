"""What a round costs is the difference that batches show, and estimated before they do."""

from __future__ import annotations

import pytest

from anabranch.manager.costs.round_cost import KNOWN, UNKNOWN, RoundCost


def measured(*batches: tuple[int, float, float], times: int = KNOWN) -> RoundCost:
    cost = RoundCost()
    for rounds, seconds, busiest in batches:
        for _ in range(times):
            cost.note(rounds, seconds, busiest)
    return cost


def test_the_difference_of_batches_with_other_numbers_of_rounds_is_what_a_round_costs() -> None:
    assert measured((1, 0.9, 0.2), (2, 1.7, 0.8)).seconds == pytest.approx(0.2)
    assert measured((3, 1.3, 0.1), (1, 0.8, 0.2)).seconds == pytest.approx(0.3)
    assert measured((2, 0.5, 0.0), (1, 0.9, 0.0)).seconds == 0, "a round saves nothing"


def test_one_batch_that_takes_very_long_does_not_count() -> None:
    cost = measured((1, 0.8, 0.0))
    for seconds in (9.0, 1.0, 1.0, 1.0):
        cost.note(2, seconds, 0.0)
    assert cost.is_measured
    assert cost.seconds == pytest.approx(0.2)


def test_before_it_can_be_measured_it_is_a_share_of_what_a_batch_takes_beside_the_work() -> None:
    assert RoundCost().seconds == UNKNOWN
    assert measured((1, 9.0, 0.0), times=KNOWN - 1).seconds == UNKNOWN, "the first batches take long"
    cost = measured((1, 1.0, 0.2))
    assert cost.seconds == pytest.approx(0.2)
    cost.note(2, 5.0, 0.0)
    assert not cost.is_measured, "once is not enough"
    assert cost.seconds == pytest.approx(0.2)
