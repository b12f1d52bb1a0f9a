"""The share of the time in which a processor computes, by operator.

    cost of operator k on processor i = CPU time of k on i / time since the last snapshot

It is told by CPU time, not by how long a task took, which also depends on who else wants the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.manager.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class CpuTime:
    """What an operator costs is the share of the time that it computes."""

    def costs(self, snapshot: Snapshot) -> Mapping[int, Mapping[int, float]]:
        """The cost of each operator on each processor; nothing before any time has passed."""
        return {
            view.processor: {
                one.operator: one.cpu / snapshot.seconds if snapshot.seconds > 0 else 0.0 for one in view.operators
            }
            for view in snapshot.processors
        }

    def text(self, cost: float) -> str:
        """A cost for people."""
        return f"{cost:.{0 if cost >= 0.1 else 1}%} of its time"
