"""How a processor uses its memory, and when that is too little.

A budget is for all active state of a processor, but not all of it can be pushed to disk: groups that are answered once
per batch, and operators of a user's own, stay where they are. What can be pushed keeps a share of the budget whatever
the rest takes (`KEPT_FOR_SPILLABLE`). Otherwise a grouping that fills the budget by itself would have every group of a
join pushed after every batch: nearly all results postponed, and still no room. So the active state is allowed to be

    max(M, F + M * KEPT_FOR_SPILLABLE)    for a budget of M bytes and F bytes that cannot be pushed

and an event says that the budget is too small if this exceeds it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.manager.memory.budgets import MemoryBudgets
from anabranch.manager.memory.debt import owed_results, owing_groups, results_delivered, waiting_rows
from anabranch.manager.plan_shape import PlanShape
from anabranch.observe.numbers import format_bytes
from anabranch.state.manifest import Manifest

# The share of a budget that state which can be spilled may always take.
KEPT_FOR_SPILLABLE = 0.5
# A processor that pushes after so many steps on end has too little memory for its batches.
STEPS_ON_END = 4


def allowed_bytes(budget: float, unspillable: float) -> float:
    """The active bytes up to which nothing has to be pushed."""
    return max(budget, unspillable + KEPT_FOR_SPILLABLE * budget)


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The state of one processor after a step, in bytes, and the results that are `delivered` or `owed`.

    Of the `active` bytes those of `unspillable` operators, which `fixed` names, cannot be pushed to disk. What is owed
    is `at_most` this much where windows, or groups that wait, allow no better estimate.
    """

    processor: int
    budget: int | None
    active: int
    unspillable: int = 0
    fixed: tuple[str, ...] = ()
    spilled: int = 0
    owing_groups: int = 0
    owed: int = 0
    at_most: bool = False
    delivered: int = 0

    @property
    def postponed(self) -> float:
        """The share of the results so far that is postponed."""
        return self.owed / max(self.owed + self.delivered, 1)

    @property
    def needed(self) -> int:
        """The memory that would hold all state as it is now."""
        return self.active + self.spilled

    @property
    def is_mostly_fixed(self) -> bool:
        """Whether what cannot be pushed leaves less of the budget than what can be pushed may take."""
        return self.budget is not None and allowed_bytes(self.budget, self.unspillable) > self.budget

    @property
    def is_over(self) -> bool:
        """Whether there is more than is allowed."""
        return self.budget is not None and self.active > allowed_bytes(self.budget, self.unspillable)

    def sentence(self) -> str:
        """The sentence that `explain` prints."""
        parts = [format_bytes(self.active)]
        if self.budget is not None:
            parts[0] += f" of a memory of {format_bytes(self.budget)}"
        if self.unspillable and self.budget is not None:
            parts[0] += f" ({format_bytes(self.unspillable)} cannot be pushed to disk: {', '.join(self.fixed)})"
        if self.spilled:
            parts.append(f"{format_bytes(self.spilled)} on disk")
        if self.owed:
            parts.append(self._postponed())
        if self.spilled or self.is_over or self.is_mostly_fixed:
            parts.append(self._enough())
        return "; ".join(parts)

    def lack(self) -> str:
        """The sentence on why there is too little memory: state cannot be pushed, or no policy has pushed it."""
        assert self.budget is not None, "without a budget there is enough"
        if self.is_mostly_fixed:
            return (
                f"{format_bytes(self.unspillable)} of state of processor {self.processor} cannot be pushed to disk "
                f"({', '.join(self.fixed)}), too much for its memory of {format_bytes(self.budget)}: other state keeps "
                f"{format_bytes(int(KEPT_FOR_SPILLABLE * self.budget))} all the same; {self._enough()}"
            )
        return (
            f"processor {self.processor} holds {format_bytes(self.active)} of active state, more than its budget of "
            f"{format_bytes(self.budget)}, and no policy has pushed it to disk; {self._enough()}"
        )

    def keeps_pushing(self) -> str:
        """The sentence that results are postponed batch by batch."""
        return (
            f"processor {self.processor} has pushed state to disk after {STEPS_ON_END} steps on end: "
            f"{self._postponed()}; {self._enough()}"
        )

    def details(self) -> dict[str, Any]:
        """The same numbers as details of an event."""
        return {
            "processor": self.processor,
            "active_bytes": self.active,
            "unspillable_bytes": self.unspillable,
            "spilled_bytes": self.spilled,
            "needed_bytes": self.needed,
            "postponed": round(self.postponed, 3),
        }

    def _postponed(self) -> str:
        how = "at most " if self.at_most else "about "
        return f"{how}{self.postponed:.0%} of its results so far are postponed until clean-up ({how}{self.owed:,})"

    def _enough(self) -> str:
        return f"memory of {format_bytes(self.needed)} would hold all its state as it is now"


def memory_uses(
    plan: PlanShape, memory: MemoryBudgets, manifests: Sequence[Manifest], settled: Sequence[int | None]
) -> tuple[MemoryUse, ...]:
    """How each processor uses its memory, and the results that it owes for lack of it."""
    return tuple(_memory_use(plan, memory, p, manifest, settled) for p, manifest in enumerate(manifests))


def _memory_use(
    plan: PlanShape, memory: MemoryBudgets, processor: int, manifest: Manifest, settled: Sequence[int | None]
) -> MemoryUse:
    count, owed, at_most, unspillable = 0, 0, False, 0
    for operator in plan.operators:
        state = manifest.operators[operator.number]
        if not operator.spillable:
            unspillable += int(state.statistics.bytes.sum())
        owing = owing_groups(operator, state, settled, plan.groups) if state.generations else None
        if owing is None:
            continue
        count += len(owing)
        at_most |= not operator.unbounded
        if operator.grouping is None:
            owed += owed_results(state, plan.groups, len(operator.ports))
        else:
            owed += waiting_rows(state, plan.groups, owing)
    return MemoryUse(
        processor,
        memory.of(processor),
        manifest.bytes,
        unspillable,
        tuple(operator.name for operator in plan.operators if not operator.spillable),
        manifest.spilled_bytes,
        count,
        owed,
        at_most,
        sum(map(results_delivered, manifest.operators)),
    )


class Shortage:
    """Watches the memory of all processors. It reports a shortage once, and again only after it was over."""

    def __init__(self) -> None:
        """Nothing has been reported yet."""
        self._lacking: set[int] = set()
        self._on_end: dict[int, int] = {}

    def messages(self, uses: Sequence[MemoryUse], pushed: Collection[int]) -> list[tuple[str, MemoryUse]]:
        """The messages to report after a step, after which these processors have `pushed` state."""
        messages = []
        for use in uses:
            if use.is_mostly_fixed or use.is_over:
                if use.processor not in self._lacking:
                    messages.append((use.lack(), use))
                self._lacking.add(use.processor)
            else:
                self._lacking.discard(use.processor)
            on_end = self._on_end.get(use.processor, 0) + 1 if use.processor in pushed else 0
            self._on_end[use.processor] = on_end
            if on_end == STEPS_ON_END:
                messages.append((use.keeps_pushing(), use))
        return messages
