"""What is owed is estimated from what generations gave by themselves."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.manager.memory.debt import estimate_owed, waiting_rows
from anabranch.state.generation import Generation
from anabranch.state.groups import GroupSet
from anabranch.state.manifest import OperatorState
from anabranch.state.runs.run import RunFile
from anabranch.state.runs.slice import Slice
from tests.manager.snapshots import statistics


def vectors(*values: list[float]) -> list:
    return [np.array(value, dtype=np.float64) for value in values]


def test_two_equal_generations_of_a_three_way_join_owe_three_times_what_they_gave() -> None:
    assert estimate_owed(vectors([10.0], [10.0]), vectors([5.0], [5.0]), 3) == 30


def test_a_single_generation_owes_nothing() -> None:
    assert estimate_owed(vectors([10.0, 0.0], [0.0, 7.0]), vectors([5.0, 0.0], [0.0, 3.0]), 3) == 0


@pytest.mark.parametrize("inputs", [2, 3, 4])
def test_the_estimate_is_about_right_for_keys_at_random(inputs: int) -> None:
    chance = np.random.default_rng(5)
    lots = [[chance.integers(0, 500, 3_000) for _ in range(inputs)] for _ in range(3)]

    def joined(parts: list) -> float:
        return float(np.prod([np.bincount(part, minlength=500) for part in parts], axis=0).sum())

    alone = [joined(lot) for lot in lots]
    together = joined([np.concatenate([lot[i] for lot in lots]) for i in range(inputs)])
    estimate = estimate_owed(vectors(*([3_000.0 * inputs] for _ in lots)), vectors(*([one] for one in alone)), inputs)
    assert estimate == pytest.approx(together - sum(alone), rel=0.1)


def test_a_grouping_owes_at_most_an_answer_for_every_row_of_the_groups_that_owe() -> None:
    pieces = (Slice(RunFile("spilled", 30, 3_000, 0, None, None), 0, 30),)
    generation = Generation(1, GroupSet.of(4, [0, 1]), None, (pieces,), (1_000, 2_000), (0, 0))
    state = OperatorState(generations=(generation,), statistics=statistics({1: 500}))
    assert waiting_rows(state, 4, GroupSet.of(4, [0])) == 10
    assert waiting_rows(state, 4, GroupSet.of(4, [1])) == 25
