"""Clusters: which processors belong together. Every processor is in exactly one of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from anabranch.errors import ConfigError, did_you_mean
from anabranch.manager.actions.numbers import is_whole

EXAMPLE = 'clusters are such as {"eu": [0, 1], "us": [2, 3]}'


@dataclass(frozen=True, slots=True)
class Clusters:
    """The processors of each cluster, by its name."""

    named: Mapping[str, tuple[int, ...]]

    @property
    def count(self) -> int:
        """How many processors there are in all clusters."""
        return sum(map(len, self.named.values()))

    def hosts(self, name: str) -> tuple[int, ...]:
        """The processors of a cluster; refused if there is no such cluster."""
        if not isinstance(name, str) or name not in self.named:
            raise ConfigError(f"there is no cluster {name!r}; {did_you_mean(str(name), list(self.named))}")
        return self.named[name]

    def of_processor(self, processor: int) -> str | None:
        """The cluster of a processor; None if it is in none."""
        return next((name for name, hosts in self.named.items() if processor in hosts), None)

    def of_processors(self, processors: Collection[int]) -> str | None:
        """The cluster that has all of some processors, such as those of a placement; None if no cluster has."""
        return next((name for name, hosts in self.named.items() if {*processors} <= {*hosts}), None)

    def beside(self, processors: Collection[int]) -> tuple[int, ...]:
        """The processors of the cluster that has all of some processors; none if no cluster has."""
        name = self.of_processors(processors)
        return () if name is None else self.named[name]

    def text(self, name: str) -> str:
        """A cluster with its processors, for people."""
        hosts = ", ".join(map(str, self.named[name]))
        return f"cluster {name!r} (processor{'s' if len(self.named[name]) > 1 else ''} {hosts})"


def checked_clusters(given: object) -> Clusters:
    """The clusters that a user gives; refused if they are none, or if processors are listed twice or left out."""
    if not isinstance(given, Mapping) or not given or not all(isinstance(name, str) and name for name in given):
        raise ConfigError(f"{EXAMPLE}, not {given!r}")
    named = {name: _hosts(name, hosts) for name, hosts in given.items()}
    listed = sorted(p for hosts in named.values() for p in hosts)
    for before, after in pairwise(listed):
        if before == after:
            both = [name for name, hosts in named.items() if after in hosts]
            where = f"the clusters {both[0]!r} and {both[1]!r}" if len(both) > 1 else f"the cluster {both[0]!r}, twice"
            raise ConfigError(f"processor {after} is listed in {where}; each processor is in one cluster, once")
    missing = next((number for number, processor in enumerate(listed) if processor != number), None)
    if missing is not None:
        raise ConfigError(
            f"processor {missing} is in no cluster; processors are numbered from 0 on, and each is in one cluster"
        )
    return Clusters(named)


def check_covers(clusters: Clusters, processors: int) -> None:
    """Refuse clusters that list more or fewer processors than there are."""
    count = clusters.count
    if count > processors:
        name = clusters.of_processor(count - 1)
        raise ConfigError(
            f"the cluster {name!r} lists processor {count - 1}, and there are only those from 0 to {processors - 1}; "
            f"set processors={count}, or leave it out"
        )
    if count < processors:
        raise ConfigError(
            f"processor {count} is in no cluster; list it, or set processors={count}, which is how many are listed"
        )


def check_cluster(clusters: Clusters | None, name: str) -> None:
    """Refuse a cluster that there is not."""
    if clusters is None:
        raise ConfigError(
            f"there are no clusters, so none is called {name!r}; say which processors belong together: "
            f"placement=ab.Tier({{{name!r}: [0, 1], ...}})"
        )
    clusters.hosts(name)


def _hosts(name: str, given: object) -> tuple[int, ...]:
    if not isinstance(given, Sequence) or isinstance(given, str) or not given:
        raise ConfigError(f"the cluster {name!r} needs a list of processors; {EXAMPLE}, not {given!r}")
    for processor in given:
        if not is_whole(processor) or processor < 0:
            raise ConfigError(f"the cluster {name!r} lists {processor!r}; processors are whole numbers from 0 on")
    return tuple(int(processor) for processor in given)
