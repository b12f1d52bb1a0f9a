"""A processor's share of the state: what routings mean for manifests.

What belongs to a group as a whole (statistics, spilled generations, rows that are held back) is at the group's home.
Rows of a port lie where the port's routing sends them: with the owner, with the host that got them, or with all hosts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

import numpy as np

from anabranch.plan.routing import PortRouting, Routing, port_routings
from anabranch.state.groups import GroupSet
from anabranch.state.manifest import Manifest
from anabranch.state.slice import Cuts


def home_groups(routing: Routing, processor: int) -> GroupSet:
    """The groups of an operator whose home is a processor; of those that have an owner, those that it owns."""
    return GroupSet.of(len(routing.placement), _places(routing.placement, processor))


def port_groups(routing: PortRouting, processor: int) -> GroupSet:
    """The groups whose rows a processor can get at a port."""
    groups = GroupSet.of(len(routing.placement), _places(routing.placement, processor))
    if not routing.diffused:
        return groups
    diffused = GroupSet.of(groups.count, (group for group, _ in routing.diffused))
    hosted = GroupSet.of(groups.count, (group for group, route in routing.diffused if processor in route.hosts))
    return (groups - diffused) | hosted


def groups_by_port(routings: Sequence[Routing], owners: Sequence[int], processor: int) -> tuple[GroupSet, ...]:
    """The groups whose rows a processor can get, per port; `owners` are the operators that ports belong to."""
    groups_of: dict[PortRouting, GroupSet] = {}
    ports = port_routings(routings, owners)
    for routing in ports:
        if routing not in groups_of:
            groups_of[routing] = port_groups(routing, processor)
    return tuple(groups_of[routing] for routing in ports)


def list_by_owner(
    manifests: Iterable[Manifest], routings: Sequence[Routing], owners: Sequence[int], processors: int, cuts: Cuts
) -> tuple[Manifest, ...]:
    """List all state anew, by routings under which every group has an owner. No row is listed twice."""
    assert not any(routing.diffused for routing in routings), "rows of a diffused group are not told apart by group"
    everything = reduce(Manifest.union, manifests)
    return tuple(
        everything.of_groups([home_groups(routing, p) for routing in routings], owners, cuts) for p in range(processors)
    )


def _places(placement: Sequence[int], processor: int) -> Iterable[int]:
    places: Iterable[int] = np.flatnonzero(np.array(placement) == processor).tolist()
    return places
