"""Graphs of operators for patterns: chains, trees of joins, and whatever chance makes of edges and keys."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from anabranch.manager.patterns.operator_graph import GROUPS, JOIN, GraphOperator, OperatorGraph
from anabranch.plan.rounds import Dataflow, Edge

SECOND = 1_000_000


def graph_of(
    feeds: Sequence[Sequence[int]], keys: Sequence[object] | None = None, queries: Sequence[str] | None = None
) -> OperatorGraph:
    """Operators by what feeds them; two inputs more than that make a join of what nothing feeds."""
    operators = tuple(
        GraphOperator(
            number=n,
            identity=f"op{n}",
            kind=JOIN if len(below) != 1 else GROUPS,
            windows=(SECOND,) * (1 if len(below) == 1 else max(len(below), 2)),
            queries=("q" if queries is None else queries[n],),
        )
        for n, below in enumerate(feeds)
    )
    edges = [Edge(lower, n, port) for n, below in enumerate(feeds) for port, lower in enumerate(below)]
    return OperatorGraph(operators, Dataflow(tuple(keys or [0] * len(feeds)), tuple(edges)))


def chain(length: int) -> OperatorGraph:
    """Each operator above the one before."""
    return graph_of([[n - 1] if n else [] for n in range(length)])


@st.composite
def graphs(draw: st.DrawFn, most: int = 12) -> OperatorGraph:
    """A DAG: an operator has up to three others below it, on one of three keys, for one of two queries."""
    count = draw(st.integers(1, most))
    feeds = [sorted(draw(st.sets(st.integers(0, n - 1), max_size=3))) if n else [] for n in range(count)]
    keys = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    queries = draw(st.lists(st.sampled_from(["a", "b"]), min_size=count, max_size=count))
    return graph_of(feeds, keys, queries)
