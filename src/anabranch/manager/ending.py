"""The steps that follow the end of the input, until everything is answered."""

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
    """The next step to make; None if nothing is left to answer.

    First come rows that were held back, then postponed results. Only then come the answers to rows that waited for the
    end, if any are `unanswered`. Answers of one grouping may be rows of another, for which all of this is done again.
    """
    operators = [view for processor in snapshot.processors for view in processor.operators]
    if any(view.waits for view in operators):
        return EndingStep()
    if any(view.debt is not None for view in operators):
        # What was spilled stays where it is: no row is coming that could meet it.
        return EndingStep(tuple(choose(snapshot, ENDED, back=False)))
    if unanswered:
        return EndingStep(tuple(everything_spilled_of_groupings(snapshot)), answers_all=True)
    return None
