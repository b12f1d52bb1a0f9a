"""Generations: the state of partition groups between two spills of them (SPEC section 1; paper 1, section 4.2).

Spilling ends a generation: what was active of the chosen groups, of all ports together, is listed here and no longer
probed, and what arrives from then on is the next one. Results within one generation are out when it is spilled; those
that span several are owed. The active state is the last generation of a group that has spilled ones.

Nothing is copied: a generation lists slices of the runs in which its rows were all along.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from anabranch.state.groups import GroupSet
from anabranch.state.runs.slice import Cuts, Slice, slices_of_groups


@dataclass(frozen=True, slots=True)
class Generation:
    """State that was spilled after a step, at each port of an operator.

    No result that it owes is older than `since`; None if that is not known. For a grouping, it is what was answered
    when its groups were spilled. By ascending group, `sizes` are the bytes of each, and `produced` the results that it
    gave before.
    """

    step: int
    groups: GroupSet
    since: int | None
    ports: tuple[tuple[Slice, ...], ...]
    sizes: tuple[int, ...]
    produced: tuple[int, ...]

    @property
    def rows(self) -> int:
        """How many rows it lists."""
        return sum(piece.rows for slices in self.ports for piece in slices)

    @property
    def bytes(self) -> int:
        """How many bytes it lists."""
        return sum(piece.bytes for slices in self.ports for piece in slices)

    def of_groups(self, groups: GroupSet, cuts: Cuts) -> Generation:
        """Restrict the generation to some groups."""
        wanted = groups & self.groups
        if wanted == self.groups:
            return self
        chosen = wanted.mask()[self.groups.numbers()]
        return replace(
            self,
            groups=wanted,
            ports=tuple(slices_of_groups(slices, wanted, cuts) if wanted else () for slices in self.ports),
            sizes=tuple(np.array(self.sizes, dtype=np.int64)[chosen].tolist()),
            produced=tuple(np.array(self.produced, dtype=np.int64)[chosen].tolist()),
        )

    def dense(self, values: Sequence[int]) -> NDArray[np.int64]:
        """Sizes or results over all groups."""
        everywhere = np.zeros(self.groups.count, dtype=np.int64)
        everywhere[self.groups.numbers()] = values
        return everywhere


def spilled_groups(generations: Iterable[Generation]) -> GroupSet | None:
    """The groups of which some state is spilled; None if there are none."""
    sets = [generation.groups for generation in generations]
    return reduce(GroupSet.__or__, sets) if sets else None


def by_since(generations: Iterable[Generation], groups: GroupSet) -> Iterator[tuple[int | None, GroupSet]]:
    """Some groups, by the time up to which they were answered when they were first spilled."""
    left = groups
    for generation in generations:
        spilled = left & generation.groups
        if spilled:
            yield generation.since, spilled
        left -= spilled
