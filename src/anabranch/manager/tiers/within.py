"""A cluster adapts by itself: what its policies see of a run, and the check that no action leaves the cluster.

Policies of a cluster are shown its processors alone, and the joins of its queries. Operators of other clusters are in
the plan, so that edges can be followed; they have no state on these processors. What a policy decides on is checked all
the same, since a policy may be a user's own. So there is no way by which adaptation brings anything to another cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anabranch.manager.actions import (
    Action,
    DiffuseGroups,
    GatherGroups,
    HoldGroups,
    PartOperator,
    ReallocateOperator,
    RelocateGroups,
    SpillGroups,
)
from anabranch.manager.distribution import Distribution
from anabranch.manager.snapshot import Snapshot
from anabranch.manager.tiers.clusters import Clusters
from anabranch.plan.routing import Routing


def within(snapshot: Snapshot, clusters: Clusters, name: str) -> Snapshot:
    """What policies of a cluster see of a snapshot."""
    hosts = clusters.hosts(name)
    here = [{*routing.placement} <= {*hosts} for routing in snapshot.routings]
    names = {shape.name for shape, is_here in zip(snapshot.plan.operators, here, strict=True) if is_here}
    return replace(
        snapshot,
        processors=tuple(view for view in snapshot.processors if view.processor in hosts),
        routings=tuple(
            routing if is_here else Routing(routing.placement)
            for routing, is_here in zip(snapshot.routings, here, strict=True)
        ),
        orders=None if snapshot.orders is None else snapshot.orders.of_queries(_queries(snapshot, here)),
        reallocating=None if snapshot.reallocating is None else snapshot.reallocating & names,
    )


def crossing(action: Action, clusters: Clusters, distribution: Distribution) -> str | None:
    """Why an action is refused: it would bring an operator to another cluster; None if it stays inside of one."""
    operator, processors = _parts(action)
    if operator is None:
        return None
    home = clusters.of_processors(distribution.routings[operator].placement)
    strangers = [p for p in processors if clusters.of_processor(p) != home]
    if home is None or not strangers:
        return None
    return (
        f"processor {strangers[0]} is not of {clusters.text(home)}, where the operator is; only "
        "run.send(query, to=...) brings anything to another cluster, and that is a query as a whole"
    )


def _queries(snapshot: Snapshot, here: Sequence[bool]) -> set[str]:
    """The queries of a cluster; one that has no operators of its own is where those are that it shares."""
    own: dict[str, bool] = {}
    shared: dict[str, bool] = {}
    for shape, is_here in zip(snapshot.plan.operators, here, strict=True):
        for nth, query in enumerate(shape.queries):
            (shared if nth else own).setdefault(query, is_here)
    return {query for query, is_here in {**shared, **own}.items() if is_here}


def _parts(action: Action) -> tuple[int | None, tuple[int, ...]]:
    """The operator of an action, or the first one of its family, and the processors that it names."""
    match action:
        case SpillGroups():
            return action.operator, (action.processor,)
        case HoldGroups():
            return action.family, (action.processor,)
        case RelocateGroups():
            return action.family, (action.sender, action.receiver)
        case ReallocateOperator():
            return action.operator, (action.processor,)
        case DiffuseGroups():
            return action.operator, action.hosts
        case PartOperator():
            return action.operator, tuple(host for diffusion in action.diffusions for host in diffusion.hosts)
        case GatherGroups():
            return action.operator, () if action.to is None else (action.to,)
    return None, ()
