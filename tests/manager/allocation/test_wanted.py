"""What is wanted of where operators are: which operators are meant, and what is refused."""

from __future__ import annotations

import pytest

from anabranch.errors import ConfigError
from anabranch.manager.allocation.wanted import SPREAD, STAY, Wanted, allocation_after, operators_of
from anabranch.manager.distribution import Distribution
from anabranch.manager.plan_shape import Edge, OperatorShape, PlanShape
from anabranch.plan.allocation import Allocation
from anabranch.plan.routing import owned_by
from anabranch.state.manifest import Manifest

GROUPS = 4
# (0 1) and (2) feed 3, which feeds 4; an answer is also made of 1.
EDGES = {1: (0,), 3: (1, 2), 4: (3,)}
PLAN = PlanShape(
    tuple(
        OperatorShape(n, f"op {n}", (n,), family=n, kindred=0, edges=(Edge(None, EDGES.get(n, ())),)) for n in range(5)
    ),
    GROUPS,
)
SPREAD_OUT = (0, 0, 1, 1)
DISTRIBUTION = Distribution((Manifest.empty(5, 5),) * 2, owned_by((SPREAD_OUT,) * 5))
ALLOCATION = Allocation((SPREAD_OUT,) * 5, (0,) * 5)


def meant(*names: str, subplan: bool = False, answering: tuple[int, ...] = (4,)) -> tuple[int, ...]:
    return operators_of(PLAN, Wanted(names, 0, "a test", subplan), answering)


def test_a_sub_plan_is_an_operator_and_all_that_only_feeds_it() -> None:
    assert meant("op 3") == (3,)
    assert meant("op 3", subplan=True) == (0, 1, 2, 3)
    assert meant("op 3", subplan=True, answering=(1, 4)) == (2, 3), "what answers a query does not only feed it"
    assert meant("op 1", "op 4", subplan=True) == (0, 1, 2, 3, 4)


def test_what_there_is_not_is_refused_with_what_there_is() -> None:
    with pytest.raises(ConfigError, match="there is no operator 'op 7'; did you mean"):
        meant("op 7")
    with pytest.raises(ConfigError, match="no operator was given"):
        meant()
    for to in (2, -1, "everywhere", True, None):
        with pytest.raises(ConfigError, match="from 0 to 1, or to all of them"):
            allocation_after(PLAN, DISTRIBUTION, ALLOCATION, [0], Wanted(("op 0",), to, "a test"))


def test_an_operator_goes_to_a_processor_or_to_all_or_stays_apart_where_it_is() -> None:
    one = allocation_after(PLAN, DISTRIBUTION, ALLOCATION, [0, 1], Wanted(("op 0", "op 1"), 1, "a test"))
    assert one.placements[:3] == ((1,) * 4, (1,) * 4, SPREAD_OUT)
    back = allocation_after(PLAN, DISTRIBUTION, one, [0], Wanted(("op 0",), SPREAD, "a test"))
    assert back.placements[:2] == (SPREAD_OUT, (1,) * 4)
    apart = allocation_after(PLAN, DISTRIBUTION, ALLOCATION, [2], Wanted(("op 2",), STAY, "a test", apart=True))
    assert (apart.placements, apart.apart) == (ALLOCATION.placements, {2})
    assert apart.families is not None
    assert apart.families.count(apart.families[2]) == 1
