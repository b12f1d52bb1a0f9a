"""Sizes of joins counted in correlated samples are those of the joins, within what samples can tell."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from anabranch.plan.orders.join_sample import InputSample, JoinSample, sampled_estimates
from tests.plan.logical import query_of

# An odd number by which keys become hashes.
SPREAD = np.uint64(0xD6E8FEB86659FD93)
AB, BC, ABC = frozenset({0, 1}), frozenset({1, 2}), frozenset({0, 1, 2})

Keys = dict[int, NDArray[np.int64]]


def hashes(keys: NDArray[np.int64]) -> NDArray[np.uint64]:
    mixed = keys.astype(np.uint64) * SPREAD
    return (mixed ^ (mixed >> np.uint64(32))) * SPREAD


def sampled(inputs: list[Keys], share: float) -> JoinSample:
    """The sample of inputs with such keys by class; the range of each class begins at 0."""
    samples = []
    for keys in inputs:
        of = {c: hashes(values) for c, values in keys.items()}
        kept = {}
        for by in of:
            inside = of[by] <= np.uint64(min(int(share * 2**64), 2**64 - 1))
            kept[by] = {c: values[inside] for c, values in of.items()}
        samples.append(InputSample(len(next(iter(keys.values()))), kept))
    return JoinSample(tuple(samples), {c: share for keys in inputs for c in keys})


def joined(*columns: NDArray[np.int64]) -> int:
    """How many combinations of rows of some inputs are equal in one column each."""
    counts = [Counter(column.tolist()) for column in columns]
    return sum(int(np.prod([count[key] for count in counts])) for key in counts[0])


@pytest.mark.parametrize("distinct", [3, 400, 20_000])
def test_joins_on_one_key_are_within_a_factor_of_two_of_the_truth(distinct: int) -> None:
    chance = np.random.default_rng(distinct)
    skewed = (chance.pareto(1.5, 60_000) * distinct / 20).astype(np.int64) % distinct
    a, b, c = skewed, chance.integers(0, distinct, 30_000), chance.integers(0, 2 * distinct, 40_000)
    query = query_of(3, [{0, 1, 2}], [None, None, None])
    share = 0.1 if distinct > 100 else 0.5
    sample = sampled([{0: a}, {0: b}, {0: c}], share)
    estimates = sampled_estimates(query, [1.0, 1.0, 1.0], sample)
    counts = sample.counted([0])
    for inputs, columns in ((AB, (a, b)), (BC, (b, c)), (ABC, (a, b, c))):
        assert counts.matches(inputs) >= 100
        assert joined(*columns) / 2 <= estimates.rows(inputs) <= 2 * joined(*columns)


def test_inputs_with_two_keys_in_common_are_joined_on_both() -> None:
    chance = np.random.default_rng(1)
    x = chance.integers(0, 3_000, (2, 30_000))
    a, b = {0: x[0], 1: x[0] % 7}, {0: x[1], 1: x[1] % 7 + (x[1] % 2)}
    query = query_of(2, [{0, 1}, {0, 1}], [None, None])
    sample = sampled([a, b], 0.25)
    truth = joined(a[0] * 100 + a[1], b[0] * 100 + b[1])
    assert truth / 2 <= sampled_estimates(query, [1.0, 1.0], sample).rows(AB) <= 2 * truth


def test_sets_over_several_classes_follow_from_their_measured_pairs() -> None:
    chance = np.random.default_rng(2)
    a, b = {0: chance.integers(0, 500, 5_000)}, {0: chance.integers(0, 500, 5_000), 1: chance.integers(0, 50, 5_000)}
    c = {1: chance.integers(0, 50, 5_000)}
    query = query_of(3, [{0, 1}, {1, 2}], [None, None, None])
    estimates = sampled_estimates(query, [1.0, 1.0, 1.0], sampled([a, b, c], 1.0))
    assert estimates.rows(AB) == joined(a[0], b[0])
    assert estimates.rows(BC) == joined(b[1], c[1])
    assert estimates.rows(ABC) == pytest.approx(joined(a[0], b[0]) * joined(b[1], c[1]) / 5_000)


def test_arrivals_meet_what_is_stored_and_joined_rows_stay_as_long_as_rows_of_a_window_do() -> None:
    query = query_of(2, [{0, 1}])
    keys = np.arange(1_000)
    estimates = sampled_estimates(query, [10.0, 20.0], sampled([{0: keys}, {0: keys}], 1.0))
    assert estimates.rate(AB) == pytest.approx(10 + 20), "each row meets one of the other input"
    assert estimates.rows(AB) == pytest.approx(30 * 50), "rows of B are there for 50 seconds"


def test_rows_that_are_kept_for_late_ones_only_are_not_met() -> None:
    query = query_of(2, [{0, 1}])
    keys = np.arange(1_000)
    estimates = sampled_estimates(query, [10.0, 20.0], sampled([{0: keys}, {0: keys}], 1.0), alive=[0.5, 0.5])
    assert estimates.rate(AB) == pytest.approx((10 + 20) / 2), "half of the rows are alive"
    assert estimates.rows(AB) == pytest.approx(15 * 50), "joined rows are kept for late ones, too"


def test_an_input_without_rows_and_one_without_matches_are_no_reason_to_fail() -> None:
    query = query_of(3, [{0, 1, 2}])
    empty = np.arange(0)
    sample = sampled([{0: np.arange(50)}, {0: np.arange(50, 100)}, {0: empty}], 1.0)
    estimates = sampled_estimates(query, [1.0, 1.0, 0.0], sample)
    assert 0 < estimates.rate(AB) < 1
    assert estimates.rows(ABC) == 0
