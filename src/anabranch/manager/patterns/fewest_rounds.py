"""Fewest rounds: no exchange that the keys do not ask for, then an even load, then few edges that cross.

It is ours, and decides by what is known before the start:

1. Operators that can run fused are a family (`OperatorGraph.families`), and are placed alike. The edges inside of
   families then cost no round. All others cost one wherever their ends are, so no pattern needs fewer rounds.
2. What a family will have to do is estimated from fan-in and windows. A row that comes to an operator with m inputs is
   inserted once and probes m - 1 states. A state holds the rows of a window, so each probe counts by the operator's
   window, as a share of the longest one.
3. A family with more to do than a fair share of a processor is spread over all: fused operators that are spread cost
   no more rounds than whole ones. Paper 5 puts 3 of 5 joins on one processor, and loses by that.
4. The others are whole. The heaviest comes first. Each goes where most of its edges do not cross, among the processors
   that have less than a fair share of what is whole; of several to the one with the least to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.manager.patterns.operator_graph import GraphOperator, OperatorGraph


@dataclass(frozen=True, slots=True)
class FewestRounds:
    """As few rounds as the keys allow, with the load as even as that allows."""

    def place(self, graph: OperatorGraph, processors: Sequence[int]) -> Mapping[int, int | None]:
        """The processor of each operator, None for those that are spread."""
        families = graph.families()
        work = dict.fromkeys(sorted(set(families)), 0.0)
        for operator, cost in zip(graph.operators, _work(graph.operators), strict=True):
            work[families[operator.number]] += cost
        fair = sum(work.values()) / len(processors)
        whole = [family for family in work if work[family] <= fair or len(processors) == 1]
        homes = _homes(graph, families, {family: work[family] for family in whole}, processors)
        return {operator.number: homes.get(families[operator.number]) for operator in graph.operators}


def _work(operators: Sequence[GraphOperator]) -> list[float]:
    """How much each operator will have to do, estimated; a single-stream operator has 1."""
    longest = max((window for operator in operators for window in operator.windows if window is not None), default=0)

    def share(operator: GraphOperator) -> float:
        windows = [longest if window is None else window for window in operator.windows]
        return max(windows) / longest if longest else 1.0

    return [op.fan_in + op.fan_in * (op.fan_in - 1) * share(op) for op in operators]


def _homes(
    graph: OperatorGraph, families: Sequence[int], work: Mapping[int, float], processors: Sequence[int]
) -> dict[int, int]:
    """The processor of each of the families that are whole."""
    fair = sum(work.values()) / len(processors)
    load = dict.fromkeys(processors, 0.0)
    homes: dict[int, int] = {}
    edges = [(families[edge.lower], families[edge.upper]) for edge in graph.flow.edges]
    for family in sorted(work, key=lambda family: (-work[family], family)):
        neighbours = [homes.get(a if b == family else b) for a, b in edges if family in (a, b) and a != b]
        fitting = [p for p in processors if load[p] < fair]
        homes[family] = max(fitting or processors, key=lambda p: (neighbours.count(p), -load[p], -p))
        load[homes[family]] += work[family]
    return homes
