"""Spread: every operator on all processors, a block of partition groups on each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.manager.patterns.operator_graph import OperatorGraph


@dataclass(frozen=True, slots=True)
class Spread:
    """Every operator is on all processors."""

    def place(self, graph: OperatorGraph, processors: Sequence[int]) -> Mapping[int, None]:
        """All operators, everywhere."""
        return {operator.number: None for operator in graph.operators}
