"""Diffusing partition groups of a join, and gathering them: edits of a distribution between two batches.

The invariant (DESIGN: diffusion is an invariant). Of a group that is diffused over hosts H

1. each row of the *master* port is listed by exactly one host, and each row of the other ports by the group's home,
   which is one of the hosts;
2. what the home lists of the other ports is at hand at every host: the driver adds it to their tasks (`borrowed`).

So every result is given exactly once. It is made of one row of each port, one of them the master's. That row is at one
host, by 1, now or when it arrives (`plan/routing`); all others are there as well, by 2 or since rows of the other
ports are sent to all hosts. The host finds the result when the last of its rows arrives, as any processor does, and no
other host has the row of the master port. Nothing in this depends on what the group's routes were before, so whatever
keeps 1 may change them between two batches: entering, leaving, and changing the master, the hosts or the weights.

What keeps 1: entering cuts the master port's rows into disjoint parts that together are all of them (`state/cut`), and
leaving puts the parts together again; the other ports' rows stay at the home. Changing anything is leaving and entering
in one edit. Batches keep it since a row of the master port is inserted by the host that it is sent to, and a row of
another port by the home alone. Statistics are added up over the hosts.

A group enters only if all its state is active: what is spilled, retired or held back belongs to a group as a whole, and
would have to meet rows of all hosts. `broken_shares` finds what breaks 1 in manifests.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from anabranch.plan.routing import Diffused, Everywhere, Routing, Spread
from anabranch.state.cut import cut, put_back, put_together, take_out
from anabranch.state.groups import GroupSet
from anabranch.state.manifest import Manifest
from anabranch.state.partition import extract, install
from anabranch.state.runs.slice import Cuts
from anabranch.state.runs.spine import Spine
from anabranch.state.spill import bytes_by_group
from anabranch.state.statistics import Statistics
from anabranch.state.store import Json

if TYPE_CHECKING:
    from anabranch.manager.distribution import Distribution
    from anabranch.manager.plan_shape import PlanShape


@dataclass(frozen=True, slots=True)
class Occasion:
    """After which step, at which time of the driver's clock, and why something was decided; and how many rows of a
    group are expected to be received more than once in a batch, if that is known."""

    step: int
    time: float
    reason: str
    copies: float | None = None


@dataclass(frozen=True, slots=True)
class Diffusion:
    """A group of an operator that is diffused: after which step and at which time it got its master, and why it was
    diffused last."""

    operator: int
    group: int
    since: Occasion

    def to_json(self) -> Json:
        """As stored."""
        return asdict(self)

    @classmethod
    def from_json(cls, body: Json) -> Diffusion:
        """The inverse of `to_json`."""
        return cls(body["operator"], body["group"], Occasion(**body["since"]))


def routes_of(ports: int, master: int, hosts: tuple[int, ...], weights: tuple[float, ...]) -> tuple[Diffused, ...]:
    """The routes of a group, one per port: the master's rows are spread, those of the others go everywhere."""
    return tuple(Spread(hosts, weights) if port == master else Everywhere(hosts) for port in range(ports))


def master_of(routes: Sequence[Diffused]) -> int:
    """The port of a diffused group whose rows are spread."""
    return next(port for port, route in enumerate(routes) if isinstance(route, Spread))


