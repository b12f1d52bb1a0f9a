"""Over how many processors hot groups are spread, which ones, and with which weights.

A group that is spread over hosts has work of two kinds (paper 4, theorem 2 and what follows it): what is *shared*, that
for the master's rows and for the results, of which each host does its part; and what is *copied*, that for the rows of
the other inputs, all of which every host receives. On a processor that takes `slowness` times longer than others the
host's load becomes

    load without the group + slowness * (copied + part * shared)

With given hosts the parts are chosen so that all hosts have the same load, the least that can be: water that is poured
over them stands equally high. A host on which it would not stand gets nothing.

How many hosts: the busiest processor says how long a step takes. So as long as a processor has more to do than the
mean and a group that can be spread further, the busiest first, that group gets one host more, the one with the least
load, if this pays: if the busiest of the group's hosts has less to do by more than all processors together get to do,
divided by their number. The first hosts save much, since they halve or third what is shared; what another one copies
stays the same. Where it does not pay any more is the maximum of throughput that the paper found by experiment (figure
4): there one processor's relief is the others' burden.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

# The part of a group that is as good as nothing.
NOTHING = 1e-3


@dataclass(frozen=True, slots=True)
class HotGroup:
    """A group with its home and the port that is its master, and with the seconds of work in a step that hosts would
    share, and those that each of them would have."""

    operator: int
    group: int
    home: int
    master: int
    shared: float
    copied: float

    @property
    def work(self) -> float:
        """Its work while it is at one processor."""
        return self.shared + self.copied


@dataclass(frozen=True, slots=True)
class Hosts:
    """A group's hosts, the first being its home if that is one, and which part of what is shared each of them does."""

    processors: tuple[int, ...]
    parts: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Cluster:
    """By number of a processor its load, in seconds of a step, and how many times longer it takes than others."""

    loads: Mapping[int, float]
    slowness: Mapping[int, float]

    def add(self, hot: HotGroup, hosts: Hosts, sign: int = 1) -> Cluster:
        """With a group over its hosts; without it if the sign is -1."""
        loads = dict(self.loads)
        for p, part in zip(hosts.processors, hosts.parts, strict=True):
            loads[p] += sign * self.slowness[p] * (hot.copied + part * hot.shared)
        return replace(self, loads=loads)

    def level(self, hot: HotGroup, processors: Sequence[int]) -> Hosts:
        """The parts of a group, which is nowhere yet, that make the loads of some processors equal; those that would
        get nothing are left out."""
        bases = {p: self.loads[p] + self.slowness[p] * hot.copied for p in processors}
        lowest = sorted(processors, key=lambda p: (bases[p], p))
        above, speed, count = hot.shared, 0.0, 0
        for p in lowest:
            if count and bases[p] >= above / speed:
                break
            above, speed, count = above + bases[p] / self.slowness[p], speed + 1 / self.slowness[p], count + 1
        height = above / speed
        shares = {p: (height - bases[p]) / self.slowness[p] / max(hot.shared, 1e-12) for p in lowest[:count]}
        hosts = [p for p in processors if shares.get(p, 0.0) > NOTHING] or lowest[:1]
        total = sum(shares[p] for p in hosts) or 1.0
        return Hosts(tuple(hosts), tuple(shares[p] / total if hot.shared else 1 / len(hosts) for p in hosts))

    def busiest(self, processors: Collection[int]) -> float:
        """The highest load of some processors."""
        return max(self.loads[p] for p in processors)


def spread_out(empty: Cluster, groups: Sequence[HotGroup], most: int) -> tuple[Cluster, dict[HotGroup, Hosts]]:
    """Spread groups, each over at most so many processors; `empty` is the cluster without them.

    A group that is better left alone has one host, its home.
    """
    cluster, chosen = empty, {hot: Hosts((hot.home,), (1.0,)) for hot in groups}
    for hot, hosts in chosen.items():
        cluster = cluster.add(hot, hosts)
    for _ in range(len(groups) * len(empty.loads)):
        wider = _wider(cluster, chosen, most)
        if wider is None:
            break
        hot, cluster, chosen[hot] = wider
    for hot in groups if len(groups) > 1 else ():
        if len(chosen[hot].processors) > 1:  # what came after it has changed the loads that it was fitted to
            without = cluster.add(hot, chosen[hot], -1)
            chosen[hot] = without.level(hot, chosen[hot].processors)
            cluster = without.add(hot, chosen[hot])
    return cluster, chosen


def _wider(cluster: Cluster, chosen: dict[HotGroup, Hosts], most: int) -> tuple[HotGroup, Cluster, Hosts] | None:
    """A group with one host more, if this pays for any; those of the busiest processor come first."""
    mean = sum(cluster.loads.values()) / len(cluster.loads)
    for busy in sorted(cluster.loads, key=lambda p: (-cluster.loads[p], p)):
        if cluster.loads[busy] <= mean:
            break
        there = [hot for hot, hosts in chosen.items() if busy in hosts.processors and len(hosts.processors) < most]
        for hot in sorted(there, key=lambda hot: -hot.shared / len(chosen[hot].processors)):
            wider = _one_more(cluster, hot, chosen[hot])
            if wider is not None:
                return hot, *wider
    return None


def _one_more(cluster: Cluster, hot: HotGroup, hosts: Hosts) -> tuple[Cluster, Hosts] | None:
    """A group with one host more, if this pays."""
    others = [p for p in cluster.loads if p not in hosts.processors]
    if not others:
        return None
    best = min(others, key=lambda p: (cluster.loads[p] + cluster.slowness[p] * hot.copied, p))
    without = cluster.add(hot, hosts, -1)
    wider = without.level(hot, (*hosts.processors, best))
    after = without.add(hot, wider)
    involved = {*hosts.processors, best}
    saved = cluster.busiest(involved) - after.busiest(involved)
    cost = (sum(after.loads.values()) - sum(cluster.loads.values())) / len(cluster.loads)
    return (after, wider) if len(wider.processors) > 1 and saved > max(cost, 0.0) else None
