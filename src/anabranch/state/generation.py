"""Generations: the state of partition groups between two spills of them (SPEC section 1; paper 1, section 4.2).

Spilling ends a generation: what was active of the chosen groups, of all ports together, is listed here and no longer
probed, and what arrives from then on is the next one. Results within one generation are out when it is spilled; those
that span several are owed. The active state is the last generation of a group that has spilled ones.

Nothing is copied: a generation lists slices of the runs in which its rows were all along.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce

from anabranch.state.groups import GroupSet
from anabranch.state.spine import Cuts, Slice, slices_of_groups


@dataclass(frozen=True, slots=True)
class Generation:
    """State that was spilled after a step, at each port of an operator.

    No result that it owes is older than `since`; None if that is not known. For a grouping, it is what was answered
    when its groups were spilled. `produced` are the results that each of its groups gave before, by ascending group.
    """

    step: int
    groups: GroupSet
    since: int | None
    ports: tuple[tuple[Slice, ...], ...]
    produced: tuple[int, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows it lists."""
        return sum(piece.rows for slices in self.ports for piece in slices)

    @property
    def bytes(self) -> int:
        """How many bytes it lists."""
        return sum(piece.bytes for slices in self.ports for piece in slices)

    def of_groups(self, groups: GroupSet, cuts: Cuts) -> Generation:
        """What of it belongs to some groups."""
        meant = groups & self.groups
        if meant == self.groups:
            return self
        produced = dict(zip(self.groups.numbers().tolist(), self.produced, strict=True)) if self.produced else {}
        return replace(
            self,
            groups=meant,
            ports=tuple(slices_of_groups(slices, meant, cuts) for slices in self.ports),
            produced=tuple(produced[group] for group in meant.numbers().tolist()) if produced else (),
        )


def spilled_groups(generations: Iterable[Generation]) -> GroupSet | None:
    """The groups of which some state is spilled; None if there are none."""
    sets = [generation.groups for generation in generations]
    return reduce(GroupSet.__or__, sets) if sets else None
