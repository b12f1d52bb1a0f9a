"""Tier: queries are put on clusters of processors, and a pattern places the operators of each inside of its cluster
(paper 5, section 4.2).

The higher of the two managers decides per query, in the order in which queries began: the cluster that the query
wants, and else the one that has the fewest operators per processor by then. So a query that comes later changes nothing
for those before it. An operator that several queries share is in the cluster of the first of them.

The lower manager is any other pattern. It sees the operators of its cluster and its processors, as if there were no
others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.errors import ConfigError
from anabranch.manager.patterns.named import pattern_of
from anabranch.manager.patterns.operator_graph import OperatorGraph
from anabranch.manager.patterns.pattern import Pattern, Where, check_placed
from anabranch.manager.patterns.spread import Spread
from anabranch.manager.tiers.clusters import Clusters, checked_clusters


@dataclass(frozen=True, slots=True)
class Tier:
    """Queries on clusters of processors, each of which adapts by itself.

    Args:
        clusters: the processors of each cluster, by its name; together they are all processors, each once.
        pattern: how the operators in a cluster are placed over its processors: a pattern or its name.
    """

    clusters: Mapping[str, Sequence[int]]
    pattern: Pattern | str = field(default_factory=Spread)

    def __post_init__(self) -> None:
        """Refuse what makes no sense at once, and keep the clusters as they are now."""
        object.__setattr__(self, "clusters", checked_clusters(self.clusters).named)
        if isinstance(pattern_of(self.pattern), Tier):
            raise ConfigError("the pattern inside of a cluster places operators over processors; it cannot be a Tier")

    def place(self, graph: OperatorGraph, processors: Sequence[int]) -> Mapping[int, Where]:
        """The processors of each operator, all of one cluster."""
        clusters = checked_clusters(self.clusters)
        homes = self.assign(graph)
        placed: dict[int, Where] = {}
        for name, hosts in clusters.named.items():
            own = [operator.number for operator in graph.operators if homes[operator.owner] == name]
            placed |= place_in(pattern_of(self.pattern), graph, own, hosts) if own else {}
        return placed

    def assign(self, graph: OperatorGraph) -> dict[str | None, str]:
        """The cluster of each query. Operators that no query needs count as a query that comes last."""
        clusters = checked_clusters(self.clusters)
        owners = [operator.owner for operator in graph.operators]
        load = dict.fromkeys(clusters.named, 0)
        homes: dict[str | None, str] = {}
        for query in dict.fromkeys([*graph.wishes, *sorted(filter(None, owners)), None]):
            wish = graph.wishes.get(query) if query is not None else None
            if wish is not None:
                clusters.hosts(wish)
            homes[query] = wish or min(load, key=lambda name: _load(load, clusters, name))
            load[homes[query]] += owners.count(query)
        return homes


def place_in(
    pattern: Pattern, graph: OperatorGraph, operators: Sequence[int], hosts: Sequence[int]
) -> dict[int, tuple[int, ...]]:
    """Place some operators of a graph by a pattern that sees only these, and only some processors."""
    part = graph.part(operators)
    given = check_placed(pattern, part, hosts, pattern.place(part, hosts))
    return {number: given[n] or tuple(hosts) for n, number in enumerate(operators)}


def clusters_of(pattern: object) -> Clusters | None:
    """The clusters of a pattern; None if it has none."""
    return checked_clusters(pattern.clusters) if isinstance(pattern, Tier) else None


def _load(load: Mapping[str, int], clusters: Clusters, name: str) -> tuple[float, int]:
    """What a cluster has to do for each processor; of two that have the same the larger one comes first."""
    size = len(clusters.named[name])
    return load[name] / size, -size
