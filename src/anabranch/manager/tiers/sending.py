"""Sending queries to another cluster: which operators go along, and where each of them goes there.

All operators of the queries go, with their state, to where the pattern of the tier places them in the new cluster. An
operator that another query shares would take that query along, or leave it without; so either all of its queries are
sent, or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.errors import ConfigError, did_you_mean
from anabranch.manager.allocation.wanted import closed_families
from anabranch.manager.distribution import Distribution
from anabranch.manager.patterns.named import pattern_of
from anabranch.manager.patterns.operator_graph import OperatorGraph
from anabranch.manager.patterns.pattern import Pattern
from anabranch.manager.patterns.tier import Tier, place_in
from anabranch.manager.plan_shape import PlanShape
from anabranch.manager.tiers.clusters import checked_clusters
from anabranch.plan.allocation import Allocation, reallocated
from anabranch.plan.placement import Placement, spread_over


@dataclass(frozen=True, slots=True)
class Sent:
    """Queries, by name, are to go on in the cluster `to`."""

    queries: tuple[str, ...]
    to: str
    reason: str


def tier_of(pattern: Pattern) -> Tier:
    """The tier that a run's pattern is; refused if it is none."""
    if not isinstance(pattern, Tier):
        raise ConfigError(
            'the run has no clusters to send a query to; start it with placement=ab.Tier({"eu": [0, 1], ...})'
        )
    return pattern


def sent_operators(
    graph: OperatorGraph, sent: Sent, tier: Tier, plan: PlanShape, distribution: Distribution
) -> tuple[int, ...]:
    """The operators of the queries that are not in the cluster yet."""
    hosts = checked_clusters(tier.clusters).hosts(sent.to)
    if not sent.queries:
        raise ConfigError("no query was given")
    for name in sent.queries:
        if name not in graph.wishes:
            raise ConfigError(f"there is no query {name!r}; {did_you_mean(str(name), list(graph.wishes))}")
    operators = [operator for operator in graph.operators if {*operator.queries} & {*sent.queries}]
    for name in sent.queries:
        if not any(name in operator.queries for operator in operators):
            raise ConfigError(f"the query {name!r} has no operators: it is computed by Spark alone, and in no cluster")
    going = [op for op in operators if not {*distribution.placements[op.number]} <= {*hosts}]
    for operator in going:
        staying = [name for name in operator.queries if name not in sent.queries]
        if staying:
            together = [*sent.queries, *staying]
            raise ConfigError(
                f"{plan.operators[operator.number].name} is shared with the query {staying[0]!r}, which would stay; "
                f"send both: run.send({together!r}, to={sent.to!r})"
            )
    return tuple(operator.number for operator in going)


def allocation_sent(
    graph: OperatorGraph,
    plan: PlanShape,
    distribution: Distribution,
    allocation: Allocation,
    operators: Sequence[int],
    tier: Tier,
    to: str,
) -> Allocation:
    """The allocation after these operators have gone to a cluster. Those that were set apart stay so."""
    hosts = checked_clusters(tier.clusters).hosts(to)
    groups = len(allocation.placements[0])
    homes = place_in(pattern_of(tier.pattern), graph, operators, hosts) if operators else {}
    together: dict[tuple[Placement, bool], list[int]] = {}
    for n, where in homes.items():
        apart = n in allocation.apart and n not in allocation.parted  # for diffusion, which ends with the move
        together.setdefault((spread_over(where, groups), apart), []).append(n)
    kindred = [operator.kindred for operator in plan.operators]
    for (placement, apart), of in together.items():
        closed = closed_families(plan, distribution, of)
        allocation = reallocated(allocation, kindred, of, placement, hosts=hosts, apart=apart, closed=closed)
    return allocation
