"""Routing: which processors get a row, given the port it goes to and its partition group.

A group of a port has one of three routes:

- `Owner(p)`: all rows go to processor p.
- `Spread(hosts, weights)`: each row goes to one of the hosts, chosen by a hash of the row and the weights. The choice
  depends on what the row contains and never on when it arrives, so an attempt that is repeated makes it again.
- `Everywhere(hosts)`: each row goes to all hosts.

Most groups have an owner at all ports of an operator, so a `Routing` is a placement, the owner of every group, and a
list of exceptions: the groups that are *diffused*. The placement says of these where their home is. The home keeps what
belongs to a group rather than to one of its ports, such as its statistics.

`check_routing` states what holds of every routing. Most of it is the diffusion invariant: the rows of exactly one port
are spread over the hosts, and those of all other ports are everywhere on the same hosts. Every combination of rows has
one row of the spread port, which is at one host, and there it meets all others: so each is produced exactly once.

`processors_of` is the meaning of a routing. `runtime/exchange/route` renders the same for Spark, and `state/share` says
what it means for manifests.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import isfinite
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from anabranch.errors import ConfigError
from anabranch.plan.placement import Placement, as_blocks, from_blocks, moved

# How many of a row hash's leading bits choose among hosts. Bounds are whole numbers, so that Spark and NumPy agree.
SPREAD_BITS = 32


@dataclass(frozen=True, slots=True)
class Owner:
    """All rows go to one processor."""

    processor: int

    @property
    def hosts(self) -> tuple[int, ...]:
        """The processor."""
        return (self.processor,)


@dataclass(frozen=True, slots=True)
class Spread:
    """Each row goes to one of the hosts; in the long run each host gets rows in proportion to its weight."""

    hosts: tuple[int, ...]
    weights: tuple[float, ...]

    @property
    def bounds(self) -> tuple[int, ...]:
        """The upper bound of each host's share (but the last) of the numbers below 2^`SPREAD_BITS`."""
        ends = tuple(accumulate(self.weights))
        return tuple(round(end / ends[-1] * (1 << SPREAD_BITS)) for end in ends[:-1])


@dataclass(frozen=True, slots=True)
class Everywhere:
    """Each row goes to all hosts."""

    hosts: tuple[int, ...]


Diffused = Spread | Everywhere
Route = Owner | Diffused
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class PortRouting:
    """The route of every partition group of one port: its owner in the placement, unless the group is `diffused`."""

    placement: Placement
    diffused: tuple[tuple[int, Diffused], ...] = ()

    def route(self, group: int) -> Route:
        """Where rows of a group go."""
        return _listed(self.diffused, group) or Owner(self.placement[group])

    @property
    def multiplies(self) -> bool:
        """Whether some rows go to several processors."""
        return any(isinstance(route, Everywhere) for _, route in self.diffused)

    def by_route(self) -> dict[Diffused, tuple[int, ...]]:
        """The diffused groups, by what their route is."""
        return _by_value(self.diffused)


@dataclass(frozen=True, slots=True)
class Routing:
    """The routes of one operator: `placement` is the home of every group, its owner if it has one.

    `diffused` lists the groups that have none, in ascending order, each with one route per port.
    """

    placement: Placement
    diffused: tuple[tuple[int, tuple[Diffused, ...]], ...] = ()

    def port(self, port: int) -> PortRouting:
        """The routing of one of the operator's ports."""
        return PortRouting(self.placement, tuple((group, routes[port]) for group, routes in self.diffused))

    def owner(self, group: int) -> int | None:
        """The processor that all rows of a group go to; None if the group is diffused."""
        return None if _listed(self.diffused, group) else self.placement[group]

    def routes(self, group: int) -> tuple[Diffused, ...] | None:
        """The route of a diffused group at each port; None if the group has an owner."""
        return _listed(self.diffused, group)

    def hosts(self, group: int) -> tuple[int, ...]:
        """The processors that have a part in a group."""
        routes = _listed(self.diffused, group)
        return routes[0].hosts if routes else (self.placement[group],)

    def moved(self, groups: Collection[int], receiver: int) -> Routing:
        """The routing after some groups, which have owners, have moved to a processor."""
        assert all(self.owner(group) is not None for group in groups), "a group that is diffused has no owner to leave"
        return replace(self, placement=moved(self.placement, groups, receiver))

    def diffuse(self, groups: Iterable[int], routes: tuple[Diffused, ...]) -> Routing:
        """The routing with some groups diffused: one route per port."""
        return replace(self, diffused=_ascending({**dict(self.diffused), **dict.fromkeys(groups, routes)}))

    def gather(self, groups: Collection[int]) -> Routing:
        """The routing with some groups not diffused any more: their homes are their owners."""
        return replace(self, diffused=tuple(entry for entry in self.diffused if entry[0] not in groups))

    def to_json(self) -> Any:
        """As stored: the blocks of a placement; if groups are diffused, also their routes."""
        homes = as_blocks(self.placement)
        if not self.diffused:
            return homes
        routes = [
            {"groups": list(groups), "ports": [_route_to_json(route) for route in routes]}
            for routes, groups in _by_value(self.diffused).items()
        ]
        return {"homes": homes, "diffused": routes}

    @classmethod
    def from_json(cls, body: Any) -> Routing:
        """The inverse of `to_json`."""
        if not isinstance(body, Mapping):
            return cls(from_blocks(body))
        routing = cls(from_blocks(body["homes"]))
        for entry in body["diffused"]:
            routing = routing.diffuse(entry["groups"], tuple(map(_route_from_json, entry["ports"])))
        return routing


