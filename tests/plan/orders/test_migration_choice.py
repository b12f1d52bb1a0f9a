"""What a change of order costs by each strategy, and which is taken."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.plan.arrangement import Shape
from anabranch.plan.orders.join_estimates import IndependentEstimates, independent_estimates
from anabranch.plan.orders.join_orders import Wish
from anabranch.plan.orders.migration_choice import (
    STRATEGIES,
    Capacity,
    Migration,
    Prediction,
    Strategy,
    choose,
    migration_between,
    predicted,
)
from anabranch.plan.orders.migration_cost import Constants
from anabranch.plan.orders.order_cost import order_cost
from anabranch.plan.query import LogicalQuery
from tests.plan.logical import SECOND, query_of

LEFT: Shape = (((0, 1), 2), 3)
RIGHT: Shape = (0, ((1, 2), 3))
BUSHY: Shape = ((0, 1), (2, 3))
CONSTANTS = Constants(join=0.001, insert=0.002)
CAPACITY = Capacity(CONSTANTS, spare=0.25)
IN_TIME = [SECOND // 2] * 4

amounts = st.floats(0, 1_000)
predictions = st.lists(
    st.one_of(st.none(), st.builds(Prediction, st.sampled_from(STRATEGIES), amounts, amounts, amounts, amounts)),
    max_size=4,
)


def _chain(windows: list[int | None] | None = None) -> tuple[LogicalQuery, IndependentEstimates]:
    """A, B, C and D in a chain of three classes."""
    query = query_of(4, [{0, 1}, {1, 2}, {2, 3}], windows or [2 * SECOND] * 4)
    stored = {n: 50.0 for n, entry in enumerate(query.inputs) if entry.window is None}
    return query, independent_estimates(query, [10.0, 20.0, 30.0, 40.0], [0.1, 0.2, 0.05], stored=stored)


def _change(before: Shape, after: Shape) -> tuple[Migration, IndependentEstimates]:
    query, estimates = _chain()
    return migration_between(query, before, after, estimates, IN_TIME), estimates


def _predicted(strategy: Strategy, migration: Migration) -> Prediction:
    prediction = predicted(strategy, migration, CAPACITY)
    assert prediction is not None
    return prediction


def test_states_with_the_same_inputs_and_key_are_shared_and_others_made_from_those_below() -> None:
    migration, estimates = _change(LEFT, RIGHT)
    a, b, c, d = (frozenset({n}) for n in range(4))
    ports = {port.inputs: port for port in migration.ports}
    # A meets B on their class and D meets C on theirs in both trees, and C was hashed on that with B.
    assert {inputs for inputs, port in ports.items() if port.is_shared} == {a, c, d}
    assert ports[b].read == estimates.rows(b), "it is re-partitioned"
    assert ports[b | c].read == estimates.rows(b) + estimates.rows(c)
    assert ports[b | c | d].read == estimates.rows(b | c) + estimates.rows(d)
    assert migration.made == pytest.approx(sum(map(estimates.rows, (b, b | c, b | c | d))))


def test_a_state_that_is_hashed_on_another_key_is_read_once() -> None:
    migration, estimates = _change(LEFT, BUSHY)
    ports = {port.inputs: port for port in migration.ports}
    pair = frozenset({0, 1})
    assert ports[pair].is_shared, "it meets C on the class of B and C in both trees"
    c = frozenset({2})
    assert (ports[c].is_shared, ports[c].read) == (False, estimates.rows(c))


@pytest.mark.parametrize("shape", [None, LEFT, RIGHT, BUSHY])
def test_no_change_replays_nothing(shape: Shape | None) -> None:
    query, estimates = _chain()
    migration = migration_between(query, shape, shape, estimates, IN_TIME)
    assert (migration.made, migration.replayed) == (0, 0)
    for strategy in ("moving-state", "background"):
        prediction = _predicted(strategy, migration)
        assert (prediction.silence, prediction.seconds, prediction.extra_rows) == (0, 0, 0)


def test_moving_state_is_silent_while_it_replays_and_the_background_is_not() -> None:
    migration, _ = _change(LEFT, RIGHT)
    moving, background = _predicted("moving-state", migration), _predicted("background", migration)
    assert moving.silence == moving.seconds == 0.001 * migration.replayed + 0.002 * migration.made
    assert (background.silence, background.seconds) == (0, pytest.approx(moving.seconds / CAPACITY.spare))
    assert background.extra_rows == moving.extra_rows == migration.replayed
    assert background.extra_state_rows == moving.extra_state_rows == migration.made


def test_parallel_track_takes_the_windows_and_lateness_and_all_rows_twice() -> None:
    query, estimates = _chain()
    migration, _ = _change(LEFT, RIGHT)
    parallel = _predicted("parallel-track", migration)
    assert (parallel.silence, parallel.seconds) == (0, 2.5)
    work = order_cost(query, RIGHT, estimates).work
    assert work * (2.5 - 1) < parallel.extra_rows < work * 2.5
    assert parallel.extra_state_rows > sum(port.rows for port in migration.ports)


def test_answers_that_may_come_in_any_order_are_not_held() -> None:
    migration, _ = _change(LEFT, RIGHT)
    prediction = predicted("parallel-track", migration, CAPACITY, in_order=False)
    assert prediction is not None
    assert prediction.extra_state_rows == pytest.approx(sum(port.rows for port in migration.ports))


def test_parallel_track_is_impossible_where_a_stream_is_unbounded_or_nothing_is_ever_late() -> None:
    query, estimates = _chain([SECOND, None, SECOND, SECOND])
    unbounded = migration_between(query, LEFT, RIGHT, estimates, IN_TIME)
    assert predicted("parallel-track", unbounded, CAPACITY) is None
    query, estimates = _chain()
    never_late = migration_between(query, LEFT, RIGHT, estimates, [None, 0, 0, 0])
    assert predicted("parallel-track", never_late, CAPACITY) is None
    assert predicted("moving-state", never_late, CAPACITY) is not None


def test_the_background_is_impossible_where_batches_leave_no_time() -> None:
    migration, _ = _change(LEFT, RIGHT)
    busy = Capacity(CONSTANTS, spare=0.0)
    assert predicted("background", migration, busy) is None
    same, _ = _change(LEFT, LEFT)
    assert predicted("background", same, busy) is not None


def test_a_strained_machine_takes_longer_one_with_lanes_less_and_a_step_its_own_time() -> None:
    migration, _ = _change(LEFT, RIGHT)
    alone = _predicted("moving-state", migration).seconds
    machine = Capacity(CONSTANTS, strain=6.0, lanes=2, step=0.5)
    moving, background = (predicted(strategy, migration, machine) for strategy in ("moving-state", "background"))
    assert moving is not None
    assert background is not None
    assert moving.seconds == pytest.approx(0.5 + 3 * alone)
    assert background.seconds == pytest.approx(moving.seconds / machine.spare)


@pytest.mark.parametrize(
    "wrong",
    [
        {"constants": Constants(0.0, 1.0)},
        {"constants": Constants(1.0, 0.0)},
        {"spare": 1.5},
        {"spare": -0.1},
        {"strain": 0.0},
        {"lanes": 0},
        {"step": -1.0},
    ],
)
def test_what_is_no_capacity_is_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match="is no capacity"):
        Capacity(**{"constants": CONSTANTS, **wrong})


MOVING = Prediction("moving-state", 2.0, 2.0, 100.0, 10.0)
BACKGROUND = Prediction("background", 0.0, 8.0, 100.0, 12.0)
PARALLEL = Prediction("parallel-track", 0.0, 5.0, 900.0, 80.0)


@pytest.mark.parametrize(
    ("wish", "best"),
    [("latency", PARALLEL), ("memory", MOVING), ("work", BACKGROUND)],
    ids=lambda value: str(value)[:10],
)
def test_each_wish_takes_what_costs_the_least_of_it(wish: Wish, best: Prediction) -> None:
    for order in permutations([MOVING, BACKGROUND, PARALLEL, None]):
        assert choose(order, wish) == best


@given(predictions, st.sampled_from(("latency", "memory", "work")))
def test_nothing_that_is_possible_has_less_of_what_is_wished(predictions: list[Prediction | None], wish: Wish) -> None:
    best = choose(predictions, wish)
    measure = {"latency": "silence", "memory": "extra_state_rows", "work": "extra_rows"}[wish]
    possible = [prediction for prediction in predictions if prediction is not None]
    assert (best is None) == (not possible)
    assert best is None or all(getattr(best, measure) <= getattr(other, measure) for other in possible)
