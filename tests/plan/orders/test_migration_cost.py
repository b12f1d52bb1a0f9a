"""The equations of paper 3, with the parameters of its experiments (table 2)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.plan.orders.migration_cost import (
    Constants,
    Join,
    Work,
    joined_rate,
    moving_state_seconds,
    moving_state_work,
    new_operator_rate,
    new_operator_work,
    old_operator_work,
    parallel_track_seconds,
    parallel_track_seconds_of_paper,
    parallel_track_work,
    recomputed,
)

CONSTANTS = Constants(join=2e-6, insert=5e-6)

rates = st.floats(0.1, 1_000)
windows = st.floats(0.1, 10)
joins = st.builds(Join, rates, rates, st.floats(0.001, 1))


def _to_the_right(b: float, c: float, d: float, bc: float, cd: float, window: float) -> list[Join]:
    """What is recomputed on the way from ((A B) C) D to A ((B C) D), the change of figure 4: (B C) and (B C D)."""
    lower = Join(b, c, bc)
    return [lower, Join(joined_rate(lower, window), d, cd)]


@given(rates, rates, rates, st.floats(0.001, 1), st.floats(0.001, 1), windows)
def test_the_change_of_figure_4_takes_moving_state_what_equation_8_says(
    b: float, c: float, d: float, bc: float, cd: float, window: float
) -> None:
    join, insert = CONSTANTS.join, CONSTANTS.insert
    lower = b * c * window**2 * (join + insert * bc)
    upper = 2 * b * c * d * window**3 * (join * bc + insert * bc * cd)
    assert moving_state_seconds(_to_the_right(b, c, d, bc, cd, window), window, CONSTANTS) == pytest.approx(
        lower + upper
    )


def test_matching_and_moving_of_states_are_added() -> None:
    constants = Constants(join=0.0, insert=0.0, match=0.5, move=0.25)
    assert moving_state_seconds([], 1.0, constants, operators=(3, 2)) == 4 * 3 * 2 * 0.5 + 2 * 2 * 0.25
    assert moving_state_seconds([], 1.0, constants) == 0


@given(joins, windows)
def test_a_recomputed_state_is_what_its_join_makes_of_all_pairs(join: Join, window: float) -> None:
    work = recomputed(join, window)
    assert work.pairs == pytest.approx(join.left * window * join.right * window)
    assert work.inserted == pytest.approx(work.pairs * join.selectivity)
    # Equation 2 counts a pair from both sides for the W that it lies in state.
    assert joined_rate(join, window) * window == pytest.approx(2 * work.inserted)


@pytest.mark.parametrize(("levels", "windows_long"), [(1, 1), (2, 2), (3, 2)])
def test_the_papers_parallel_track_ends_after_one_window_or_two(levels: int, windows_long: int) -> None:
    assert parallel_track_seconds_of_paper(1.5, levels) == 1.5 * windows_long


def test_a_tree_without_a_join_cannot_change() -> None:
    with pytest.raises(ValueError, match="at least one level, not 0"):
        parallel_track_seconds_of_paper(1.5, 0)


def test_our_parallel_track_ends_after_the_longest_window_and_lateness() -> None:
    assert parallel_track_seconds([1.0, 5.0, 2.0], [0.0, 0.5, 3.0]) == 8.0


@pytest.mark.parametrize(("lengths", "lateness"), [([1.0, None], [0.0, 0.0]), ([1.0, 1.0], [0.0, None])])
def test_our_parallel_track_never_ends_where_old_rows_never_die(
    lengths: list[float | None], lateness: list[float | None]
) -> None:
    assert parallel_track_seconds(lengths, lateness) is None


@given(joins, windows)
def test_an_old_operator_does_what_equation_5_says(join: Join, window: float) -> None:
    pairs = 2 * window * (join.left * join.right * window + join.right * join.left * window)
    handled = (
        2 * window * (join.left + join.right + join.left / join.right * join.right + join.right / join.left * join.left)
    )
    work = old_operator_work(join, window)
    assert (work.pairs, work.inserted) == (pytest.approx(pairs), pytest.approx(handled))


@given(joins, windows)
def test_a_new_operator_does_what_a_sum_over_small_steps_says(join: Join, window: float) -> None:
    steps = 2_000
    times = (np.arange(2 * steps) + 0.5) * window / steps
    filled = np.minimum(times, window)
    pairs = np.sum(2 * join.left * join.right * filled) * window / steps
    # A row that comes is inserted, and purges one once states are full.
    handled = np.sum((join.left + join.right) * np.where(times < window, 1, 2)) * window / steps
    work = new_operator_work(join, window)
    assert (work.pairs, work.inserted) == (pytest.approx(pairs), pytest.approx(handled))


@given(joins, windows, st.floats(0, 30))
def test_a_new_operator_makes_ever_more_rows_until_its_states_are_full(
    join: Join, window: float, seconds: float
) -> None:
    full = joined_rate(join, window)
    rate = new_operator_rate(join, window, seconds)
    assert rate == pytest.approx(full * min(1.0, seconds / window))


@given(st.lists(joins, min_size=1, max_size=3), st.lists(joins, min_size=1, max_size=3), windows)
def test_parallel_track_does_the_work_of_both_trees(old: list[Join], new: list[Join], window: float) -> None:
    both = parallel_track_work(old, new, window)
    separate = parallel_track_work(old, [], window) + parallel_track_work([], new, window)
    assert both.pairs == pytest.approx(separate.pairs)
    assert both.seconds(CONSTANTS) == pytest.approx(separate.seconds(CONSTANTS))


def test_work_takes_as_long_as_its_actions() -> None:
    assert Work(10, 100).seconds(Constants(join=0.5, insert=0.01)) == pytest.approx(6)


def _moving(window: float, interval: float, selectivity: tuple[float, float]) -> Work:
    """Moving state where rows of B, C and D come every `interval` milliseconds."""
    rate = 1_000 / interval
    return moving_state_work(_to_the_right(rate, rate, rate, *selectivity, window), window)


def test_parallel_track_grows_evenly_with_the_window_and_moving_state_with_its_third_power() -> None:
    # Figures 9 and 10, the parameters of set 3: at windows that are long, the upper state decides.
    times = [parallel_track_seconds_of_paper(window, 3) for window in (1.0, 2.0, 4.0)]
    assert times == [2.0, 4.0, 8.0]
    pairs = [_moving(window, 12, (0.1, 0.1)).pairs for window in (100.0, 200.0)]
    assert pairs[1] / pairs[0] == pytest.approx(8, rel=0.05)


def test_moving_state_grows_with_the_rate_of_b_and_parallel_track_does_not() -> None:
    # Figure 11, set 2: only the interval of B changes.
    def moving(rate: float) -> float:
        return moving_state_seconds(_to_the_right(rate, 20.0, 20.0, 0.05, 0.02, 1.0), 1.0, CONSTANTS)

    assert moving(10) < moving(50) < moving(100)
    assert moving(100) == pytest.approx(10 * moving(10))


def test_moving_state_is_faster_for_small_windows_and_parallel_track_for_large_ones() -> None:
    # Figure 12, set 3. Where they cross depends on what a pair takes; that they cross once does not.
    lengths = np.arange(0.1, 20, 0.1)
    faster = [
        _moving(window, 12, (0.1, 0.1)).seconds(CONSTANTS) < parallel_track_seconds_of_paper(window, 3)
        for window in lengths
    ]
    assert faster[0]
    assert not faster[-1]
    assert sum(before != after for before, after in pairwise(faster)) == 1
