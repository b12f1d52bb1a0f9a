"""Which cluster each query is in: as a program wants it, and as it is.

What a program wants of a query is a cluster by name, or nothing. If it wants nothing, what was assigned when the query
began is wanted from then on, so that queries which are removed, or begin later, change nothing for the others, unless
they share operators.

A query is where its own operators are: those that it shares with no query before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from anabranch.errors import ConfigError
from anabranch.manager.patterns.operator_graph import OperatorGraph
from anabranch.manager.tiers.clusters import Clusters
from anabranch.plan.allocation import KnownAllocation
from anabranch.plan.placement import Placement


def wanted(graph: OperatorGraph, clusters: Clusters | None, known: KnownAllocation | None) -> OperatorGraph:
    """The graph with the cluster that the program wants each query in, as far as that is known."""
    if clusters is None or known is None:
        return graph
    before = homes(graph, clusters, known.wanted)
    wishes = {query: before.get(query) if wish is None else wish for query, wish in graph.wishes.items()}
    return replace(graph, wishes=wishes)


def at_home(graph: OperatorGraph, clusters: Clusters | None, known: KnownAllocation) -> OperatorGraph:
    """The graph in which each query wants to be in the cluster where it is, so that its new operators go there."""
    if clusters is None:
        return graph
    now = homes(graph, clusters, known.placements)
    return replace(graph, wishes={query: now.get(query, wish) for query, wish in graph.wishes.items()})


def check_stays(
    graph: OperatorGraph, clusters: Clusters | None, placements: Sequence[Placement], name: str, wish: str | None
) -> None:
    """Refuse another query in the place of the one of this name that wants to be in another cluster, since it goes on
    with the state of that one where this lies. `placements` are those of operators now."""
    if clusters is None or wish is None or wish == graph.wishes.get(name):
        return
    now = homes(graph, clusters, {op.identity: placements[op.number] for op in graph.operators}).get(name)
    if now is not None and wish != now:
        raise ConfigError(
            f"the query {name!r} is in {clusters.text(now)}, and another one in its place goes on there; leave "
            f"cluster={wish!r} out, and move it with run.send({name!r}, to={wish!r})"
        )


def homes(graph: OperatorGraph, clusters: Clusters, placements: Mapping[str, Placement]) -> dict[str, str]:
    """The cluster of each query, by the placements of operators; a query that has no operators there is left out."""
    found: dict[str, str] = {}
    for operator in graph.operators:
        placement = placements.get(operator.identity)
        cluster = None if placement is None else clusters.of_processors(placement)
        if cluster is not None and operator.owner is not None:
            found.setdefault(operator.owner, cluster)
    return found


def holds(clusters: Clusters | None, known: KnownAllocation) -> bool:
    """Whether every operator of an allocation is within one cluster, and stays there."""
    return clusters is None or (
        known.processors == clusters.count
        and all(
            clusters.of_processors(known.hosts.get(name, frozenset(placement))) is not None
            for name, placement in known.placements.items()
        )
    )
