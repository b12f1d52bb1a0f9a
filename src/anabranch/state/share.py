"""A processor's share of the state: what routings mean for manifests.

What belongs to a group as a whole (statistics, spilled generations, rows that are held back) is at the group's home.
Rows of a port lie where the port's routing sends them: with the owner, or with the host that got them. What is sent to
all hosts is listed by the home alone. The other hosts get *copies* of arriving rows, which they forget after the step,
and *borrow* what the home lists: slices that are part of their task and of no manifest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

import numpy as np

from anabranch.plan.routing import Everywhere, PortRouting, Routing, port_routings
from anabranch.state.groups import GroupSet
from anabranch.state.manifest import Manifest
from anabranch.state.runs.slice import Cuts, Slice


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


def copied_groups(routing: PortRouting, processor: int) -> GroupSet:
    """The groups of which a processor gets copies at a port: it hosts them, and another processor is their home."""
    return GroupSet.of(len(routing.placement), _guests(routing, processor))


def copied_by_port(routings: Sequence[Routing], owners: Sequence[int], processor: int) -> tuple[GroupSet, ...]:
    """The groups of which a processor gets copies, per port; empty if nothing at all is diffused."""
    if not any(routing.diffused for routing in routings):
        return ()
    return tuple(copied_groups(routing, processor) for routing in port_routings(routings, owners))


def borrowed_slices(
    manifests: Sequence[Manifest],
    routings: Sequence[Routing],
    owners: Sequence[int],
    processor: int,
    purge: Sequence[int | None],
    cuts: Cuts,
) -> tuple[tuple[Slice, ...], ...]:
    """What a processor borrows in a step, per port: the active rows, at their homes, of the groups it gets copies of.

    Files whose rows are all older than `purge`, per port, are left out. Empty if nothing at all is diffused.
    """
    if not any(routing.diffused for routing in routings):
        return ()
    borrowed = []
    for port, routing in enumerate(port_routings(routings, owners)):
        by_home: dict[int, list[int]] = {}
        for group in _guests(routing, processor):
            by_home.setdefault(routing.placement[group], []).append(group)
        spines = (
            manifests[home].spines[port].of_groups(GroupSet.of(len(routing.placement), groups), cuts)
            for home, groups in sorted(by_home.items())
        )
        borrowed.append(tuple(piece for spine in spines for piece in spine.purge(purge[port]).slices()))
    return tuple(borrowed)


def list_by_owner(
    manifests: Iterable[Manifest], routings: Sequence[Routing], owners: Sequence[int], processors: int, cuts: Cuts
) -> tuple[Manifest, ...]:
    """List all state anew, by routings under which every group has an owner. No row is listed twice."""
    assert not any(routing.diffused for routing in routings), "rows of a diffused group are not told apart by group"
    everything = reduce(Manifest.union, manifests)
    return tuple(
        everything.of_groups([home_groups(routing, p) for routing in routings], owners, cuts) for p in range(processors)
    )


def _guests(routing: PortRouting, processor: int) -> Iterable[int]:
    """The groups whose rows go everywhere, also to a processor that is not their home."""
    for group, route in routing.diffused:
        if isinstance(route, Everywhere) and processor in route.hosts and routing.placement[group] != processor:
            yield group


def _places(placement: Sequence[int], processor: int) -> Iterable[int]:
    places: Iterable[int] = np.flatnonzero(np.array(placement) == processor).tolist()
    return places
