"""Round robin: each operator in turn on the processor that has the fewest (paper 5, algorithm 2).

Every processor has as many operators as any other, or one less. Neighbours are on different processors, so nearly every
edge crosses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.manager.patterns.operator_graph import OperatorGraph


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """Whole operators, query by query, each on the processor with the fewest."""

    def place(self, graph: OperatorGraph, processors: Sequence[int]) -> Mapping[int, int]:
        """The processor of each operator; of several with the fewest it is the first."""
        workload = dict.fromkeys(processors, 0)
        homes = {}
        for number in graph.by_query():
            homes[number] = min(processors, key=workload.__getitem__)
            workload[homes[number]] += 1
        return homes
