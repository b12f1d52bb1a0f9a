"""What is known of the partition groups of an operator: size, results and last insert, as vectors (SPEC section 1).

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


Dense = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]


def _integers() -> NDArray[np.int64]:
    return np.empty(0, dtype=np.int64)


def _floats() -> NDArray[np.float64]:
    return np.empty(0, dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """Of the groups that have any, ascending: active bytes, results, recent results and the time of the last insert."""

    groups: NDArray[np.int64] = field(default_factory=_integers)
    bytes: NDArray[np.int64] = field(default_factory=_integers)
    produced: NDArray[np.int64] = field(default_factory=_integers)
    recent: NDArray[np.float64] = field(default_factory=_floats)
    inserted: NDArray[np.float64] = field(default_factory=_floats)

    @classmethod
    def of(
        cls,
        sizes: NDArray[np.int64],
        produced: NDArray[np.int64],
        recent: NDArray[np.float64],
        inserted: NDArray[np.float64],
    ) -> Statistics:
        """Out of vectors over all groups."""
        groups = np.flatnonzero((sizes > 0) | (produced > 0) | (inserted > 0))
        return cls(groups, sizes[groups], produced[groups], recent[groups], inserted[groups])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Statistics) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.groups.tobytes())

    def dense(self, count: int) -> Dense:
        """Bytes, results, recent results and last inserts over all groups."""

        def spread(values: NDArray[Any]) -> NDArray[Any]:
            everywhere = np.zeros(count, dtype=values.dtype)
            everywhere[self.groups] = values
            return everywhere

        return spread(self.bytes), spread(self.produced), spread(self.recent), spread(self.inserted)

    def union(self, other: Statistics) -> Statistics:
        """Of both, which have no group in common."""
        if not len(other.groups) or not len(self.groups):
            return other if len(other.groups) else self
        order = np.argsort(np.concatenate([self.groups, other.groups]), kind="stable")
        return Statistics(*(np.concatenate(pair)[order] for pair in zip(self._vectors, other._vectors, strict=True)))

    def of_groups(self, groups: GroupSet) -> Statistics:
        """Of some groups only."""
        chosen = groups.mask()[self.groups]
        return Statistics(*(vector[chosen] for vector in self._vectors))

    @property
    def _vectors(self) -> tuple[NDArray[Any], ...]:
        return (self.groups, self.bytes, self.produced, self.recent, self.inserted)

    def to_json(self) -> Json:
        """As stored in a manifest."""
        return {
            "groups": self.groups.tolist(),
            "bytes": self.bytes.tolist(),
            "produced": self.produced.tolist(),
            "recent": np.round(self.recent, 3).tolist(),
            "inserted": np.round(self.inserted, 3).tolist(),
        }

    @classmethod
    def from_json(cls, data: Json) -> Statistics:
        """The inverse of `to_json`."""
        groups, sizes, produced = (np.array(data[name], dtype=np.int64) for name in ("groups", "bytes", "produced"))
        recent, inserted = (np.array(data[name], dtype=np.float64) for name in ("recent", "inserted"))
        return cls(groups, sizes, produced, recent, inserted)
