"""What actions are predicted to gain and to cost, in seconds of batch time."""

from __future__ import annotations

import pytest

from anabranch.manager.actions import (
    ACTIONS,
    DiffuseGroups,
    GatherGroups,
    HoldGroups,
    MigrateQuery,
    ReallocateOperator,
    RelocateGroups,
    SpillGroups,
)
from anabranch.manager.arbitration.workload import WorkloadTracker
from anabranch.manager.estimates import ESTIMATORS, Circumstances, estimate, touched_by
from anabranch.manager.order_costs import OrderCosts, QueryOrders
from anabranch.manager.plan_shape import OperatorShape, PlanShape
from anabranch.manager.snapshot import ProcessorView, Snapshot
from anabranch.plan.orders.plan_cost import PlanCost
from anabranch.plan.routing import Everywhere, Routing, Spread
from tests.manager.snapshots import operator, processor, snapshot, statistics

REASON = "a test says so"
PLAN = PlanShape((OperatorShape(0, "join of A, B", (0, 1)),), 4)


def part(number: int, groups: dict[int, int], batch: int, seconds: float, **fields: object) -> ProcessorView:
    """A processor whose groups get so many rows per batch, three of four by the first port; a row has 10 bytes."""
    arrived = {group: rows * batch for group, rows in groups.items()}
    known = statistics(
        {group: 10 * rows for group, rows in arrived.items()},
        produced=dict.fromkeys(groups, 0),
        arrivals=(
            {group: rows * 3 // 4 for group, rows in arrived.items()},
            {group: rows - rows * 3 // 4 for group, rows in arrived.items()},
        ),
    )
    held = fields.pop("held", {})
    seen = operator(known, cpu=seconds - 0.1, rows=sum(groups.values()), held=held)
    return processor(number, seen, cpu=seconds, busy=seconds, rows=sum(groups.values()), **fields)


def circumstances(
    *groups: dict[int, int], seconds: list[float], routing: Routing | None = None, **fields: object
) -> Circumstances:
    """After four batches that were alike."""
    homes = {group: p for p, own in enumerate(groups) for group in own}
    placement = tuple(homes.get(group, 0) for group in range(PLAN.groups))
    tracker = WorkloadTracker()
    memory = fields.pop("memory", None)
    for batch in range(1, 6):
        views = [
            part(p, own, batch, seconds[p], memory=memory, held=fields.get("held", {}) if p == 0 else {})
            for p, own in enumerate(groups)
        ]
        shown: Snapshot = snapshot(
            *views,
            at=batch,
            step=batch,
            plan=PLAN,
            arrived=sum(sum(own.values()) for own in groups),
            routings=(routing or Routing(placement),),
            orders=fields.get("orders"),
        )
        workload = tracker.follow(shown)
    assert workload is not None
    return Circumstances(shown, workload)


def test_every_action_that_policies_decide_on_has_an_estimator() -> None:
    without = {"CleanUpGroups"}  # every run cleans up by itself, when batches are quiet
    assert ESTIMATORS.keys() == {action.__name__ for action in ACTIONS} - without


def test_a_move_takes_the_work_for_its_groups_along_and_leaves_what_is_fixed() -> None:
    around = circumstances({0: 60, 1: 30}, {2: 10}, seconds=[1.0, 0.2])
    predicted = estimate([RelocateGroups(0, (1,), 0, 1, 1500, REASON)], around)
    assert predicted.before == pytest.approx(1.0)
    assert predicted.after == pytest.approx(0.7)
    assert predicted.gain == pytest.approx(0.3 * 20)
    assert 0 < predicted.costs < 0.001


def test_a_move_to_a_slow_processor_is_predicted_at_its_pace() -> None:
    around = circumstances({0: 60, 1: 30}, {2: 10}, seconds=[1.0, 0.6])
    predicted = estimate([RelocateGroups(0, (1,), 0, 1, 1500, REASON)], around)
    assert predicted.after == pytest.approx(0.6 + 30 * 0.05)
    assert predicted.gain < 0


def test_a_move_is_judged_by_what_it_touches_not_by_the_whole_cluster() -> None:
    around = circumstances({0: 60, 1: 30}, {2: 90}, {3: 10}, seconds=[1.0, 1.0, 0.2])
    assert estimate([RelocateGroups(0, (1,), 0, 2, 1500, REASON)], around).per_batch == pytest.approx(0.3)


def test_a_processor_that_waits_for_its_machine_longer_than_others_is_as_busy_as_that() -> None:
    tracker = WorkloadTracker()
    for batch in (1, 2):
        shown = snapshot(
            processor(0, cpu=1.0, busy=6.0), processor(1, cpu=1.0, busy=2.0), step=batch, plan=PLAN, arrived=100
        )
        workload = tracker.follow(shown)
    assert workload is not None
    assert workload.loads.tolist() == [3.0, 1.0]


def test_a_push_is_worth_what_it_is_over_the_budget_and_costs_its_clean_up() -> None:
    around = circumstances({0: 60, 1: 30}, {2: 10}, seconds=[1.0, 0.2], memory=4000)
    predicted = estimate([SpillGroups(0, 0, (1,), 1500, REASON)], around)
    row = 0.9 / 90  # seconds for a row of 10 bytes
    assert predicted.pressing
    assert predicted.per_batch == 0
    assert predicted.costs == pytest.approx(150 * row, rel=0.05)
    assert predicted.once > 3 * 50 * row
    assert not estimate([SpillGroups(1, 0, (2,), 100, REASON)], around).pressing


def test_to_move_what_is_over_the_budget_to_where_there_is_room_is_worth_as_much_as_to_push_it_and_costs_less() -> None:
    around = circumstances({0: 60, 1: 30}, {2: 10}, seconds=[1.0, 0.2], memory=4000)
    moved = estimate([RelocateGroups(0, (1,), 0, 1, 1500, REASON)], around)
    pushed = estimate([SpillGroups(0, 0, (1,), 1500, REASON)], around)
    assert moved.pressing
    assert moved.gain - moved.costs > pushed.gain - pushed.costs


def test_rows_that_wait_gain_a_moment_up_to_the_next_busiest_and_nothing_on_a_processor_that_stays_late() -> None:
    around = circumstances({0: 60, 1: 30}, {2: 60}, {3: 60}, seconds=[1.9, 0.7, 0.6])
    held = estimate([HoldGroups(0, 0, (0, 1), REASON)], around)
    assert (held.before, held.after) == (pytest.approx(1.9), pytest.approx(0.7))
    assert held.gain == 0, "it was late in all five batches"


def test_another_order_of_joins_saves_the_share_of_the_work_that_it_saves_and_no_more() -> None:
    plans = (PlanCost("B A", 0, 0, 1, 40.0, 1000.0), PlanCost("A B", 0, 0, 1, 100.0, in_force=True))
    orders = OrderCosts(1, 5, 0.0, 0.0, {"query": QueryOrders(plans)})
    around = circumstances({0: 90}, {2: 10}, seconds=[1.0, 0.2], orders=orders)
    predicted = estimate([MigrateQuery("query", "B A", REASON)], around)
    assert 0 < predicted.per_batch <= 0.6
    assert predicted.costs == pytest.approx(0.3 + 1000 * 0.01 / 2)
    assert estimate([MigrateQuery("query", "C A", REASON)], around).gain == 0


def test_a_group_that_is_too_much_for_one_processor_is_shared_but_for_the_rows_that_go_to_all() -> None:
    around = circumstances({0: 80, 1: 10}, {2: 10}, seconds=[1.0, 0.2])
    predicted = estimate([DiffuseGroups(0, (0,), 0, (0, 1), (1.0, 1.0), REASON)], around)
    assert predicted.after == pytest.approx(1.0 - 0.8 + 0.8 * (0.75 / 2 + 0.25))
    assert touched_by(DiffuseGroups(0, (0,), 0, (0, 1), (1.0, 1.0), REASON), around.snapshot) == {0, 1}


def test_to_gather_what_is_diffused_is_the_way_back() -> None:
    hosts = (0, 1)
    routing = Routing((0, 0, 1, 1)).diffuse([0], (Spread(hosts, (1.0, 1.0)), Everywhere(hosts)))
    around = circumstances({0: 80, 1: 10}, {2: 10}, seconds=[0.7, 0.7], routing=routing)
    assert touched_by(GatherGroups(0, (0,), None, REASON), around.snapshot) == {0, 1}
    assert estimate([GatherGroups(0, (0,), None, REASON)], around).per_batch < 0


def test_an_operator_takes_all_it_does_along() -> None:
    around = circumstances({0: 60, 1: 30}, {}, seconds=[1.0, 0.1])
    predicted = estimate([ReallocateOperator(0, "join of A, B", 1, REASON)], around)
    assert predicted.after == pytest.approx(1.0)
    assert predicted.costs > 0.3