class Diffuser:
    """Edits which processors have which part of the groups of one operator."""

    def __init__(self, plan: PlanShape, operator: int, cuts: Cuts) -> None:
        """Of a plan, in which `cuts` tell where groups begin in files."""
        self._ports = plan.operators[operator].ports
        self._owners = plan.owners
        self._operator = operator
        self._cuts = cuts

    def diffuse(
        self, distribution: Distribution, groups: Collection[int], routes: tuple[Diffused, ...], occasion: Occasion
    ) -> Distribution:
        """Give groups these routes, whether they are diffused or not; a home that is no host moves to the first."""
        noted = tuple(self._noted(distribution, group, routes, occasion) for group in sorted({*groups}))
        distribution = self.gather(distribution, groups)
        for group in groups:
            distribution = self._home_among(distribution, group, routes[0].hosts)
            distribution = self._enter(distribution, group, routes)
        distribution = replace(distribution, diffusions=(*distribution.diffusions, *noted))
        return self._routed(distribution, self._routing(distribution).diffuse(groups, routes))

    def gather(self, distribution: Distribution, groups: Collection[int]) -> Distribution:
        """Bring groups back to their homes; those that are not diffused stay as they are."""
        routes = dict(self._routing(distribution).diffused)
        chosen = sorted(routes.keys() & set(groups))
        for group in chosen:
            distribution = self._leave(distribution, group, routes[group])
        left = tuple(
            entry for entry in distribution.diffusions if entry.operator != self._operator or entry.group not in chosen
        )
        distribution = replace(distribution, diffusions=left)
        return self._routed(distribution, self._routing(distribution).gather(chosen))

    def bytes_at(self, distribution: Distribution, port: int, groups: Collection[int]) -> int:
        """How many bytes of state some groups have at a port of the operator, all processors together."""
        spines = (manifest.spines[self._ports[port]] for manifest in distribution.manifests)
        slices = (piece for spine in spines for piece in spine.slices())
        return int(bytes_by_group(slices, distribution.groups, self._cuts)[list(groups)].sum())

    def _noted(
        self, distribution: Distribution, group: int, routes: Sequence[Diffused], occasion: Occasion
    ) -> Diffusion:
        """The entry of a group that gets routes; who is master already is so since the step that is noted."""
        before = self._routing(distribution).routes(group)
        if before is not None and master_of(before) == master_of(routes):
            known = next(e for e in distribution.diffusions if (e.operator, e.group) == (self._operator, group))
            return replace(known, since=replace(known.since, reason=occasion.reason, copies=occasion.copies))
        return Diffusion(self._operator, group, occasion)

    def _enter(self, distribution: Distribution, group: int, routes: Sequence[Diffused]) -> Distribution:
        """Cut the master's rows of a group, all of which are at its home, into one part per host."""
        port, spread = self._master(routes)
        home = self._routing(distribution).placement[group]
        rest, runs = take_out(distribution.manifests[home].spines[port], group, self._cuts)
        distribution = _with_spine(distribution, home, port, rest)
        for host, part in zip(spread.hosts, cut(runs, spread.weights), strict=True):
            spine = put_back(distribution.manifests[host].spines[port], part)
            distribution = _with_spine(distribution, host, port, spine)
        known = self._statistics(distribution, home, group)
        for host in spread.hosts:
            share = known if host == home else known.begun_anew()
            distribution = self._with_statistics(distribution, host, group, share)
        return distribution

    def _leave(self, distribution: Distribution, group: int, routes: Sequence[Diffused]) -> Distribution:
        """Put the master's rows of a group together at its home, and add up its statistics."""
        port, spread = self._master(routes)
        home = self._routing(distribution).placement[group]
        parts, known = [], Statistics()
        for host in spread.hosts:
            rest, runs = take_out(distribution.manifests[host].spines[port], group, self._cuts)
            parts.append(runs)
            known = known.union(self._statistics(distribution, host, group))
            distribution = _with_spine(distribution, host, port, rest)
            distribution = self._with_statistics(distribution, host, group, Statistics())
        spine = put_back(distribution.manifests[home].spines[port], put_together(parts))
        distribution = _with_spine(distribution, home, port, spine)
        return self._with_statistics(distribution, home, group, known)

    def _home_among(self, distribution: Distribution, group: int, hosts: Sequence[int]) -> Distribution:
        """Let a group that has an owner move to the first host, unless its owner is one."""
        routing = self._routing(distribution)
        home, receiver = routing.placement[group], hosts[0]
        if home in hosts:
            return distribution
        kept, part = extract(
            distribution.manifests[home], [self._operator], self._set(distribution, group), self._owners, self._cuts
        )
        distribution = distribution.with_manifest(home, kept)
        distribution = distribution.with_manifest(receiver, install(distribution.manifests[receiver], part))
        return self._routed(distribution, routing.moved([group], receiver))

    def _master(self, routes: Sequence[Diffused]) -> tuple[int, Spread]:
        """The port of the plan whose rows are spread, and how."""
        master = master_of(routes)
        route = routes[master]
        assert isinstance(route, Spread), "the master is spread"
        return self._ports[master], route

    def _statistics(self, distribution: Distribution, processor: int, group: int) -> Statistics:
        state = distribution.manifests[processor].operators[self._operator]
        return state.statistics.of_groups(self._set(distribution, group))

    def _with_statistics(
        self, distribution: Distribution, processor: int, group: int, share: Statistics
    ) -> Distribution:
        """The distribution with other statistics of a group at a processor; its bytes there are counted."""
        manifest = distribution.manifests[processor]
        state, only = manifest.operators[self._operator], self._set(distribution, group)
        slices = (piece for port in self._ports for piece in manifest.spines[port].slices())
        share = replace(share, bytes=bytes_by_group(slices, only.count, self._cuts)[share.groups])
        others = state.statistics.of_groups(GroupSet.all(only.count) - only)
        operators = list(manifest.operators)
        operators[self._operator] = replace(state, statistics=others.union(share))
        return distribution.with_manifest(processor, replace(manifest, operators=tuple(operators)))

    def _set(self, distribution: Distribution, group: int) -> GroupSet:
        return GroupSet.of(distribution.groups, [group])

    def _routing(self, distribution: Distribution) -> Routing:
        return distribution.routings[self._operator]

    def _routed(self, distribution: Distribution, routing: Routing) -> Distribution:
        routings = list(distribution.routings)
        routings[self._operator] = routing
        return replace(distribution, routings=tuple(routings))


def gather_all(distribution: Distribution, plan: PlanShape, cuts: Cuts) -> Distribution:
    """Bring all groups of all operators back to their homes."""
    for operator, routing in enumerate(distribution.routings):
        if routing.diffused:
            groups = [group for group, _ in routing.diffused]
            distribution = Diffuser(plan, operator, cuts).gather(distribution, groups)
    return distribution


def _with_spine(distribution: Distribution, processor: int, port: int, spine: Spine) -> Distribution:
    manifest = distribution.manifests[processor]
    spines = list(manifest.spines)
    spines[port] = spine
    return distribution.with_manifest(processor, Manifest(tuple(spines), manifest.operators))
