"""Open properties come from the engine's settings into every snapshot, and what is none is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from anabranch.errors import ConfigError
from anabranch.manager.allocation.properties import Properties, check_properties
from anabranch.manager.costs.cost_table import cost_table
from anabranch.manager.distribution import Distribution
from anabranch.manager.memory.budgets import MemoryBudgets
from anabranch.manager.plan_shape import OperatorShape, PlanShape
from anabranch.manager.runtime_monitor import Moment, RuntimeMonitor
from anabranch.manager.snapshot import Snapshot
from anabranch.plan.routing import owned_by
from anabranch.state.manifest import Manifest
from anabranch.state.report import Report


class Weighted:
    """A cost model of somebody's own: the weight of an operator, by the speed of its processor."""

    def costs(self, snapshot: Snapshot) -> dict[int, dict[int, float]]:
        return {
            view.processor: {
                one.operator: float(one.properties.get("weight", 0)) / float(view.properties.get("speed", 1))
                for one in view.operators
            }
            for view in snapshot.processors
        }


def test_a_cost_model_of_ones_own_reads_properties_from_the_snapshot() -> None:
    plan = PlanShape((OperatorShape(0, "join of A, B", (0,)), OperatorShape(1, "groups of A", (1,))), 2)
    given = {"processors": {1: {"speed": 2}}, "operators": {"join of A, B": {"weight": 3}}, "plan": {"owner": "me"}}
    properties = check_properties(given, 2)
    monitor = RuntimeMonitor(plan, MemoryBudgets(None), lambda file: np.arange(3), lambda: 0.0, properties)
    distribution = Distribution((Manifest.empty(2, 2),) * 2, owned_by(((0, 1),) * 2))
    reports = [Report.empty(p, 1, 2, 0) for p in range(2)]
    snapshot = monitor.snapshot(Moment(1, (None,) * 2, ()), distribution, reports)
    assert snapshot.properties == {"owner": "me"}
    assert cost_table(Weighted(), snapshot).costs == {0: {0: 3.0, 1: 0.0}, 1: {0: 1.5, 1: 0.0}}


def test_what_are_no_properties_is_refused() -> None:
    assert check_properties(None, 2) == Properties()
    for given, told in (
        ([], "properties are such as"),
        ({"processor": {}}, "properties are such as"),
        ({"processors": {2: {}}}, "processors from 0 to 1, not of 2"),
        ({"operators": {"join of A, B": 3}}, "a property is a number or a text"),
        ({"plan": {"owner": Path()}}, "a property is a number or a text"),
        ({"plan": 3}, "properties are such as"),
    ):
        with pytest.raises(ConfigError, match=told):
            check_properties(given, 2)
