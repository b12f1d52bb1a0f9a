"""How much is cleaned up at once, and what has room to come back: decisions on made-up state."""

from __future__ import annotations

from anabranch.manager.budgets import Memory
from anabranch.manager.clean_up import Cleaning
from anabranch.observe.events import EventLog
from anabranch.state.generation import Generation
from anabranch.state.groups import GroupSet
from anabranch.state.manifest import Manifest, OperatorState
from anabranch.state.run import RunFile
from anabranch.state.spine import Slice, Spine
from tests.manager.snapshots import known_operator, statistics

GROUPS = 16


def spilled_twice(size: int) -> OperatorState:
    """An operator with two generations, in which every group has so many bytes."""
    pieces = (Slice(RunFile("spilled", GROUPS, GROUPS * size, 0, None, None), 0, GROUPS),)
    everything = GroupSet.all(GROUPS)
    sizes, produced = (size,) * GROUPS, (1,) * GROUPS
    return OperatorState(generations=tuple(Generation(n, everything, None, (pieces,), sizes, produced) for n in (1, 2)))


def holding(size: int) -> tuple[Spine, OperatorState]:
    """An operator with so many active bytes in one group."""
    active = statistics([size])
    return Spine().insert(RunFile("active", 1, size, 0, None, None)), OperatorState(statistics=active)


def test_a_step_of_clean_up_reads_some_mebibytes_however_small_the_memory_is() -> None:
    manifest = Manifest((Spine(),), (spilled_twice(10_000),))
    cleaning = Cleaning([known_operator(0)], GROUPS, Memory(8_000), EventLog())
    chosen = cleaning.choose([manifest], (), "of a test", back=True)
    assert len(chosen[0].groups) == GROUPS, "not one group after the other"
    assert len(chosen[0].back) == 0


def test_a_step_of_clean_up_reads_no_more_than_the_memory_holds() -> None:
    manifest = Manifest((Spine(),), (spilled_twice(2 << 20),))
    cleaning = Cleaning([known_operator(0)], GROUPS, Memory(16 << 20), EventLog())
    assert len(cleaning.choose([manifest], (), "of a test", back=True)[0].groups) == 4


def test_what_comes_back_has_room_beside_state_that_cannot_be_spilled() -> None:
    spine, fixed = holding(20_000)
    manifest = Manifest((spine, Spine()), (fixed, spilled_twice(500)))
    operators = [known_operator(0, spillable=False), known_operator(1)]
    cleaning = Cleaning(operators, GROUPS, Memory(10_000), EventLog())
    chosen = cleaning.choose([manifest], (), "of a test", back=True)
    assert len(chosen[1].groups) == GROUPS
    assert len(chosen[1].back) == 3, "70% of half of the memory"
