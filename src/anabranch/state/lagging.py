"""Lagging groups: answered less far than the other groups of their grouping, since rows of theirs wait.

The answer to a row is known when all rows before it are there. Rows of a group that are held back stand in the way of
that group's answers, and of no other's: so the others are answered, and what is remembered is the time up to which each
group that was left out has been. A group is left out of a step if rows of it wait when the step begins, or begin to in
it. When none does any more it is answered from where it was, and is one of the others again.
"""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.state.groups import GroupSet

# Groups, and the time up to which they were answered; None if they never were. No group stands in it twice.
Lagging = tuple[tuple[GroupSet, int | None], ...]


def by_time(pairs: Iterable[tuple[GroupSet, int | None]]) -> Lagging:
    """One entry for each time, without those that have no groups."""
    groups_at: dict[int | None, GroupSet] = {}
    for groups, time in pairs:
        if groups:
            groups_at[time] = groups_at[time] | groups if time in groups_at else groups
    return tuple((groups, time) for time, groups in groups_at.items())


def among(lagging: Lagging, groups: GroupSet) -> Lagging:
    """The lagging groups that are among these."""
    return by_time((own & groups, time) for own, time in lagging)


def union_of(lagging: Lagging, count: int) -> GroupSet:
    """The set of all lagging groups; there are `count` groups in all."""
    return GroupSet(count, sum(groups.bits for groups, _ in lagging))


def answered(lagging: Lagging, groups: GroupSet, otherwise: int | None) -> Lagging:
    """The time up to which each of some groups was answered: `otherwise`, if it is not lagging."""
    own = among(lagging, groups)
    return by_time((*own, (groups - union_of(own, groups.count), otherwise)))


def oldest(lagging: Lagging, otherwise: int | None) -> int | None:
    """The time up to which all groups were answered; None if some never were."""
    times = [otherwise, *(time for _, time in lagging)]
    past = [time for time in times if time is not None]
    return min(past) if len(past) == len(times) else None
