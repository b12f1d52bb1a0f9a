"""Which processor has which work by where groups are now, and which groups are hot or diffused.

A group is *hot* if its work is more than a fair share: the work of all groups by the number of processors. Wherever
such a group is, that processor has more to do than it would have if all were alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from anabranch.manager.diffusion import master_of
from anabranch.manager.policies.hot_groups.spreading import Cluster, Hosts, HotGroup
from anabranch.manager.policies.hot_groups.work import Work
from anabranch.manager.snapshot import Floats, Snapshot
from anabranch.plan.routing import Diffused, Spread


@dataclass(frozen=True, slots=True)
class Loads:
    """The load of every processor, a `fair` share, and the groups that have an owner but are `hot`.

    Those that are hot but of operators that run `fused` with others are apart. `diffused` are those that are spread,
    each with its hosts; their home is the first of these.
    """

    cluster: Cluster
    fair: float
    hot: tuple[HotGroup, ...]
    fused: tuple[HotGroup, ...]
    diffused: dict[HotGroup, Hosts]

    def without(self, groups: Mapping[HotGroup, Hosts]) -> Cluster:
        """The processors without some groups that are at these hosts."""
        cluster = self.cluster
        for hot, hosts in groups.items():
            cluster = cluster.add(hot, hosts, -1)
        return cluster


def loads_of(snapshot: Snapshot, work: Work) -> Loads:
    """The loads of processors by a snapshot and the work that was measured."""
    slow = work.slowness
    loads = dict.fromkeys(slow, 0.0)
    diffused: dict[HotGroup, Hosts] = {}
    owned = []
    for n, (routing, of_operator) in enumerate(zip(snapshot.routings, work.operators, strict=True)):
        by_group = of_operator.by_group.copy()
        for group, routes in routing.diffused:
            by_group[group] = 0.0
            hot = hot_group(work, n, group, routing.placement[group], master_of(routes))
            diffused[hot] = hosts_of(routes)
        seconds = np.bincount(np.array(routing.placement), weights=by_group, minlength=max(slow) + 1)
        loads = {p: load + float(seconds[p]) * slow[p] for p, load in loads.items()}
        owned.append(by_group)
    cluster = Cluster(loads, slow)
    for hot, hosts in diffused.items():
        cluster = cluster.add(hot, hosts)
    fair = sum(float(each.by_group.sum()) for each in work.operators) / len(slow)
    groups = tuple(_hot(snapshot, work, owned, fair, snapshot.plan.diffusable))
    fused = tuple(_hot(snapshot, work, owned, fair, snapshot.plan.partable))
    return Loads(cluster, fair, groups, fused, diffused)


def hot_group(work: Work, operator: int, group: int, home: int, master: int) -> HotGroup:
    """A group as it would be with a master."""
    return HotGroup(operator, group, home, master, *work.operators[operator].of_group(group, master))


def with_master(work: Work, hot: HotGroup, master: int) -> HotGroup:
    """The same group with another master."""
    return hot_group(work, hot.operator, hot.group, hot.home, master)


def hosts_of(routes: tuple[Diffused, ...]) -> Hosts:
    """The hosts of a diffused group."""
    spread = routes[master_of(routes)]
    assert isinstance(spread, Spread), "the master is spread"
    total = sum(spread.weights)
    return Hosts(spread.hosts, tuple(weight / total for weight in spread.weights))


def _hot(
    snapshot: Snapshot, work: Work, owned: list[Floats], fair: float, operators: Sequence[int]
) -> Iterator[HotGroup]:
    """The hot groups of some operators that can be diffused now."""
    for n in operators:
        still = np.zeros(len(owned[n]), dtype=bool)
        for view in snapshot.processors:
            seen = view.operators[n]
            still[list(seen.held)] = True
            if seen.spilled is not None:
                still[seen.spilled.numbers()] = True
        for group in np.flatnonzero((owned[n] > fair) & ~still).tolist():
            rows = work.operators[n].rows[group]
            yield hot_group(work, n, group, snapshot.routings[n].placement[group], int(np.argmax(rows)))
