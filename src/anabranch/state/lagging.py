"""Groups that are behind the others of their grouping, since rows of theirs wait.

The answer to a row is known when all rows before it are there. Rows of a group that are held back stand in the way of
that group's answers, and of no other's: so the others are answered, and what is remembered is the time up to which each
group that was left out has been. A group is left out of a step if rows of it wait when the step begins, or begin to in
it. When none does any more it is answered from where it was, and is one of the others again.
"""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.state.groups import GroupSet

# Groups, and the time up to which they were answered; None if they never were. No group stands in it twice.
Overdue = tuple[tuple[GroupSet, int | None], ...]


def by_time(pairs: Iterable[tuple[GroupSet, int | None]]) -> Overdue:
    """One entry for each time, without those that have no groups."""
    found: dict[int | None, GroupSet] = {}
    for groups, time in pairs:
        if groups:
            found[time] = found[time] | groups if time in found else groups
    return tuple((groups, time) for time, groups in found.items())


def among(overdue: Overdue, groups: GroupSet) -> Overdue:
    """What is known of some groups."""
    return by_time((own & groups, time) for own, time in overdue)


def union_of(overdue: Overdue, count: int) -> GroupSet:
    """All groups that are overdue, of so many that there are."""
    return GroupSet(count, sum(groups.bits for groups, _ in overdue))


def answered(overdue: Overdue, groups: GroupSet, otherwise: int | None) -> Overdue:
    """Up to which time each of some groups was answered: `otherwise`, if it is not overdue."""
    known = among(overdue, groups)
    return by_time((*known, (groups - union_of(known, groups.count), otherwise)))


def oldest(overdue: Overdue, otherwise: int | None) -> int | None:
    """Up to which time all groups were answered; None if some never were."""
    times = [otherwise, *(time for _, time in overdue)]
    known = [time for time in times if time is not None]
    return min(known) if len(known) == len(times) else None
