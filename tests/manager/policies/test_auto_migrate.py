"""A query is migrated to an order that is much cheaper for a while, and never to and fro."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy

import pytest

from anabranch.errors import ConfigError
from anabranch.manager.actions import MigrateQuery
from anabranch.manager.order_costs import OrderCosts, QueryOrders
from anabranch.manager.order_statistics import OrderStatistics
from anabranch.manager.policies.auto_migrate import AutoMigrate
from anabranch.manager.snapshot import Snapshot
from anabranch.plan.orders.plan_cost import PlanCost

SECONDS = 60.0


class Query:
    """A query that does what a policy decides, once per evaluation, and counts how often.

    As in a run, the policy begins anew with each plan.
    """

    def __init__(self, policy: AutoMigrate, running: str) -> None:
        self.first, self.policy, self.running = policy, deepcopy(policy), running
        self.number = self.migrations = 0
        self.statistics = OrderStatistics()

    def evaluate(self, work: Mapping[str, float], migration_rows: float = 0.0) -> list[MigrateQuery]:
        self.number += 1
        now = self.number * SECONDS
        plans = [
            PlanCost(joins, cost, cost, 1, cost, migration_rows * (joins != self.running), joins == self.running)
            for joins, cost in work.items()
        ]
        self.statistics.note(self.number, now, 0.1, {"q": QueryOrders(tuple(plans))}, {})
        snapshot = Snapshot(self.number, now, (), orders=self.statistics.latest)
        decided = list(self.policy.decide(snapshot))
        assert list(self.policy.decide(snapshot)) == [], "an evaluation counts once"
        for migration in decided:
            self.statistics.note_migration("q", self.running, migration.joins, now)
            self.running, self.migrations = migration.joins, self.migrations + 1
            self.policy = deepcopy(self.first)
            again = Snapshot(self.number, now, (), orders=self.statistics.latest)
            assert list(self.policy.decide(again)) == [], "these costs are those of before"
        return decided


def test_what_is_cheaper_by_the_gain_in_two_evaluations_is_migrated_to() -> None:
    query = Query(AutoMigrate(gain=1.5, strategy="background", wish="work"), "(A B) C")
    assert query.evaluate({"(A B) C": 160, "A (B C)": 100}) == []
    assert query.evaluate({"(A B) C": 140, "A (B C)": 100}) == [], "too little, so the first counts no more"
    assert query.evaluate({"(A B) C": 160, "A (B C)": 100}) == []
    [migration] = query.evaluate({"(A B) C": 160, "A (B C)": 100})
    reason = "100 instead of 160 rows of work per second are to be expected"
    assert migration == MigrateQuery("q", "A (B C)", reason, "background", "work")


def test_nothing_is_decided_without_costs() -> None:
    assert list(AutoMigrate().decide(Snapshot(1, 1.0, ()))) == []


def test_an_order_that_was_refused_is_not_asked_for() -> None:
    query = Query(AutoMigrate(), "(A B) C")
    query.statistics.refuse("q", "A (B C)")
    for _ in range(5):
        query.evaluate({"(A B) C": 900, "A (B C)": 100})
    assert query.migrations == 0


def test_a_wish_for_latency_takes_no_order_with_more_exchanges_and_one_for_memory_compares_state() -> None:
    plans = (
        PlanCost("A B C", 0, 0, 1, 300.0, in_force=True),
        PlanCost("(A B) C", 9, 9, 2, 100.0),
        PlanCost("A (B C)", 5, 5, 1, 150.0),
    )

    def decided(wish: str) -> list[str]:
        policy = AutoMigrate(wish=wish)  # type: ignore[arg-type]
        all_of_them = []
        for number in range(1, 4):
            costs = OrderCosts(number, number, number, 0.1, {"q": QueryOrders(plans)})
            all_of_them += policy.decide(Snapshot(number, float(number), (), orders=costs))
        return [one.joins for one in all_of_them][:1]

    assert decided("latency") == ["A (B C)"]
    assert decided("work") == ["(A B) C"]
    assert decided("memory") == []


@pytest.mark.parametrize("period", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("ratio", [1.4, 2.0, 2.2])
def test_selectivities_that_alternate_are_followed_once_at_most(period: int, ratio: float) -> None:
    query = Query(AutoMigrate(gain=1.5), "(A B) C")
    for n in range(200):
        dear, cheap = ("(A B) C", "A (B C)") if n // period % 2 else ("A (B C)", "(A B) C")
        query.evaluate({dear: 100 * ratio, cheap: 100})
    assert query.migrations == (1 if ratio > 1.5 and period > 1 else 0)


@pytest.mark.parametrize("period", [1, 2, 3, 7, 20])
def test_however_much_they_alternate_there_is_at_most_one_migration_per_turn_and_per_few_evaluations(
    period: int,
) -> None:
    query = Query(AutoMigrate(gain=1.5, evaluations=5), "(A B) C")
    for n in range(200):
        dear, cheap = ("(A B) C", "A (B C)") if n // period % 2 else ("A (B C)", "(A B) C")
        query.evaluate({dear: 1_000, cheap: 100})
    assert query.migrations <= min(200 // period, 200 // 5)
    assert query.migrations >= 9 or period < 5, "what lasts is followed"


def test_a_migration_has_to_pay_for_itself_before_the_next() -> None:
    query = Query(AutoMigrate(), "(A B) C")
    rows = 900 * SECONDS * 50  # of which 900 are saved per second
    turns = 0
    for n in range(200):
        dear, cheap = ("(A B) C", "A (B C)") if n // 10 % 2 == 0 else ("A (B C)", "(A B) C")
        query.evaluate({dear: 1_000, cheap: 100}, rows)
        turns += n % 10 == 0
    assert turns == 20
    assert 2 <= query.migrations <= 200 // 50


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"gain": 1}, "gain says how many times cheaper an order has to be, above 1, not 1"),
        ({"strategy": "backgrond"}, "there is no strategy 'backgrond'; did you mean 'background'"),
        ({"wish": "speed"}, "there is no wish 'speed'"),
        ({"evaluations": 0}, "evaluations must be a positive whole number, not 0"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(arguments: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        AutoMigrate(**arguments)  # type: ignore[arg-type]
