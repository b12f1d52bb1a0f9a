"""What a grouping answers in a step on one processor: most groups go on together, those that are overdue by themselves.

Rows of a group that wait when the step begins may come in it, but what comes in a step is answered in the next at the
earliest. So such a group is left out, whether or not its rows still wait afterwards (`state.lagging`). A group whose
rows begin to wait could be answered once more, but a processor that is late is to have less to do now: so it is left
out as well, unless it is behind already. That way a group whose rows wait in every other step is answered in between.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from anabranch.kernel.operator import Settled
from anabranch.state.groups import GroupSet
from anabranch.state.lagging import Overdue, among, answered, by_time, oldest, union_of
from anabranch.state.manifest import OperatorState
from anabranch.state.slice import Cuts
from anabranch.state.spill import present_groups

# Groups, and what is settled for them.
Share = tuple[GroupSet, Settled]


@dataclass(frozen=True, slots=True)
class Answering:
    """What is settled for most groups, and for each, first for those that go on together; the groups that are `overdue`
    after the step, and those of which rows are still `waiting` then."""

    settled: Settled
    shares: tuple[Share, ...]
    overdue: Overdue
    waiting: GroupSet

    @classmethod
    def together(cls, settled: Settled, count: int) -> Answering:
        """No group is left out."""
        return cls(settled, ((GroupSet.all(count), settled),), (), GroupSet(count, 0))

    @classmethod
    def of(cls, before: OperatorState, after: OperatorState, settled: Settled, count: int, cuts: Cuts) -> Answering:
        """Of a grouping, before the step and after it was decided which rows wait."""
        if not (before.held or before.overdue or after.held):
            return cls.together(settled, count)
        waited, waiting = (_groups_held(state, count, cuts) for state in (before, after))
        everybody = GroupSet.all(count)
        due = among(before.overdue, everybody - waited)
        resting = waited | (waiting - union_of(due, count))
        left_out = answered(before.overdue, resting, settled.since)
        shares = [
            (everybody - resting - union_of(due, count), settled),
            *((groups, Settled(since, settled.until)) for groups, since in due),
            *((groups, Settled(since, since)) for groups, since in left_out),
        ]
        overdue = by_time((*left_out, (waiting - resting, settled.until)))
        return cls(settled, tuple(shares), overdue, waiting)

    @property
    def by_group(self) -> Settled:
        """What is settled, group by group."""
        return replace(self.settled, others=self.shares[1:])

    @property
    def afterwards(self) -> Settled:
        """What is settled after the step, group by group."""
        return replace(self.settled, others=tuple((groups, Settled(None, time)) for groups, time in self.overdue))

    @property
    def by_all(self) -> Settled:
        """What is settled for every group."""
        return Settled(oldest(self.overdue, self.settled.since), oldest(self.overdue, self.settled.until))

    def of_groups(self, groups: GroupSet) -> list[Share]:
        """Up to where some groups can be answered when all that comes in the step is there."""
        until = self.settled.until
        waiting = answered(self.overdue, groups & self.waiting, until)
        found = by_time((*waiting, (groups - self.waiting, until)))
        return [(own, replace(self.settled, until=time)) for own, time in found]

    def left(self, answered_now: GroupSet) -> Overdue:
        """The groups that are overdue after the step, in which some were answered up to the end."""
        everybody = GroupSet.all(answered_now.count)
        return among(self.overdue, everybody - (answered_now - self.waiting))


def _groups_held(state: OperatorState, count: int, cuts: Cuts) -> GroupSet:
    """The groups of which rows wait; where slices name their groups no file is opened."""
    found = GroupSet(count, 0)
    for piece in (piece for slices in state.held for piece in slices):
        found |= piece.groups or present_groups([piece], count, cuts)
    return found
