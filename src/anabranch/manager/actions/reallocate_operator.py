"""Reallocate an operator: go on with all of it, state included, on one processor (paper 5, section 6.3).

An operator that runs fused with others parts from them by that, so another layout of rounds takes the place of this
one. As with a migration what is applied here is the wish; who carries it out finds it after the step, and does it
between two batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.manager.actions.numbers import to_python_numbers

if TYPE_CHECKING:
    from anabranch.manager.actions.change import Change, Context


@dataclass(frozen=True, slots=True)
class ReallocateOperator:
    """Go on with an operator, by its number and its `name` in events and progress, on one processor.

    What has been decided on may have to wait until it is done, while other plans come into force: then the name counts.
    """

    operator: int
    name: str
    processor: int
    reason: str

    def __post_init__(self) -> None:
        """Refuse what is no number."""
        to_python_numbers(self, "operator", "processor", lists=())

    def problem(self, change: Change, context: Context) -> str | None:
        """Why this makes no sense; None if it does."""
        operators, processors = context.plan.operators, change.distribution.processors
        if not 0 <= self.operator < len(operators) or operators[self.operator].name != self.name:
            return f"there is no operator {self.operator} called {self.name!r}"
        if not 0 <= self.processor < processors:
            return f"processors are numbers from 0 to {processors - 1}, not {self.processor}"
        return None

    def must_wait(self, change: Change, taken: set[int]) -> bool:
        """Whether a query is to migrate, a relocation is under way, or the receiver takes part in another action."""
        moving = bool(change.distribution.moving) or bool(change.migrations)
        return moving or self.processor in taken | change.pushed | change.parties

    def apply(self, change: Change, context: Context) -> None:
        """Note that it is to be carried out."""
        change.reallocations.append(self)
