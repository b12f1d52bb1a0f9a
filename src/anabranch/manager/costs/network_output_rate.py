"""The rows that a processor sends to others (paper 5, section 6.2), for each operator there:

    (6.1)  NetworkOutputRate_i = sum of OutputRate_j over the operators j on processor i that send rows to others
    (6.2)  OperatorCost_k      = OutputRate_k / NetworkOutputRate_i, the share of operator k

Rows are sent if an operator that takes them is elsewhere, or if both are spread and run apart. They are not if it runs
fused with the one that makes them, or if both are whole on the same processor. Answers go to no processor.

The unit is rows per row that arrived, so that a batch of another size costs the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.manager.costs.cost_table import home_of
from anabranch.manager.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class NetworkOutputRate:
    """What an operator costs is what it sends to other processors."""

    @property
    def of_sending(self) -> bool:
        """What an operator costs is gone where all are that take its rows."""
        return True

    def costs(self, snapshot: Snapshot) -> Mapping[int, Mapping[int, float]]:
        """The cost of each operator on each processor."""
        sending = _sending(snapshot)
        return {
            view.processor: {
                one.operator: one.results / max(snapshot.arrived, 1) if one.operator in sending else 0.0
                for one in view.operators
            }
            for view in snapshot.processors
        }

    def text(self, cost: float) -> str:
        """A cost for people."""
        return f"{cost:.2f} rows sent per row that arrives"


def _sending(snapshot: Snapshot) -> set[int]:
    """The operators whose rows go to another processor."""
    families = snapshot.plan.families
    sending = set()
    for upper in snapshot.plan.operators:
        for lower in (number for edge in upper.edges for number in edge.operators):
            homes = {home_of(snapshot, lower), home_of(snapshot, upper.number)}
            together = families[lower] == upper.family or (None not in homes and len(homes) == 1)
            if not together:
                sending.add(lower)
    return sending
