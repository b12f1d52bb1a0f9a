"""Grouping: neighbours together, on a processor that has fewer operators than the average (paper 5, algorithm 3).

A processor is filled from a leaf upwards: the leaf, its parent, what else is below the parent if all of that fits, the
next parent. When there is no parent left it goes on with another leaf. When the processor is full the next one is
filled. A processor has at most as many operators as the average, rounded up, so the last ones may have none. A chain of
operators is cut as often as there are further processors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.manager.patterns.operator_graph import OperatorGraph


@dataclass(frozen=True, slots=True)
class Grouping:
    """Whole operators, query by query, in groups of neighbours, one group after the other on a processor."""

    def place(self, graph: OperatorGraph, processors: Sequence[int]) -> Mapping[int, int]:
        """The processor of each operator."""
        most = -(-len(graph.operators) // len(processors))
        return {number: processors[nth // most] for nth, number in enumerate(_in_groups(graph, most))}


def _in_groups(graph: OperatorGraph, most: int) -> list[int]:
    """The operators in an order of which each `most` that follow each other make a group."""
    taken: list[int] = []
    left = dict.fromkeys(graph.by_query())

    def take(number: int) -> None:
        taken.append(number)
        del left[number]

    while left:
        leaf = next(number for number in left if not any(lower in left for lower in graph.below(number)))
        at: int | None = leaf
        while at is not None:
            room = most - len(taken) % most
            beside = [number for number in _descendants(graph, at) if number in left]
            if len(beside) < room:
                for number in beside:
                    take(number)
            take(at)
            full = len(taken) % most == 0
            at = None if full else next((upper for upper in graph.above(at) if upper in left), None)
    return taken


def _descendants(graph: OperatorGraph, number: int) -> list[int]:
    """The operators below an operator, lower ones first."""
    found, queue = set[int](), [number]
    while queue:
        for lower in graph.below(queue.pop()):
            if lower not in found:
                found.add(lower)
                queue.append(lower)
    return sorted(found)
