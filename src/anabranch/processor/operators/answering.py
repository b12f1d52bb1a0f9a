"""What a grouping answers in a step on one processor: most groups go on together, lagging ones each at their own time.

Rows of a group that wait when the step begins may come in it, but what comes in a step is answered in the next at the
earliest. So such a group is left out, whether or not its rows still wait afterwards (`state.lagging`). A group whose
rows begin to wait could be answered once more, but a processor that is late is to have less to do now: so it is left
out as well, unless it is behind already. That way a group whose rows wait in every other step is answered in between.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from anabranch.kernel.operator import Settled
from anabranch.state.groups import GroupSet
from anabranch.state.lagging import Lagging, among, answered, by_time, oldest, union_of
from anabranch.state.manifest import OperatorState
from anabranch.state.runs.slice import Cuts
from anabranch.state.spill import present_groups

# Groups, and what is settled for them.
SettledGroups = tuple[GroupSet, Settled]


@dataclass(frozen=True, slots=True)
class Answering:
    """What a grouping answers in a step: `settled` holds for most groups; `settled_groups` has every group, with what
    is settled for it, the groups that go on together first.

    After the step some groups are `lagging`, and rows of some are still `waiting`.
    """

    settled: Settled
    settled_groups: tuple[SettledGroups, ...]
    lagging: Lagging
    waiting: GroupSet

    @classmethod
    def together(cls, settled: Settled, count: int) -> Answering:
        """All groups are answered up to the same time."""
        return cls(settled, ((GroupSet.all(count), settled),), (), GroupSet(count, 0))

    @classmethod
    def of(cls, before: OperatorState, after: OperatorState, settled: Settled, count: int, cuts: Cuts) -> Answering:
        """The answering of a grouping, from its state before the step and `after` it was decided which rows wait."""
        if not (before.held or before.lagging or after.held):
            return cls.together(settled, count)
        waited, waiting = (_groups_held(state, count, cuts) for state in (before, after))
        everybody = GroupSet.all(count)
        due = among(before.lagging, everybody - waited)
        resting = waited | (waiting - union_of(due, count))
        left_out = answered(before.lagging, resting, settled.since)
        settled_groups = [
            (everybody - resting - union_of(due, count), settled),
            *((groups, Settled(since, settled.until)) for groups, since in due),
            *((groups, Settled(since, since)) for groups, since in left_out),
        ]
        lagging = by_time((*left_out, (waiting - resting, settled.until)))
        return cls(settled, tuple(settled_groups), lagging, waiting)

    @property
    def settled_by_group(self) -> Settled:
        """What is settled, group by group."""
        return replace(self.settled, others=self.settled_groups[1:])

    @property
    def settled_afterwards(self) -> Settled:
        """What is settled after the step, group by group."""
        return replace(self.settled, others=tuple((groups, Settled(None, time)) for groups, time in self.lagging))

    @property
    def settled_for_all(self) -> Settled:
        """What is settled for every group."""
        return Settled(oldest(self.lagging, self.settled.since), oldest(self.lagging, self.settled.until))

    def of_groups(self, groups: GroupSet) -> list[SettledGroups]:
        """The time up to which each of some groups can be answered once the rows of the step are in the state."""
        until = self.settled.until
        waiting = answered(self.lagging, groups & self.waiting, until)
        by_answered = by_time((*waiting, (groups - self.waiting, until)))
        return [(own, replace(self.settled, until=time)) for own, time in by_answered]

    def lagging_after(self, answered_now: GroupSet) -> Lagging:
        """The groups that are lagging after the step, given those that clean-up has `answered_now`, up to the end."""
        everybody = GroupSet.all(answered_now.count)
        return among(self.lagging, everybody - (answered_now - self.waiting))


def _groups_held(state: OperatorState, count: int, cuts: Cuts) -> GroupSet:
    """The groups of which rows wait; where slices name their groups no file is opened."""
    waiting = GroupSet(count, 0)
    for piece in (piece for slices in state.held for piece in slices):
        waiting |= piece.groups or present_groups([piece], count, cuts)
    return waiting
