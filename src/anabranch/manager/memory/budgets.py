"""Memory budgets: how much active state each processor may have. There is one for all, unless a processor has its
own."""

from __future__ import annotations


class MemoryBudgets:
    """Budgets in bytes; None is no limit."""

    def __init__(self, everybody: int | None) -> None:
        """Give all processors the same budget at first."""
        self._everybody = everybody
        self._own: dict[int, int | None] = {}

    def of(self, processor: int) -> int | None:
        """The budget of a processor."""
        return self._own.get(processor, self._everybody)

    @property
    def is_limited(self) -> bool:
        """Whether any processor may have a budget."""
        return any(budget is not None for budget in (self._everybody, *self._own.values()))

    def set_budget(self, budget: int | None, processor: int | None) -> None:
        """Give a processor another budget from now on, or all processors if `processor` is None."""
        if processor is None:
            self._everybody, self._own = budget, {}
        else:
            self._own[processor] = budget
