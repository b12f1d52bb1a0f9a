"""The share of its memory that a processor has used (paper 5, section 6.1 and figure 6.1).

    cost of operator k on processor i = bytes of k's active state on i / memory of i

A processor without a budget is compared with all state there is: its cost is then its share of that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.manager.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class MemoryShare:
    """What an operator costs is the share of its processor's memory that its active state takes."""

    def costs(self, snapshot: Snapshot) -> Mapping[int, Mapping[int, float]]:
        """The cost of each operator on each processor."""
        everything = max(sum(view.active_bytes for view in snapshot.processors), 1)
        return {
            view.processor: {one.operator: one.active_bytes / (view.memory or everything) for one in view.operators}
            for view in snapshot.processors
        }

    def text(self, cost: float) -> str:
        """A cost for people."""
        return f"{cost:.{0 if cost >= 0.1 else 1}%} of its memory"
