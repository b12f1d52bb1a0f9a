"""Feeding a shadow: the rows of its fed ports are let through in pieces, a few partition groups per step.

Between two steps this says which groups have to wait for one more. Nothing of it is on record: after a crash the old
plan goes on, and a migration begins anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.manager.distribution import Distribution
from anabranch.manager.shadows.filling import next_hold, waiting_rows
from anabranch.state.groups import GroupSet
from anabranch.state.runs.slice import Cuts

# Of the rows that a batch usually brings, so many more are worked on for a migration; and so many in any case.
SHARE = 0.5
LEAST_ROWS = 10_000


@dataclass(slots=True)
class Feeding:
    """The `fed` ports of a shadow, whose rows are let through at a `pace`, in rows per step.

    `waiting` is how many rows still wait, `total` how many there were.
    """

    fed: frozenset[int]
    owners: Sequence[int]
    cuts: Cuts
    pace: int
    total: int = 0
    waiting: int = 0

    @property
    def operators(self) -> frozenset[int]:
        """The operators with such a port."""
        return frozenset(self.owners[port] for port in self.fed)

    def look(self, distribution: Distribution) -> dict[int, GroupSet]:
        """The groups that wait in the next step."""
        rows = waiting_rows(distribution, self.fed, self.owners, self.cuts)
        self.waiting = int(sum(counts.sum() for counts in rows.values()))
        self.total = max(self.total, self.waiting)
        return next_hold(rows, self.pace)


def usual_pace(rows: float) -> int:
    """How many rows are let through per step where batches usually bring so many."""
    return max(int(SHARE * rows), LEAST_ROWS)