def owned_by(placements: Iterable[Placement]) -> tuple[Routing, ...]:
    """The routings of operators whose groups all have owners."""
    return tuple(Routing(placement) for placement in placements)


def port_routings(routings: Sequence[Routing], owners: Sequence[int]) -> tuple[PortRouting, ...]:
    """The routing of every port of a plan; `owners` are the operators that ports belong to."""
    last_port: dict[int, int] = {}
    ports = []
    for operator in owners:
        nth = last_port[operator] = last_port.get(operator, -1) + 1
        ports.append(routings[operator].port(nth))
    return tuple(ports)


def check_routings(routings: Sequence[Routing], owners: Sequence[int], groups: int, processors: int) -> None:
    """Refuse the routings of a plan if one of them breaks a rule; `owners` are the operators that ports belong to."""
    if len(routings) != len(set(owners)):
        raise ConfigError(f"there are routings of {len(routings)} operators, but {len(set(owners))} operators")
    for n, routing in enumerate(routings):
        check_routing(routing, owners.count(n), groups, processors, f"operator {n}")


def check_routing(routing: Routing, ports: int, groups: int, processors: int, operator: str = "an operator") -> None:
    """Refuse a routing of an operator with some ports unless every group has exactly one route at each, to processors
    that there are, and what is diffused keeps the diffusion invariant."""
    broken = _broken_homes(routing.placement, groups, processors)
    before = -1
    for group, routes in routing.diffused:
        if broken:
            break
        if not before < group < groups:
            broken = f"group {group} is diffused twice, out of order, or not there"
        elif reason := _broken_diffusion(routes, routing.placement[group], ports, processors):
            broken = f"group {group}: {reason}"
        before = group
    if broken:
        raise ConfigError(f"rows of {operator} cannot be routed: {broken}")


def processors_of(
    routing: PortRouting, groups: NDArray[np.int64], row_hashes: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The processors that get some rows, given the group and the hash of each: pairs of a row's number and a
    processor."""
    owned = np.ones(len(groups), dtype=bool)
    rows: list[NDArray[np.int64]] = []
    processors: list[NDArray[np.int64]] = []
    for route, numbers in routing.by_route().items():
        mine = np.flatnonzero(np.isin(groups, numbers))
        owned[mine] = False
        hosts = np.array(route.hosts, dtype=np.int64)
        if isinstance(route, Everywhere):
            rows.append(np.repeat(mine, len(hosts)))
            processors.append(np.tile(hosts, len(mine)))
        else:
            leading = row_hashes[mine] >> np.uint64(64 - SPREAD_BITS)
            rows.append(mine)
            processors.append(hosts[np.searchsorted(np.array(route.bounds, dtype=np.uint64), leading, side="right")])
    rest = np.flatnonzero(owned)
    rows.append(rest)
    processors.append(np.array(routing.placement, dtype=np.int64)[groups[rest]])
    return np.concatenate(rows), np.concatenate(processors)


def _broken_homes(placement: Placement, groups: int, processors: int) -> str | None:
    if len(placement) != groups:
        return f"{len(placement)} of {groups} groups have a processor"
    if groups and not 0 <= min(placement) <= max(placement) < processors:
        strange = next(p for p in placement if not 0 <= p < processors)
        return f"group {placement.index(strange)} is on processor {strange} of {processors}"
    return None


def _broken_diffusion(routes: tuple[Diffused, ...], home: int, ports: int, processors: int) -> str | None:
    hosts = routes[0].hosts if routes else ()
    spread = [route for route in routes if isinstance(route, Spread)]
    if len(routes) != ports:
        return f"{len(routes)} of {ports} ports have a route"
    if ports < 2:
        return "only what joins can be diffused: a group of a grouping has to be at one processor"
    if len(spread) != 1:
        return f"the rows of exactly one port must be spread, not of {len(spread)}"
    if any(route.hosts != hosts for route in routes):
        return "its ports have different hosts"
    if len(hosts) < 2 or len(set(hosts)) != len(hosts) or not all(0 <= p < processors for p in hosts):
        return f"hosts must be two or more of {processors} processors, each once, not {list(hosts)}"
    if home not in hosts:
        return f"its home, processor {home}, is no host of it"
    weights = spread[0].weights
    if len(weights) != len(hosts) or not all(weight > 0 and isfinite(weight) for weight in weights):
        return f"there must be a positive weight for each of {len(hosts)} hosts, not {list(weights)}"
    if not isfinite(sum(weights)):
        return "its weights are too large to be added up"
    return None


def _listed(entries: Sequence[tuple[int, Value]], group: int) -> Value | None:
    """Look a group up among entries that ascend by group; None if it is not among them."""
    place = bisect_left(entries, group, key=lambda entry: entry[0])
    return entries[place][1] if place < len(entries) and entries[place][0] == group else None


def _ascending(entries: Mapping[int, Value]) -> tuple[tuple[int, Value], ...]:
    return tuple((group, entries[group]) for group in sorted(entries))


def _by_value(entries: Iterable[tuple[int, Value]]) -> dict[Value, tuple[int, ...]]:
    """Groups by what is listed with them."""
    by_value: dict[Value, list[int]] = {}
    for group, value in entries:
        by_value.setdefault(value, []).append(group)
    return {value: tuple(groups) for value, groups in by_value.items()}


def _route_to_json(route: Diffused) -> dict[str, list[Any]]:
    if isinstance(route, Spread):
        return {"spread": list(route.hosts), "weights": list(route.weights)}
    return {"everywhere": list(route.hosts)}


def _route_from_json(body: Mapping[str, Sequence[Any]]) -> Diffused:
    if "spread" in body:
        return Spread(tuple(body["spread"]), tuple(body["weights"]))
    return Everywhere(tuple(body["everywhere"]))
