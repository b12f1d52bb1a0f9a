"""The model that moving state is compared with: its equations, and what is kept besides a window."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anabranch.bench.experiments.zhu.parts.model import (
    apart,
    kept_besides,
    of_equation_1,
    of_equation_8,
    predicted_rows,
    predicted_work,
)
from anabranch.bench.experiments.zhu.parts.setting import Setting

SETTING = Setting(1_000, (100, 100, 100, 100), (0.1, 0.05, 0.02), scale=10, batch=100, lateness=100)


def test_states_have_all_combinations_of_a_window_that_join() -> None:
    assert of_equation_1(SETTING) == pytest.approx((100 * 100 * 0.05, 100**3 * 0.05 * 0.02))


def test_states_grow_with_the_window_to_the_power_of_the_streams_in_them() -> None:
    longer = of_equation_1(replace(SETTING, window=3_000))

    assert np.divide(longer, of_equation_1(SETTING)) == pytest.approx([9, 27])


def test_equation_8_counts_the_upper_state_twice() -> None:
    lower, upper = of_equation_1(SETTING)

    assert of_equation_8(SETTING) == pytest.approx(lower + 2 * upper)


@pytest.mark.parametrize("streams", [1, 2, 3])
def test_what_is_kept_besides_is_what_trying_all_combinations_finds(streams: int) -> None:
    chance = np.random.default_rng(1)
    times = chance.random((400_000, streams)) * SETTING.kept
    within = np.mean(times.max(axis=1) - times.min(axis=1) <= SETTING.window / 1_000)
    combinations = within * SETTING.kept**streams / (SETTING.window / 1_000) ** streams

    assert kept_besides(SETTING, streams) == pytest.approx(combinations, rel=0.01)


def test_without_lateness_and_with_short_batches_nothing_is_kept_besides() -> None:
    assert predicted_rows(replace(SETTING, lateness=0, batch=0)) == of_equation_1(SETTING)


def test_work_is_what_is_hashed_anew_comes_to_joins_and_is_made() -> None:
    setting = replace(SETTING, lateness=0, batch=0)

    assert predicted_work(setting) == pytest.approx(2 * 100 + 2 * (500 + 1_000))


def test_how_far_two_numbers_are_apart_is_a_share_of_the_second() -> None:
    assert apart(75, 100) == -0.25
