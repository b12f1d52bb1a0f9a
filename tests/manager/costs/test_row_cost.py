"""What rows and results cost is found from what processors did, however much alike their steps are."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.manager.costs.row_cost import UNKNOWN, Measured, row_cost, slowness


def steps(count: int, row: float, result: float, step: float, noise: float = 0.0) -> list[Measured]:
    random = np.random.default_rng(7)
    rows, results = random.integers(100, 10_000, (2, count)).astype(float)
    factors = 1 + noise * (random.random(count) - 0.5)
    cpu = (step + row * rows + result * results) * factors
    return [Measured(*each) for each in zip(rows, results, cpu.tolist(), strict=True)]


def test_rows_results_and_steps_are_told_apart() -> None:
    cost = row_cost(steps(20, 3e-6, 1e-6, 0.005))
    assert (cost.row, cost.result, cost.step) == pytest.approx((3e-6, 1e-6, 0.005), rel=0.05)


def test_noise_leaves_costs_about_right() -> None:
    cost = row_cost(steps(64, 3e-6, 1e-6, 0.005, noise=0.3))
    assert cost.row == pytest.approx(3e-6, rel=0.3)
    assert cost.result == pytest.approx(1e-6, rel=0.3)


def test_where_all_steps_are_alike_a_row_costs_as_much_as_a_result() -> None:
    cost = row_cost([Measured(1_000, 3_000, 0.04)] * 8)
    assert cost.row == pytest.approx(1e-5, rel=0.05)
    assert cost.result == pytest.approx(1e-5, rel=0.05)


def test_nothing_measured_is_the_same_for_both() -> None:
    assert row_cost([]) == row_cost([Measured(0, 0, 0.1), Measured(50, 50, 0.0)]) == UNKNOWN


def test_only_a_processor_that_is_slower_by_far_and_in_most_steps_counts_as_slow() -> None:
    cost = row_cost(steps(20, 1e-6, 1e-6, 0.001))
    usual, slow, hiccup = (Measured(5_000, 5_000, cpu) for cpu in (0.011, 0.033, 0.2))
    little = Measured(5, 5, 0.011)
    step = [usual, slow, Measured(5_000, 5_000, 0.014), little]
    assert slowness(cost, [step, [hiccup, *step[1:]], step], 4) == pytest.approx([1.0, 3.0, 1.0, 1.0], rel=0.05)
