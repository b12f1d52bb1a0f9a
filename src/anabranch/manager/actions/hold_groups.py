"""Let rows of partition groups wait in the next step, in the buffer of their processor (paper 2, section 5.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.manager.actions.numbers import to_python_numbers
from anabranch.manager.diffusable import diffused_among
from anabranch.state.groups import GroupSet, union_by_operator

if TYPE_CHECKING:
    from anabranch.manager.actions.change import Change, Context


@dataclass(frozen=True, slots=True)
class HoldGroups:
    """Let all rows of some partition groups wait in the next step: those that arrive, and those that wait already."""

    processor: int
    family: int
    groups: tuple[int, ...]
    reason: str

    def __post_init__(self) -> None:
        """Refuse what is no number."""
        to_python_numbers(self, "processor", "family")

    def problem(self, change: Change, context: Context) -> str | None:
        """Why this makes no sense; None if it does."""
        possible = context.plan.members(self.family) and context.plan.has_groups(self.groups)
        return None if possible else "it is not there"

    def must_wait(self, change: Change, taken: set[int]) -> bool:
        """Whether a group is diffused: several processors have a part in it, so its rows cannot wait at one."""
        is_there = 0 <= self.family < len(change.distribution.routings)
        return is_there and bool(diffused_among(change, self.family, self.groups))

    def apply(self, change: Change, context: Context) -> None:
        """Note the groups for the next step. No event tells of it: rows that wait are shown as progress."""
        groups = GroupSet.of(context.plan.groups, self.groups)
        change.hold = union_by_operator(change.hold, dict.fromkeys(context.plan.members(self.family), groups))
