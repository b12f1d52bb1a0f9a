"""What policies are shown between two steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from anabranch.manager.actions import Action
from anabranch.manager.adaptation import Adaptation
from anabranch.manager.budgets import MemoryBudgets
from anabranch.manager.distribution import Distribution
from anabranch.manager.monitor import Moment
from anabranch.manager.plan_shape import OperatorShape, PlanShape
from anabranch.manager.snapshot import Snapshot
from anabranch.plan.routing import owned_by
from anabranch.state.groups import GroupSet
from anabranch.state.manifest import Manifest
from anabranch.state.report import Report
from anabranch.state.spill import CleanUp

GROUPS = 4
SEEN: list[list[int]] = []


class Looks:
    """A policy that decides nothing, and notes which groups have returned from disk."""

    def decide(self, snapshot: Snapshot) -> Iterator[Action]:
        returned = snapshot.processors[0].operators[0].returned
        SEEN.append([] if returned is None else returned.numbers().tolist())
        return iter(())


def test_policies_know_which_groups_came_back_in_this_step_or_the_last(tmp_path: Path) -> None:
    SEEN.clear()
    plan = PlanShape((OperatorShape(0, "join", (0, 1)),), GROUPS)
    adaptation = Adaptation(plan, tmp_path, MemoryBudgets(100), [Looks()])
    found = Distribution((Manifest.empty(2, 1),), owned_by([(0,) * GROUPS]))
    for step, back in enumerate([[1], [], [2, 3], []], start=1):
        groups = GroupSet.of(GROUPS, back)
        cleaned_up = {0: CleanUp(GroupSet.all(GROUPS), groups)}
        adaptation.adapt(Moment(step, (None,), (), cleaned_up), found, [Report.empty(0, 2, 1, 0)])
    assert SEEN == [[1], [1], [2, 3], [2, 3]]
