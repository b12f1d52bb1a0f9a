"""Statistics of the partition groups of an operator, as vectors: size, results, last insert, rows (SPEC section 1).

Rows are counted per port: which of the streams of a group is the faster one decides how it can be diffused.

Productivity is Ps/Po, size over output: large means unproductive. Po is counted since the group began to be active; the
past may not predict (paper 1, footnote 5), so it is also kept with old results counting less: `recent` is multiplied by
`DECAY` at every step. The time of the last insert is the driver's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anabranch.state.groups import GroupSet
from anabranch.state.store import Json

# What results count after a step, of what they did before it.
DECAY = 0.9


def _integers() -> NDArray[np.int64]:
    return np.empty(0, dtype=np.int64)


def _floats() -> NDArray[np.float64]:
    return np.empty(0, dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """One entry per group in `groups`, which ascend: active bytes, results, recent results, the time of the last
    insert, and how many rows have arrived, in a column per port (`arrivals`; no column where nothing is known)."""

    groups: NDArray[np.int64] = field(default_factory=_integers)
    bytes: NDArray[np.int64] = field(default_factory=_integers)
    produced: NDArray[np.int64] = field(default_factory=_integers)
    recent: NDArray[np.float64] = field(default_factory=_floats)
    inserted: NDArray[np.float64] = field(default_factory=_floats)
    arrivals: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 0), dtype=np.int64))

    @property
    def arrived(self) -> NDArray[np.int64]:
        """How many rows have arrived, at all ports together."""
        total: NDArray[np.int64] = self.arrivals.sum(axis=1)
        return total

    @property
    def nbytes(self) -> int:
        """The memory that the vectors take."""
        return sum(vector.nbytes for vector in self._vectors)

    def present(self) -> Statistics:
        """Without the groups for which all is 0."""
        positions = np.flatnonzero((self.bytes > 0) | (self.produced > 0) | (self.inserted > 0))
        return Statistics(*(vector[positions] for vector in self._vectors))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Statistics) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.groups.tobytes())

    def dense(self, count: int, ports: int = 0) -> Statistics:
        """One entry per group, 0 for groups without statistics; at least so many ports."""

        def spread(values: NDArray[Any]) -> NDArray[Any]:
            everywhere = np.zeros((count, *values.shape[1:]), dtype=values.dtype)
            everywhere[self.groups] = values
            return everywhere

        _, sizes, produced, recent, inserted, arrivals = self._vectors
        missing = np.zeros((count, max(ports - arrivals.shape[1], 0)), dtype=np.int64)
        by_port = np.hstack([spread(arrivals), missing])
        return Statistics(np.arange(count), spread(sizes), spread(produced), spread(recent), spread(inserted), by_port)

    def union(self, other: Statistics) -> Statistics:
        """The statistics of both; those of groups in common, which are diffused, are added up."""
        if not len(other.groups) or not len(self.groups):
            return other if len(other.groups) else self
        order = np.argsort(np.concatenate([self.groups, other.groups]), kind="stable")
        both = Statistics(*(np.concatenate(pair)[order] for pair in zip(self._vectors, other._vectors, strict=True)))
        first = np.flatnonzero(np.diff(both.groups, prepend=-1))
        return both if len(first) == len(order) else both._added_up(first)

    def _added_up(self, first: NDArray[np.int64]) -> Statistics:
        """One entry for all that belong to a group; each group's first is at one of these places."""
        return Statistics(
            self.groups[first],
            np.add.reduceat(self.bytes, first),
            np.add.reduceat(self.produced, first),
            np.add.reduceat(self.recent, first),
            np.maximum.reduceat(self.inserted, first),
            np.add.reduceat(self.arrivals, first),
        )

    def begun_anew(self) -> Statistics:
        """Statistics of the same groups at a processor that has done nothing for them yet."""
        nothing = np.zeros_like(self.bytes)
        return Statistics(self.groups, nothing, nothing, np.zeros_like(self.recent), self.inserted, 0 * self.arrivals)

    def of_groups(self, groups: GroupSet) -> Statistics:
        """The statistics of some groups only."""
        chosen = groups.mask()[self.groups]
        return Statistics(*(vector[chosen] for vector in self._vectors))

    @property
    def _vectors(self) -> tuple[NDArray[Any], ...]:
        return (self.groups, self.bytes, self.produced, self.recent, self.inserted, self.arrivals)

    def to_json(self) -> Json:
        """As stored in a manifest."""
        return {
            "groups": self.groups.tolist(),
            "bytes": self.bytes.tolist(),
            "produced": self.produced.tolist(),
            "recent": np.round(self.recent, 3).tolist(),
            "inserted": np.round(self.inserted, 3).tolist(),
            "arrived": self.arrivals.T.tolist(),
        }

    @classmethod
    def from_json(cls, data: Json) -> Statistics:
        """The inverse of `to_json`."""
        groups, sizes, produced = (np.array(data[name], dtype=np.int64) for name in ("groups", "bytes", "produced"))
        recent, inserted = (np.array(data[name], dtype=np.float64) for name in ("recent", "inserted"))
        by_port = np.array(data["arrived"], dtype=np.int64).reshape(len(data["arrived"]), len(groups))
        return cls(groups, sizes, produced, recent, inserted, by_port.T)
