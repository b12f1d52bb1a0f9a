"""`bench flat`: its inputs grow the state and nothing else, and its ratios are judged by their limits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from anabranch.bench.flat import Finding, FlatOptions
from anabranch.bench.inputs.flat_recipes import GrowthRecipe, HotBatchRecipe, HotHistoryRecipe, Phases
from anabranch.bench.inputs.recipe import Recipe, count_results
from anabranch.errors import ConfigError

PHASES = Phases(warmup=1, reference=2, growth=2, final=2, growth_factor=3)


def results_per_batch(recipe: Recipe) -> list[int]:
    """New results of each batch: the difference between the counts of successive prefixes."""
    batches = list(recipe.batches())
    totals = [0]
    for end in range(1, len(batches) + 1):
        keys = [np.concatenate([batch[stream].k for batch in batches[:end]]) for stream in recipe.streams]
        times = [np.concatenate([batch[stream].ts for batch in batches[:end]]) for stream in recipe.streams]
        totals.append(count_results(keys, times, recipe.window))
    return np.diff(totals).tolist()


@pytest.mark.parametrize("window", [None, 100])
def test_state_grows_while_every_batch_has_the_same_results(window: int | None) -> None:
    assert results_per_batch(GrowthRecipe(50, 20, window, PHASES)) == [20] * 7


def test_a_hot_keys_results_per_row_do_not_depend_on_its_history() -> None:
    results = results_per_batch(HotHistoryRecipe(20, spacing=500, window=1, phases=PHASES))
    # Three rows of each stream lie in a window: 3 * 3 + 2 * 3 + 2 * 2 results for each point in time.
    assert results[1:] == [19 * 20, 19 * 20, 19 * 60, 19 * 60, 19 * 20, 19 * 20]


def test_a_hot_batch_has_the_rows_of_any_other_and_all_the_results() -> None:
    recipe = HotBatchRecipe(unit=100, results=1000)
    assert results_per_batch(recipe) == [0, 0, 1000, 0]
    assert {len(batch["A"].k) for batch in recipe.batches()} == {100}


def test_the_default_phases_grow_the_state_tenfold() -> None:
    assert Phases().state_growth >= 10


def test_phases_name_the_batches_they_compare() -> None:
    assert PHASES.sizes == [1, 1, 1, 3, 3, 1, 1]
    assert list(range(7))[PHASES.reference_batches] == [1, 2]
    assert list(range(7))[PHASES.final_batches] == [5, 6]


def test_a_ratio_is_judged_against_its_limit() -> None:
    assert Finding("growth", "time", "ms", 100, 130, 1.3, ()).within_limit
    assert not Finding("growth", "time", "ms", 100, 131, 1.3, ()).within_limit


def test_an_unknown_experiment_is_refused_with_a_hint() -> None:
    with pytest.raises(ConfigError, match="did you mean 'growth'"):
        FlatOptions(work=Path("unused"), experiments=("grwth",))
