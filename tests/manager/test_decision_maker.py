"""What policies are shown between two steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from anabranch.manager.actions import Action
from anabranch.manager.decision_maker import DecisionMaker
from anabranch.manager.distribution import Distribution
from anabranch.manager.memory.budgets import MemoryBudgets
from anabranch.manager.plan_shape import Edge, OperatorShape, PlanShape
from anabranch.manager.runtime_monitor import Moment
from anabranch.manager.snapshot import Policy, Snapshot
from anabranch.plan.routing import Everywhere, Routing, Spread, owned_by
from anabranch.state.groups import GroupSet
from anabranch.state.manifest import Manifest, OperatorState
from anabranch.state.report import Report
from anabranch.state.spill import CleanUp
from anabranch.state.statistics import Statistics

GROUPS = 4
SEEN: list[list[int]] = []
SHOWN: list[Snapshot] = []


class Looks:
    """A policy that decides nothing, and notes which groups have returned from disk."""

    def decide(self, snapshot: Snapshot) -> Iterator[Action]:
        returned = snapshot.processors[0].operators[0].returned
        SEEN.append([] if returned is None else returned.numbers().tolist())
        return iter(())


class Keeps:
    """A policy that decides nothing, and keeps what it is shown."""

    def decide(self, snapshot: Snapshot) -> Iterator[Action]:
        SHOWN.append(snapshot)
        return iter(())


def test_policies_know_which_groups_are_diffused_where_and_which_of_their_streams_is_the_faster_one(
    tmp_path: Path,
) -> None:
    SHOWN.clear()
    plan = PlanShape((OperatorShape(0, "join", (0, 1)),), GROUPS)
    arrivals = np.array([[5, 3], [700, 20]])
    groups, nothing = np.array([0, 2]), np.zeros(2, dtype=np.int64)
    known = Statistics(groups, nothing + 10, nothing, nothing.astype(float), nothing + 1.0, arrivals)
    manifest = Manifest(Manifest.empty(2).spines, (OperatorState(statistics=known),))
    hosts = (0, 1)
    routing = Routing((0,) * GROUPS).diffuse([2], (Spread(hosts, (1.0, 1.0)), Everywhere(hosts)))
    distribution = Distribution((manifest, Manifest.empty(2, 1)), (routing,))
    decision_maker = DecisionMaker(plan, tmp_path, MemoryBudgets(100), [Keeps()])
    decision_maker.adapt(Moment(1, (None,), ()), distribution, [Report.empty(p, 2, 1, 0) for p in range(2)])
    [shown] = SHOWN
    assert shown.routings == (routing,)
    for processor in shown.processors:
        diffused = processor.operators[0].diffused
        assert diffused is not None
        assert diffused.numbers().tolist() == [2]
    assert shown.processors[0].operators[0].statistics.arrivals.tolist() == arrivals.tolist()
    partitions = shown.processors[0].partitions()
    assert partitions.group.tolist() == [0, 2]
    assert partitions.diffused.tolist() == [False, True]


def test_only_joins_that_run_by_themselves_can_be_diffused() -> None:
    operators = (
        OperatorShape(0, "join", (0, 1), family=0),
        OperatorShape(1, "groups", (2,), grouping=0, family=1),
        OperatorShape(2, "join", (3, 4), family=2),
        OperatorShape(3, "groups", (5,), grouping=1, family=2),
        OperatorShape(4, "join of a shadow", (6, 7), spillable=False, family=4),
    )
    plan = PlanShape(operators, GROUPS)
    assert (plan.diffusable, plan.partable) == ((0,), (2,)), "the other one could part from what it is fused with"
    assert PlanShape(operators, GROUPS, migrating=True).partable == (), "not while a query migrates"


def test_to_set_an_operator_apart_costs_the_rounds_that_the_plan_then_needs() -> None:
    def plan(*families: int) -> PlanShape:
        feeds = [(), (0,), (1,)]
        edges = [tuple(Edge(None, (lower,)) for lower in lowers) for lowers in feeds]
        return PlanShape(tuple(OperatorShape(n, f"op {n}", (n,), family=families[n], edges=edges[n]) for n in range(3)))

    assert [plan(0, 0, 0).rounds(apart) for apart in (None, 0, 1, 2)] == [1, 2, 3, 2]
    assert [plan(0, 0, 2).rounds(apart) for apart in (None, 0, 1, 2)] == [2, 3, 3, 2]


def test_policies_know_which_groups_came_back_in_this_step_or_the_last(tmp_path: Path) -> None:
    SEEN.clear()
    plan = PlanShape((OperatorShape(0, "join", (0, 1)),), GROUPS)
    decision_maker = DecisionMaker(plan, tmp_path, MemoryBudgets(100), [Looks()])
    found = Distribution((Manifest.empty(2, 1),), owned_by([(0,) * GROUPS]))
    for step, back in enumerate([[1], [], [2, 3], []], start=1):
        groups = GroupSet.of(GROUPS, back)
        cleaned_up = {0: CleanUp(GroupSet.all(GROUPS), groups)}
        decision_maker.adapt(Moment(step, (None,), (), cleaned_up), found, [Report.empty(0, 2, 1, 0)])
    assert SEEN == [[1], [1], [2, 3], [2, 3]]


class Counts:
    """A policy that decides nothing, counts how often it was asked, and goes on from plan to plan if told to."""

    def __init__(self, spans_plans: bool) -> None:
        self.spans_plans = spans_plans
        self.asked = 0

    def decide(self, snapshot: Snapshot) -> Iterator[Action]:
        self.asked += 1
        SEEN.append([self.spans_plans, self.asked])
        return iter(())


def test_a_policy_begins_anew_with_each_plan_unless_it_spans_plans(tmp_path: Path) -> None:
    SEEN.clear()
    given, spanning = [Counts(False), Counts(True)], dict[int, Policy]()
    distribution = Distribution((Manifest.empty(2, 1),), owned_by([(0,) * GROUPS]))
    for operators in ("join", "join", "another join"):
        plan = PlanShape((OperatorShape(0, operators, (0, 1)),), GROUPS)
        decision_maker = DecisionMaker(plan, tmp_path, MemoryBudgets(100), given, spanning=spanning)
        decision_maker.adapt(Moment(1, (None,), ()), distribution, [Report.empty(0, 2, 1, 0)])
    assert SEEN == [[False, 1], [True, 1], [False, 1], [True, 2], [False, 1], [True, 3]]
    assert [policy.asked for policy in given] == [0, 0], "each run has copies of its own"
