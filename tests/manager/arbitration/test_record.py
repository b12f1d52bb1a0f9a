"""What has become of a wish: operators that are to be reallocated are on their way, there, or not going at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.manager.actions import ReallocateOperator
from anabranch.manager.arbitration.proposal import Estimate, Proposal
from anabranch.manager.arbitration.record import PATIENCE, Course, Record
from tests.manager.placed import placed


@pytest.mark.parametrize(
    ("home", "reallocating", "batch", "course"),
    [
        (0, frozenset({"op0"}), 3, Course.WISHED),
        (1, frozenset({"op0"}), 3, Course.DONE),
        (1, frozenset(), 3, Course.DONE),
        (0, frozenset(), 3, Course.REFUSED),  # as when a query migrates: nobody waits for it any more
        (0, None, 3, Course.WISHED),
        (0, None, 2 + PATIENCE, Course.REFUSED),
    ],
)
def test_a_reallocation_is_under_way_as_long_as_somebody_is_to_do_it(
    home: int, reallocating: frozenset[str] | None, batch: int, course: Course
) -> None:
    action = ReallocateOperator(0, "op0", 1, "a test wants it")
    proposal = Proposal("reallocation", (action,), frozenset({0, 1}), Estimate(1.0, 0.5, 20.0))
    record = Record(proposal, 1, 2, 0.0, 0.0, 0.0, 0, None)
    seen = replace(placed([home, 0], 2, cpu=[0.4, 0.4]), reallocating=reallocating)
    assert record.course(seen, batch) is course
