"""How much active state each processor may have: one budget for all, unless a processor was given its own."""

from __future__ import annotations


class Memory:
    """Budgets in bytes; None is no limit."""

    def __init__(self, everybody: int | None) -> None:
        """The same for everybody, at first."""
        self._everybody = everybody
        self._own: dict[int, int | None] = {}

    def of(self, processor: int) -> int | None:
        """The budget of a processor."""
        return self._own.get(processor, self._everybody)

    def give(self, budget: int | None, processor: int | None) -> None:
        """Give a processor another budget from now on; None is everybody."""
        if processor is None:
            self._everybody, self._own = budget, {}
        else:
            self._own[processor] = budget
