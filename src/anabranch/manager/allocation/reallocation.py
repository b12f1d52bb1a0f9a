"""Reallocation (paper 5, section 6.3 and algorithm 6) as a state machine of six steps, without any I/O.

    1 notify            the new processors are told that they will have the operators
    2 connect parents   from there to where results go, so that they can flow as soon as the operators run
    3 connect children  what feeds the operators is sent to the new processors from now on
    4 deactivate        at the old processors: all that came there has been worked on
    5 send state        the new processors have what the old ones had
    6 activate          the old connections are gone, and the operators run

On Spark the driver speaks for all of them. Connections are the rounds of a plan and its routings: those to the new
processors are compiled while the operators still answer at the old ones (1 to 3). Between two batches nothing is in
flight, so the operators have stopped at a batch boundary, and their results are with their parents already (4). On
shared storage sending state is an edit of manifests (5). The operators run at their new place with the next batch (6).

One commit, between 5 and 6, decides: a crash before it leaves all at the old place, a crash after it all at the new
one. The order of rows is kept, since no row is between two places at a batch boundary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

from anabranch.errors import AnabranchError


class ReallocationStep(IntEnum):
    """The steps of a reallocation, by their number in paper 5."""

    NOTIFY = 1
    CONNECT_PARENTS = 2
    CONNECT_CHILDREN = 3
    DEACTIVATE = 4
    SEND_STATE = 5
    ACTIVATE = 6

    @property
    def text(self) -> str:
        """The step for people."""
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True, slots=True)
class Reallocation:
    """Operators on their way to other processors, and when each step was made."""

    operators: tuple[str, ...]
    reason: str
    made: tuple[tuple[ReallocationStep, float], ...] = ()

    @property
    def last(self) -> ReallocationStep | None:
        """The step that was made last."""
        return self.made[-1][0] if self.made else None

    @property
    def is_done(self) -> bool:
        """Whether the operators run at the new place."""
        return self.last is ReallocationStep.ACTIVATE

    def make(self, step: ReallocationStep, time: float) -> Reallocation:
        """Make a step. If it is not the next one, an error shows all steps so far."""
        if step != (self.last or 0) + 1:
            story = ", ".join(f"{made.text} at {at:.3f}" for made, at in self.made) or "nothing so far"
            raise AnabranchError(f"a reallocation cannot {step.text!r} now; what happened: {story}. {self.operators}")
        return replace(self, made=(*self.made, (step, time)))
