"""When there is too little memory, what is said about it, and how often."""

from __future__ import annotations

from dataclasses import replace

from anabranch.manager.memory.memory_use import STEPS_ON_END, MemoryUse, Shortage, allowed_bytes

MIB = 1 << 20
FINE = MemoryUse(0, budget=4 * MIB, active=3 * MIB)
FIXED = replace(FINE, active=5 * MIB, unspillable=3 * MIB, fixed=("groups of A",), spilled=MIB, owed=300, delivered=100)


def test_what_can_be_spilled_keeps_half_of_the_memory() -> None:
    assert allowed_bytes(100, 0) == allowed_bytes(100, 50) == 100
    assert allowed_bytes(100, 80) == 130


def test_state_that_cannot_be_spilled_is_named_once_with_the_memory_that_would_do() -> None:
    shortage = Shortage()
    [(told, use)] = shortage.messages([FIXED], set())
    assert told == (
        "3.0 MiB of state of processor 0 cannot be pushed to disk (groups of A), too much for its memory of 4.0 MiB: "
        "other state keeps 2.0 MiB all the same; memory of 6.0 MiB would hold all its state as it is now"
    )
    assert use.details()["needed_bytes"] == 6 * MIB
    assert shortage.messages([FIXED], set()) == []
    assert shortage.messages([FINE], set()) == []
    assert len(shortage.messages([FIXED], set())) == 1, "again, once it was over"


def test_state_that_no_policy_has_pushed_is_told() -> None:
    [(told, _)] = Shortage().messages([replace(FINE, active=5 * MIB)], set())
    assert "holds 5.0 MiB of active state, more than its budget of 4.0 MiB, and no policy has pushed it to disk" in told


def test_a_processor_that_pushes_step_by_step_says_what_share_of_its_results_is_postponed() -> None:
    shortage, use = Shortage(), replace(FINE, spilled=9 * MIB, owed=300, delivered=100)
    for _ in range(STEPS_ON_END - 1):
        assert shortage.messages([use], {0}) == []
    [(told, _)] = shortage.messages([use], {0})
    assert told == (
        "processor 0 has pushed state to disk after 4 steps on end: about 75% of its results so far are postponed "
        "until clean-up (about 300); memory of 12.0 MiB would hold all its state as it is now"
    )
    assert shortage.messages([use], {0}) == []
    assert shortage.messages([use], set()) == []


def test_explain_says_what_the_memory_is_used_for() -> None:
    assert FINE.sentence() == "3.0 MiB of a memory of 4.0 MiB"
    assert replace(FINE, budget=None).sentence() == "3.0 MiB"
    assert replace(FIXED, at_most=True).sentence() == (
        "5.0 MiB of a memory of 4.0 MiB (3.0 MiB cannot be pushed to disk: groups of A); 1.0 MiB on disk; "
        "at most 75% of its results so far are postponed until clean-up (at most 300); "
        "memory of 6.0 MiB would hold all its state as it is now"
    )
