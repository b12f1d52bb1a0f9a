"""Part an operator from those that it runs fused with, and diffuse groups of it.

Operators that run fused have a partition group at one and the same processor, so one of them has to run by itself
before its groups can be diffused. That takes another layout of rounds. As with a reallocation what is applied here is
the wish; who carries it out finds it after the step, and does both between two batches, in one step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.manager.actions.diffuse_groups import DiffuseGroups
from anabranch.manager.actions.numbers import to_python_numbers
from anabranch.manager.diffusable import is_busy, parties

if TYPE_CHECKING:
    from anabranch.manager.actions.change import Change, Context


@dataclass(frozen=True, slots=True)
class PartOperator:
    """Set an operator apart, by its number and its `name` in events and progress, and do its `diffusions`.

    It joins the others again when none of its groups is diffused any more.
    """

    operator: int
    name: str
    diffusions: tuple[DiffuseGroups, ...]
    reason: str

    def __post_init__(self) -> None:
        """Refuse what is no number."""
        to_python_numbers(self, "operator", lists=())

    def problem(self, change: Change, context: Context) -> str | None:
        """Why this makes no sense; None if it does."""
        plan = context.plan
        if not 0 <= self.operator < len(plan.operators) or plan.operators[self.operator].name != self.name:
            return f"there is no operator {self.operator} called {self.name!r}"
        if self.operator not in plan.partable:
            return f"the {self.name} is no join that runs fused with others, or a query migrates"
        if not self.diffusions or any(action.operator != self.operator for action in self.diffusions):
            return f"to set the {self.name} apart is for diffusing groups of it, and of nothing else"
        return next(filter(None, (action.flaw(change, context) for action in self.diffusions)), None)

    def must_wait(self, change: Change, taken: set[int]) -> bool:
        """Whether a query is to migrate, an operator to go elsewhere, groups are on their way, a processor takes part
        in another action, or state of the groups is not active."""
        if change.distribution.moving or change.migrations or change.reallocations:
            return True
        return any(action.obstacle(change) for action in self.diffusions) or is_busy(
            change, taken | change.parties, {*self._involved(change)}
        )

    def apply(self, change: Change, context: Context) -> None:
        """Note that it is to be carried out; until then others leave the processors alone."""
        change.reshared |= {*self._involved(change)}
        change.reallocations.append(self)

    def _involved(self, change: Change) -> Iterator[int]:
        """The processors that have a part in the groups, or are to have one."""
        for action in self.diffusions:
            yield from parties(change, self.operator, action.groups)
            yield from action.hosts
