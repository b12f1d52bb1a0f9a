"""Estimates are what a count of combinations gives, and what was measured goes before what is derived."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.plan.orders.join_estimates import (
    IndependentEstimates,
    Inputs,
    MeasuredEstimates,
    Size,
    independent_estimates,
)
from tests.plan.logical import SECOND, query_of

SUBSETS = [frozenset(some) for size in range(1, 5) for some in combinations(range(4), size)]

positive = st.floats(0.01, 100)
sizes = st.builds(Size, positive, positive)
per_input = st.lists(positive, min_size=4, max_size=4)


@st.composite
def independent(draw: st.DrawFn) -> IndependentEstimates:
    """Estimates for four inputs with two classes and a condition between two inputs."""
    rates, windows = draw(per_input), draw(per_input)
    share = st.floats(0.01, 1)
    return IndependentEstimates(
        rates=tuple(rates),
        windows=tuple(windows),
        stored=tuple(rate * window for rate, window in zip(rates, windows, strict=True)),
        reaches=(frozenset({0, 1, 2}), frozenset({2, 3})),
        equal=(draw(share), draw(share)),
        pairs={frozenset({0, 3}): draw(share)},
    )


@pytest.mark.parametrize("windows", [(2, 5), (3, 3), (2, 4, 3), (1, 6, 6)])
def test_the_rate_is_that_of_counted_combinations_in_their_windows(windows: tuple[int, ...]) -> None:
    # One row per tick and input, all of which are equal. A combination is a result if every row is within its window
    # of the newest one. Ticks are short beside windows, so that equal times are few.
    ticks = 20
    lengths = [window * ticks for window in windows]
    # Those whose newest row comes at one tick, counted once per tick: every row is at an age below its window.
    made = sum(min(ages) == 0 for ages in product(*(range(length) for length in lengths)))
    inputs = len(windows)
    estimates = independent_estimates(
        query_of(inputs, [range(inputs)], [window * SECOND for window in windows]), [float(ticks)] * inputs, [1.0]
    )
    assert estimates.rate(frozenset(range(inputs))) == pytest.approx(made * ticks, rel=0.1)


@given(independent())
def test_two_inputs_make_as_many_rows_as_equation_2_says(estimates: IndependentEstimates) -> None:
    (rate_a, rate_b, *_), (window_a, window_b, *_) = estimates.rates, estimates.windows
    assert window_a is not None
    assert window_b is not None
    pair = frozenset({0, 1})
    made = rate_a * rate_b * (window_a + window_b) * estimates.equal[0]
    assert estimates.rate(pair) == pytest.approx(made)
    assert estimates.rows(pair) == pytest.approx(made * min(window_a, window_b))


def test_every_further_input_of_a_class_multiplies_by_its_selectivity() -> None:
    query = query_of(3, [{0, 1, 2}])
    estimates = independent_estimates(query, [1.0] * 3, [0.1], pairs={frozenset({0, 2}): 0.5})
    assert estimates.selectivity(frozenset({0})) == 1
    assert estimates.selectivity(frozenset({0, 1})) == pytest.approx(0.1)
    assert estimates.selectivity(frozenset({0, 2})) == pytest.approx(0.05)
    assert estimates.selectivity(frozenset({0, 1, 2})) == pytest.approx(0.005)


def test_where_nothing_dies_all_stored_rows_are_joined() -> None:
    query = query_of(3, [{0, 1, 2}], [None, SECOND, SECOND])
    estimates = independent_estimates(query, [10.0, 20.0, 30.0], [0.1], stored={0: 5_000.0})
    assert estimates.rows(frozenset({0})) == 5_000
    assert estimates.rows(frozenset({1})) == 20
    assert estimates.rate(frozenset({0, 1})) == pytest.approx((10 * 20 + 20 * 5_000) * 0.1)
    # What is made of bounded rows, too, lies for ever if an unbounded stream may still bring what it joins.
    assert estimates.rows(frozenset({1, 2})) == pytest.approx(20 * 30 * 0.1)
    assert estimates.rows(frozenset({0, 1})) == pytest.approx((10 * 20 + 20 * 5_000) * 0.1 * 1)


def test_the_stored_rows_of_an_unbounded_stream_have_to_be_given() -> None:
    with pytest.raises(ValueError, match="B is unbounded: say how many rows are stored"):
        independent_estimates(query_of(2, [{0, 1}], [SECOND, None]), [1.0, 1.0], [0.1])


def test_every_class_needs_a_selectivity() -> None:
    with pytest.raises(ValueError, match="there are 1 classes, and 2 selectivities"):
        independent_estimates(query_of(2, [{0, 1}]), [1.0, 1.0], [0.1, 0.1])


@given(independent(), st.dictionaries(st.sampled_from(SUBSETS), sizes), st.sampled_from(SUBSETS))
def test_what_was_measured_is_what_is_estimated(
    estimates: IndependentEstimates, measured: dict[Inputs, Size], inputs: Inputs
) -> None:
    both = MeasuredEstimates(measured, estimates)
    for some, size in measured.items():
        assert (both.rows(some), both.rate(some)) == (size.rows, size.rate)
    if not any(some <= inputs for some in measured):
        assert both.rows(inputs) == pytest.approx(estimates.rows(inputs))
        assert both.rate(inputs) == pytest.approx(estimates.rate(inputs))


@given(independent(), st.sets(st.sampled_from(SUBSETS)), st.sampled_from(SUBSETS))
def test_a_measurement_that_is_as_expected_changes_nothing(
    estimates: IndependentEstimates, measured: set[Inputs], inputs: Inputs
) -> None:
    expected = {some: Size(estimates.rows(some), estimates.rate(some)) for some in measured}
    both = MeasuredEstimates(expected, estimates)
    assert both.rows(inputs) == pytest.approx(estimates.rows(inputs))
    assert both.rate(inputs) == pytest.approx(estimates.rate(inputs))


@given(independent(), st.lists(st.integers(1, 5), min_size=3, max_size=3))
def test_parts_with_one_input_in_common_both_correct_what_holds_them(
    estimates: IndependentEstimates, factors: list[int]
) -> None:
    pairs = [frozenset({0, 1}), frozenset({1, 2}), frozenset({0, 2})]
    measured = {
        pair: Size(estimates.rows(pair) * factor, estimates.rate(pair) * factor)
        for pair, factor in zip(pairs, factors, strict=True)
    }
    without_cycle = MeasuredEstimates({pair: measured[pair] for pair in pairs[:2]}, estimates)
    whole = frozenset({0, 1, 2})
    assert without_cycle.rate(whole) == pytest.approx(estimates.rate(whole) * factors[0] * factors[1])
    # The third pair closes a cycle. Of parts of one size those with the lowest inputs go first.
    with_cycle = MeasuredEstimates(measured, estimates)
    assert with_cycle.rate(whole) == pytest.approx(estimates.rate(whole) * factors[0] * factors[2])


def test_a_correction_of_a_pair_is_not_counted_again_with_those_of_its_inputs() -> None:
    estimates = independent_estimates(query_of(3, [{0, 1, 2}]), [10.0] * 3, [0.1])
    pair, whole = frozenset({0, 1}), frozenset({0, 1, 2})
    doubled = {frozenset({0}): Size(20.0, 20.0), pair: Size(estimates.rows(pair) * 2, estimates.rate(pair) * 2)}
    assert MeasuredEstimates(doubled, estimates).rate(whole) == pytest.approx(estimates.rate(whole) * 2)
