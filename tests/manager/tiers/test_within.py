"""Each cluster adapts by itself: a policy decides in a cluster what it would decide if there was nothing else, and
nothing that it decides on leaves the cluster."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anabranch.errors import ConfigError
from anabranch.manager.actions import (
    ACTIONS,
    Action,
    CleanUpGroups,
    DiffuseGroups,
    GatherGroups,
    HoldGroups,
    MigrateQuery,
    PartOperator,
    ReallocateOperator,
    RelocateGroups,
    SpillGroups,
)
from anabranch.manager.decision_maker import DecisionMaker
from anabranch.manager.distribution import Distribution
from anabranch.manager.memory.budgets import MemoryBudgets
from anabranch.manager.order_costs import OrderCosts, QueryOrders
from anabranch.manager.plan_shape import OperatorShape, PlanShape
from anabranch.manager.policies.adaptive import Adaptive
from anabranch.manager.policies.balance import Balance
from anabranch.manager.policies.diffusion import Diffusion
from anabranch.manager.runtime_monitor import Moment
from anabranch.manager.snapshot import OperatorView, ProcessorView, Snapshot
from anabranch.manager.tiers.clusters import Clusters
from anabranch.manager.tiers.within import crossing, within
from anabranch.plan.routing import Everywhere, Routing, Spread, owned_by
from anabranch.state.manifest import Manifest
from anabranch.state.report import Report
from anabranch.state.statistics import Statistics
from tests.manager.arbitration.model import Model, even
from tests.manager.placed import PlacedCluster
from tests.manager.policies.diffused import GROUPS, DiffusedCluster, batch

# The processors of another cluster, whose numbers come first.
BEFORE = 3
HERE, ELSEWHERE = "here", "elsewhere"
SHOWN: list[Snapshot] = []


@dataclass
class InACluster:
    """A policy beside its twin, which sees the same processors with other numbers, as one of two clusters. Both have to
    decide alike."""

    alone: Any
    twin: Any = None
    decided: int = 0

    def __post_init__(self) -> None:
        self.twin = copy.deepcopy(self.alone)

    def decide(self, snapshot: Snapshot) -> Iterator[Action]:
        actions = list(self.alone.decide(snapshot))
        count = len(snapshot.processors)
        clusters = Clusters({ELSEWHERE: tuple(range(BEFORE)), HERE: tuple(range(BEFORE, BEFORE + count))})
        twins = list(self.twin.decide(within(beside_another(snapshot), clusters, HERE)))
        assert [unworded(moved(action, -BEFORE)) for action in twins] == [unworded(action) for action in actions]
        self.decided += len(actions)
        self.twins = twins
        return iter(actions)

    def tell(self, done: Sequence[Action]) -> Iterator[Any]:
        """Of `ab.Adaptive`; whatever was decided is done."""
        told = list(self.alone.tell(done))
        assert [kind for kind, _, _ in self.twin.tell(self.twins)] == [kind for kind, _, _ in told]
        return iter(told)


def beside_another(snapshot: Snapshot) -> Snapshot:
    """The same beside a cluster that has an operator of its own, with a diffused group, and a query that could
    migrate."""
    number = len(snapshot.plan.operators)
    mine = tuple(replace(shape, queries=("mine",)) for shape in snapshot.plan.operators)
    theirs = OperatorShape(number, "theirs", (90, 91), family=number, kindred=number, queries=("theirs",))
    hosts = tuple(range(BEFORE))
    groups = snapshot.plan.groups
    away = Routing((0,) * groups).diffuse([1], (Spread(hosts, (1.0,) * BEFORE), Everywhere(hosts)))
    busy = Statistics(
        np.arange(groups),
        np.full(groups, 9_999),
        np.full(groups, 77),
        np.full(groups, 7.0),
        np.full(groups, 1.0),
        np.full((groups, 2), snapshot.step * 1_000),
    )
    there = [
        ProcessorView(p, 1 << 40, (OperatorView(number, busy, family=number, cpu=9.0),), 1, 9.0, 9.0) for p in hosts
    ]
    here = [
        replace(
            view,
            processor=view.processor + BEFORE,
            operators=(*view.operators, OperatorView(number, Statistics(), family=number)),
        )
        for view in snapshot.processors
    ]
    orders = snapshot.orders
    if orders is not None:
        own = {"mine" if name == "query" else name: costs for name, costs in orders.queries.items()}
        orders = replace(orders, queries={**own, "theirs": next(iter(own.values()))})
    return replace(
        snapshot,
        processors=(*there, *here),
        plan=PlanShape((*mine, theirs), groups),
        routings=(*map(shifted, snapshot.routings), away),
        orders=orders,
    )


def shifted(routing: Routing) -> Routing:
    diffused = tuple(
        (group, tuple(replace(route, hosts=tuple(host + BEFORE for host in route.hosts)) for route in routes))
        for group, routes in routing.diffused
    )
    return Routing(tuple(home + BEFORE for home in routing.placement), diffused)


def moved(action: Action, by: int) -> Action:
    """An action on processors with other numbers."""
    match action:
        case SpillGroups() | HoldGroups() | ReallocateOperator():
            return replace(action, processor=action.processor + by)
        case RelocateGroups():
            return replace(action, sender=action.sender + by, receiver=action.receiver + by)
        case DiffuseGroups():
            return replace(action, hosts=tuple(host + by for host in action.hosts))
        case GatherGroups():
            return action if action.to is None else replace(action, to=action.to + by)
        case MigrateQuery():
            return replace(action, query="query")
    return action


def unworded(action: Action) -> Action:
    return replace(action, reason="")  # type: ignore[call-arg]


@pytest.mark.parametrize("seed", range(6))
def test_adaptive_decides_in_a_cluster_as_if_it_was_alone(seed: int) -> None:
    chance = random.Random(seed)
    policy = InACluster(Adaptive())
    owners = even(32, 4) if seed % 2 else [0] * 20 + [1] * 4 + [2] * 4 + [3] * 4
    cluster = Model(
        policy,  # type: ignore[arg-type]
        owners,
        [1_000.0] * 4,
        [1_500, *[100] * 31] if seed == 1 else [100] * 32,
        memory=[1 << 30] * 4 if seed % 3 else [60_000] * 4,
        orders={"A B": 1.0, "B A": 0.4} if seed == 3 else {"A B": 1.0},
    )
    for _ in range(6):
        cluster.run(8)
        cluster.speeds[chance.randrange(4)] = chance.choice([300.0, 1_000.0])
    assert policy.decided


def test_diffusion_decides_in_a_cluster_as_if_it_was_alone() -> None:
    policy = InACluster(Diffusion())
    cluster = DiffusedCluster(policy, slow={2: 3.0})  # type: ignore[arg-type]
    cluster.run(20, lambda _: batch({5: (1_500, 1_500)}))
    cluster.run(80, lambda number: batch({5: (500, 3_000) if number < 60 else (10, 10), GROUPS - 1: (2_000, 100)}))
    cluster.run(60, lambda _: batch({}))
    assert cluster.entered() > 1
    assert cluster.left() > 0


def test_balance_decides_in_a_cluster_as_if_it_was_alone() -> None:
    policy = InACluster(Balance())
    cluster = PlacedCluster(policy, [0] * 6, 3)  # type: ignore[arg-type]
    cluster.run(20, lambda _: {"cpu": [0.1, 0.2, 0.3, 0.1, 0.2, 0.3]})
    assert len(cluster.moves) > 2


class Decides:
    """A policy that decides on what it was made with, and keeps what it is shown."""

    def __init__(self, *actions: Action) -> None:
        self.actions = actions

    def decide(self, snapshot: Snapshot) -> Iterator[Action]:
        SHOWN.append(snapshot)
        yield from self.actions


CLUSTERS = Clusters({"eu": (0, 2), "us": (1, 3)})
PLAN = PlanShape(
    tuple(
        OperatorShape(n, f"op{n}", (n,), family=n, queries=queries) for n, queries in enumerate([("a", "b"), ("c",)])
    ),
    4,
)
DISTRIBUTION = Distribution((Manifest.empty(2, 2),) * 4, owned_by([(0, 0, 2, 2), (1,) * 4]))


def adapt(tmp_path: Path, *actions: Action, orders: OrderCosts | None = None) -> None:
    SHOWN.clear()
    maker = DecisionMaker(PLAN, tmp_path, MemoryBudgets(None), [Decides(*actions)], clusters=CLUSTERS)
    moment = Moment(1, (None, None), (), orders=orders)
    maker.adapt(moment, DISTRIBUTION, [Report.empty(p, 2, 2, 0) for p in range(4)])


def test_each_cluster_has_a_copy_of_each_policy_which_sees_its_processors_and_queries_alone(tmp_path: Path) -> None:
    orders = OrderCosts(1, 1, 0.0, 0.0, {name: QueryOrders(()) for name in "abcd"})
    adapt(tmp_path, orders=orders)
    eu, us = SHOWN
    assert (eu.numbers, us.numbers) == ((0, 2), (1, 3))
    assert eu.processor(2).processor == 2
    assert [{*shown.orders.queries} for shown in (eu, us) if shown.orders is not None] == [{"a", "b"}, {"c"}]


@pytest.mark.parametrize(
    "action",
    [
        RelocateGroups(0, (0,), 0, 1, 10, "a test"),
        RelocateGroups(1, (0,), 1, 2, 10, "a test"),
        ReallocateOperator(1, "op1", 2, "a test"),
    ],
)
def test_a_policy_of_ones_own_cannot_leave_its_cluster(tmp_path: Path, action: Action) -> None:
    with pytest.raises(ConfigError, match=r"processor [12] is not of cluster .* only run.send"):
        adapt(tmp_path, action)


ACROSS = [
    SpillGroups(1, 0, (0,), 10, "a test"),
    HoldGroups(1, 0, (0,), "a test"),
    RelocateGroups(0, (0,), 0, 1, 10, "a test"),
    DiffuseGroups(0, (0,), 0, (0, 1), (1.0, 1.0), "a test"),
    PartOperator(0, "op0", (DiffuseGroups(0, (0,), 0, (2, 1), (1.0, 1.0), "a test"),), "a test"),
    GatherGroups(0, (0,), 1, "a test"),
    ReallocateOperator(0, "op0", 1, "a test"),
]


def test_every_action_that_names_a_processor_is_kept_within_a_cluster() -> None:
    assert {*map(type, ACROSS)} | {CleanUpGroups, MigrateQuery} == {*ACTIONS}, "of the others none names a processor"
    for action in ACROSS:
        told = crossing(action, CLUSTERS, DISTRIBUTION)
        assert told is not None
        assert told.startswith("processor 1 is not of cluster 'eu' (processors 0, 2)")
    assert crossing(GatherGroups(0, (0,), None, "a test"), CLUSTERS, DISTRIBUTION) is None
    assert crossing(RelocateGroups(0, (0,), 0, 2, 10, "a test"), CLUSTERS, DISTRIBUTION) is None
