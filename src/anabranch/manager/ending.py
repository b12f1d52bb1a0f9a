"""Which steps are made when the input has ended, one after the other, until everything is answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.manager.actions import CleanUpGroups
from anabranch.manager.policies.clean_up import ENDED, choose, everything_spilled_of_groupings
from anabranch.manager.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class EndingStep:
    """A step without a batch: what it cleans up, and whether it takes the input for ended."""

    clean_up: Sequence[CleanUpGroups] = ()
    answers_all: bool = False


def next_ending_step(snapshot: Snapshot, *, unanswered: bool) -> EndingStep | None:
    """The next step to be made; None if nothing is left to answer.

    First rows go on that were held back, then postponed results are delivered. Only then are rows answered that waited
    for the end, if there are any `unanswered`: what groups answer may be rows of other groups, for which all of this is
    done again.
    """
    operators = [seen for processor in snapshot.processors for seen in processor.operators]
    if any(seen.waits for seen in operators):
        return EndingStep()
    if any(seen.debt is not None for seen in operators):
        # What was spilled stays where it is: no row is coming that could meet it.
        return EndingStep(tuple(choose(snapshot, ENDED, back=False)))
    if unanswered:
        return EndingStep(tuple(everything_spilled_of_groupings(snapshot)), answers_all=True)
    return None
