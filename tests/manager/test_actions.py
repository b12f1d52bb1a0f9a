"""Actions take the numbers that snapshots have, and refuse what is no number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from anabranch.errors import ConfigError
from anabranch.manager.actions import DiffuseGroups, HoldGroups, PartOperator, RelocateGroups, SpillGroups
from anabranch.manager.actions.change import Change, Context
from anabranch.manager.connection_manager import ConnectionManager
from anabranch.manager.distribution import Distribution
from anabranch.manager.plan_shape import OperatorShape, PlanShape
from anabranch.plan.routing import Everywhere, Routing, Spread
from anabranch.state.groups import GroupSet
from anabranch.state.manifest import Manifest
from anabranch.state.runs.run import FileCuts

GROUPS = 4


def test_numbers_of_numpy_become_numbers_of_python() -> None:
    groups = np.array([3, 4])
    move = RelocateGroups(np.int64(0), groups, groups[0], groups[1], groups.sum(), "why", np.int32(9))  # type: ignore[arg-type]
    assert move == RelocateGroups(0, (3, 4), 3, 4, 7, "why", 9)
    assert {type(number) for number in (*move.groups, move.sender, move.bytes, move.pace)} == {int}


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: RelocateGroups(0, (1,), False, True, 10, "why"), "RelocateGroups: sender must be whole numbers"),
        (lambda: RelocateGroups(0, (1,), 0, 1, 10, "why", "1m"), "pace must be whole numbers, not '1m'"),
        (lambda: SpillGroups(0, 0, (1.5,), 10, "why"), "SpillGroups: groups must be whole numbers, not 1.5"),
        (lambda: SpillGroups(0, 0, (1,), None, "why"), "bytes must be whole numbers, not None"),
        (lambda: HoldGroups(0, 0, "all", "why"), "groups must be a list of whole numbers, not 'all'"),
        (lambda: HoldGroups(0, 0, 7, "why"), "groups must be a list of whole numbers, not 7"),
    ],
)
def test_what_is_no_number_is_refused(make: Callable[[], object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        make()


def test_rows_of_a_diffused_group_neither_wait_nor_spill(tmp_path: Path) -> None:
    """Not even if a policy that was asked before has just diffused it, and this one does not know."""
    plan = PlanShape((OperatorShape(0, "join", (0, 1)),), GROUPS)
    hosts = (0, 1)
    routing = Routing((0,) * GROUPS).diffuse([2], (Spread(hosts, (1.0, 1.0)), Everywhere(hosts)))
    change = Change(Distribution((Manifest.empty(2, 1),) * 2, (routing,)))
    cuts = FileCuts(tmp_path, GROUPS)
    context = Context(plan, 1, (None,), 0.0, ConnectionManager(plan, cuts, lambda: 0.0), cuts)
    assert HoldGroups(0, 0, (1, 2), "why").must_wait(change, set())
    assert not HoldGroups(0, 0, (1, 3), "why").must_wait(change, set())
    assert SpillGroups(0, 0, (1, 3), 10, "why").problem(change, context) is None
    problem = SpillGroups(0, 0, (1, 2), 10, "why").problem(change, context)
    assert problem == "group 2 cannot be spilled while diffused; gather first"
    assert "group 2 is diffused over processors 0, 1" in str(
        RelocateGroups(0, (1, 2), 0, 1, 10, "why").problem(change, context)
    )


def test_an_operator_is_set_apart_for_its_own_groups_if_it_is_fused_and_nothing_else_is_under_way(
    tmp_path: Path,
) -> None:
    operators = (OperatorShape(0, "join", (0, 1)), OperatorShape(1, "upper", (2, 3)))
    cuts = FileCuts(tmp_path, GROUPS)

    def problem(action: PartOperator, *, migrating: bool = False) -> str:
        plan = PlanShape(operators, GROUPS, migrating)
        context = Context(plan, 1, (None,), 0.0, ConnectionManager(plan, cuts, lambda: 0.0), cuts)
        return str(action.problem(change(), context))

    def change(**fields: object) -> Change:
        placement = Routing((0,) * GROUPS)
        return Change(Distribution((Manifest.empty(4, 2),) * 2, (placement,) * 2), **fields)  # type: ignore[arg-type]

    diffuse = DiffuseGroups(1, (2,), 0, (0, 1), (1.0, 1.0), "hot")
    part = PartOperator(1, "upper", (diffuse,), "hot")
    assert problem(part) == "None"
    assert "it is fused with the join, and has to be set apart first" in str(
        diffuse.problem(change(), Context(PlanShape(operators, GROUPS), 1, (), 0.0, None, cuts))  # type: ignore[arg-type]
    )
    assert "or a query migrates" in problem(part, migrating=True)
    assert "no operator 1 called 'join'" in problem(replace(part, name="join"))
    assert "of nothing else" in problem(replace(part, diffusions=(replace(diffuse, operator=0),)))
    assert "name two or more processors" in problem(replace(part, diffusions=(replace(diffuse, hosts=(0,)),)))
    assert not part.must_wait(change(), set())
    assert part.must_wait(change(), {1}), "a host takes part in something else"
    assert part.must_wait(change(migrations=[object()]), set())
    assert part.must_wait(change(reallocations=[part]), set()), "one at a time"
    assert part.must_wait(change(hold={1: GroupSet.all(GROUPS)}), set()), "rows of the group are to wait"
