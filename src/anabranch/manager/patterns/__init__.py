"""Distribution patterns: where operators are when a query begins (paper 5, section 5.1). One small file each.

    operator_graph  what is known of operators before they run: kinds, windows, fan-in, edges, rounds
    pattern         what a pattern is, whether what it gives is valid, and the placements that follow from it
    spread          every operator on all processors
    round_robin     whole operators, fewest first (algorithm 2)
    grouping        whole operators, neighbours together (algorithm 3)
    fewest_rounds   what can run fused stays together, and what is too much for one processor is spread
    tier            clusters of processors, each with a pattern inside of it
    named           patterns by name

A pattern is any object with `place(graph, processors)`: for each operator, by number, the processor that it is whole
on, several that it is spread over, or None for all of them. Patterns know nothing of what operators cost while they
run, and redistribution, which does, nothing of patterns.
"""

from __future__ import annotations

from anabranch.manager.patterns.fewest_rounds import FewestRounds
from anabranch.manager.patterns.grouping import Grouping
from anabranch.manager.patterns.operator_graph import GraphOperator, OperatorGraph
from anabranch.manager.patterns.pattern import Pattern
from anabranch.manager.patterns.round_robin import RoundRobin
from anabranch.manager.patterns.spread import Spread
from anabranch.manager.patterns.tier import Tier

__all__ = ["FewestRounds", "GraphOperator", "Grouping", "OperatorGraph", "Pattern", "RoundRobin", "Spread", "Tier"]
