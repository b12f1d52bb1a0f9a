"""The six steps of a reallocation come in their order, and each once."""

from __future__ import annotations

import pytest

from anabranch.errors import AnabranchError
from anabranch.manager.allocation.reallocation import Reallocation, ReallocationStep


def test_the_six_steps_come_in_their_order() -> None:
    reallocation = Reallocation(("join of A, B",), "it was asked for")
    for time, step in enumerate(ReallocationStep):
        assert not reallocation.is_done
        reallocation = reallocation.make(step, float(time))
    assert reallocation.is_done
    assert [(step.text, time) for step, time in reallocation.made] == [
        ("notify", 0.0),
        ("connect parents", 1.0),
        ("connect children", 2.0),
        ("deactivate", 3.0),
        ("send state", 4.0),
        ("activate", 5.0),
    ]


@pytest.mark.parametrize("step", [step for step in ReallocationStep if step is not ReallocationStep.DEACTIVATE])
def test_a_step_out_of_order_tells_the_whole_story(step: ReallocationStep) -> None:
    connected = Reallocation(("join of A, B",), "it was asked for")
    for earlier in list(ReallocationStep)[:3]:
        connected = connected.make(earlier, 1.0)
    with pytest.raises(AnabranchError, match=rf"cannot '{step.text}' now; .*connect children at 1\.000"):
        connected.make(step, 2.0)
