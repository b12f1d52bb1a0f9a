"""How much is cleaned up at once, and what has room to come back: decisions on made-up state."""

from __future__ import annotations

import numpy as np

from anabranch.manager.distribution import Distribution
from anabranch.manager.memory.budgets import MemoryBudgets
from anabranch.manager.plan_shape import OperatorShape, PlanShape
from anabranch.manager.policies.clean_up import CleanUpInPassing, choose
from anabranch.manager.runtime_monitor import Moment, RuntimeMonitor
from anabranch.manager.snapshot import Snapshot
from anabranch.plan.routing import owned_by
from anabranch.state.generation import Generation
from anabranch.state.groups import GroupSet
from anabranch.state.manifest import Manifest, OperatorState
from anabranch.state.report import Report
from anabranch.state.runs.run import RunFile
from anabranch.state.runs.slice import Slice
from anabranch.state.runs.spine import Spine
from anabranch.state.statistics import Statistics

GROUPS = 16


def snapshot(
    manifest: Manifest, memory: int, *, spillable: tuple[bool, ...] = (True,), awaiting: int | None = None
) -> Snapshot:
    """What is seen of one processor with this state."""
    operators = tuple(OperatorShape(n, f"operator {n}", (n,), can, family=n) for n, can in enumerate(spillable))
    monitor = RuntimeMonitor(PlanShape(operators, GROUPS), MemoryBudgets(memory), lambda file: np.arange(GROUPS + 1))
    nothing = Report.empty(0, 0, len(operators), 0)
    everything = Distribution((manifest,), owned_by([(0,) * GROUPS] * len(operators)))
    return monitor.snapshot(Moment(3, (), (), awaiting=awaiting), everything, [nothing])


def spilled_twice(size: int) -> OperatorState:
    """An operator with two generations, in which every group has so many bytes."""
    pieces = (Slice(RunFile("spilled", GROUPS, GROUPS * size, 0, None, None), 0, GROUPS),)
    everything = GroupSet.all(GROUPS)
    sizes, produced = (size,) * GROUPS, (1,) * GROUPS
    return OperatorState(generations=tuple(Generation(n, everything, None, (pieces,), sizes, produced) for n in (1, 2)))


def holding(size: int) -> tuple[Spine, OperatorState]:
    """An operator with so many active bytes in one group."""
    one = np.array([0], dtype=np.int64)
    active = Statistics(one, one + size, one, np.zeros(1), np.zeros(1), one[:, None])
    return Spine().insert(RunFile("active", 1, size, 0, None, None)), OperatorState(statistics=active)


def test_a_step_of_clean_up_reads_some_mebibytes_however_small_the_memory_is() -> None:
    manifest = Manifest((Spine(),), (spilled_twice(10_000),))
    (chosen,) = choose(snapshot(manifest, 8_000), "of a test", back=True)
    assert len(chosen.groups) == GROUPS, "not one group after the other"
    assert chosen.back == ()


def test_a_step_of_clean_up_reads_no_more_than_the_memory_holds() -> None:
    manifest = Manifest((Spine(),), (spilled_twice(2 << 20),))
    (chosen,) = choose(snapshot(manifest, 16 << 20), "of a test", back=True)
    assert len(chosen.groups) == 4


def test_what_comes_back_has_room_beside_state_that_cannot_be_spilled() -> None:
    spine, fixed = holding(20_000)
    manifest = Manifest((spine, Spine()), (fixed, spilled_twice(500)))
    (chosen,) = choose(snapshot(manifest, 10_000, spillable=(False, True)), "of a test", back=True)
    assert chosen.operator == 1
    assert len(chosen.groups) == GROUPS
    assert len(chosen.back) == 3, "70% of half of the memory"


def test_only_what_was_spilled_before_somebody_asked_is_awaited() -> None:
    manifest = Manifest((Spine(),), (spilled_twice(10_000),))
    assert list(CleanUpInPassing().decide(snapshot(manifest, 8_000, awaiting=0))) == []
    (chosen,) = CleanUpInPassing().decide(snapshot(manifest, 8_000, awaiting=1))
    assert len(chosen.groups) == GROUPS


def test_nothing_is_cleaned_up_without_an_occasion() -> None:
    manifest = Manifest((Spine(),), (spilled_twice(10_000),))
    assert list(CleanUpInPassing().decide(snapshot(manifest, 8_000))) == []
