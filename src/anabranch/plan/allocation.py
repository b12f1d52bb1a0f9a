"""Allocations: where the operators of a plan are, which of them may run fused, and what a reallocation makes of that.

Operators run fused if they are kindred and placed alike (`rounds`). What began apart by its placement stays apart when
groups move and two placements come to be equal by chance. So an allocation lists families as well, and only operators
of one family run fused. A reallocated operator leaves its family, and enters those that it can run fused with at its
new place.

An operator can be set *apart*: it runs in a round of its own although it is placed like its kin, until it is
reallocated again. An operator is *parted* if diffusion has set it apart: it is to join its kin again when nothing of
it is diffused any more (`parted`, `rejoined`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from anabranch.plan.placement import Placement, converted, spread_over

# What an operator is called by: a number or an identity.
Name = TypeVar("Name", int, str)


@dataclass(frozen=True, slots=True)
class Allocation:
    """The placement of each operator, by number, and its family; without families whoever is placed alike may run
    fused. Operators `apart` have families of their own that no other operator enters. Those of them that are `parted`
    are to join their kin again: the operators that they ran fused with, and that nobody has reallocated since."""

    placements: tuple[Placement, ...]
    families: tuple[int, ...] | None = None
    apart: frozenset[int] = frozenset()
    parted: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KnownAllocation:
    """Where operators are, by identity, on so many processors: what a plan goes on with that has some of them.

    The program `wanted` them elsewhere at first, on another number of processors. More `hosts` than those of the
    placement have a part in operators of which groups are diffused or on their way.
    """

    processors: int
    placements: Mapping[str, Placement]
    families: Mapping[str, int]
    apart: frozenset[str]
    wanted_processors: int
    wanted: Mapping[str, Placement]
    parted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    hosts: Mapping[str, frozenset[int]] = field(default_factory=dict)

    def is_wanted(self, processors: int, identities: Sequence[str], initial: Sequence[Placement]) -> bool:
        """Whether a program that wants these initial placements wants the same as before."""
        pairs = zip(identities, initial, strict=True)
        return processors == self.wanted_processors and all(
            placement == self.wanted.get(name, placement) for name, placement in pairs
        )


def continued(
    known: KnownAllocation,
    identities: Sequence[str],
    initial: Sequence[Placement],
    initial_families: Sequence[int],
    processors: int,
) -> Allocation:
    """The allocation of a plan with operators that are known and others that are new.

    What is known stays where it is. A new operator goes where its initial family is, and else where it is wanted: in
    its initial placement on so many `processors`, converted to as many as there are.
    """
    count = len(identities)
    families: list[int | None] = [known.families.get(name) for name in identities]
    placements = [known.placements.get(name) for name in identities]
    fresh = max(known.families.values(), default=-1) + 1
    for n in range(count):
        if placements[n] is not None:
            continue
        kin = [
            m
            for m in range(count)
            if initial_families[m] == initial_families[n]
            and placements[m] is not None
            and identities[m] not in known.apart
        ]
        placements[n] = placements[kin[0]] if kin else converted(initial[n], processors, known.processors)
        families[n] = families[kin[0]] if kin else fresh + n
    return Allocation(
        tuple(placement for placement in placements if placement is not None),
        tuple(family for family in families if family is not None),
        frozenset(n for n, name in enumerate(identities) if name in known.apart),
        renumbered(known.parted, {name: n for n, name in enumerate(identities)}),
    )


def renumbered(parted: Mapping[Name, Sequence[Name]], numbers: Mapping[Name, int]) -> dict[int, tuple[int, ...]]:
    """The parted operators, with their kin, by the numbers of those that are still there."""
    return {
        numbers[name]: tuple(numbers[other] for other in kin if other in numbers)
        for name, kin in parted.items()
        if name in numbers
    }


def reallocated(
    allocation: Allocation,
    kindred: Sequence[int],
    operators: Collection[int],
    placement: Placement | None,
    *,
    hosts: Sequence[int],
    apart: bool = False,
    closed: Collection[int] = (),
) -> Allocation:
    """The allocation after some operators have got a placement; None spreads them over `hosts`, the processors that
    they may be on.

    Operators with the same number in `kindred` can run fused where they are placed alike. An operator that is spread
    goes where spread kin of it is, if there is some on these hosts. Families in `closed` cannot be entered.
    """
    assert allocation.families is not None, "the plan has been compiled"
    placements, families = list(allocation.placements), list(allocation.families)
    groups, fresh = len(placements[0]), max(families) + 1
    for n in operators:
        families[n] = fresh + n
        placements[n] = spread_over(hosts, groups)
    for n in operators:
        spread = [
            placements[m]
            for m in range(len(placements))
            if m not in operators
            and kindred[m] == kindred[n]
            and len(set(placements[m])) > 1
            and {*placements[m]} <= {*hosts}
        ]
        placements[n] = placement or next(iter(spread), placements[n])
    alone = allocation.apart - {*operators} | ({*operators} if apart else set())
    for n in operators:
        alike = [
            m
            for m in range(len(placements))
            if kindred[m] == kindred[n]
            and placements[m] == placements[n]
            and n not in alone
            and m not in alone
            and families[m] not in closed
        ]
        entered = {families[m] for m in alike}
        families = [families[n] if family in entered else family for family in families]
    parted = {
        n: tuple(m for m in kin if m not in operators) for n, kin in allocation.parted.items() if n not in operators
    }
    return Allocation(tuple(placements), tuple(families), frozenset(alone), parted)


def parted(allocation: Allocation, operator: int) -> Allocation:
    """The allocation after an operator has parted from its family, until it joins it again (`rejoined`)."""
    assert allocation.families is not None, "the plan has been compiled"
    families, own = list(allocation.families), allocation.families[operator]
    kin = tuple(n for n, family in enumerate(families) if family == own and n != operator)
    families[operator] = max(families) + 1
    return replace(
        allocation,
        families=tuple(families),
        apart=allocation.apart | {operator},
        parted={**allocation.parted, operator: kin},
    )


def rejoined(
    allocation: Allocation, kindred: Sequence[int], operator: int, closed: Collection[int]
) -> Allocation | None:
    """The allocation after a parted operator has joined its kin again; None as long as one of them cannot be joined.

    Kin may have lost each other when the operator parted: what fed it and what it fed. And since then groups of them
    may have moved. So all go to where the largest family of them is, and are one family.
    """
    assert allocation.families is not None, "the plan has been compiled"
    placements, families = list(allocation.placements), list(allocation.families)
    kin = [n for n in allocation.parted[operator] if kindred[n] == kindred[operator]]
    entered = [families[n] for n in kin]
    if {*entered} & {*closed} or {*kin} & allocation.apart:
        return None
    if kin:
        best = max(entered, key=lambda family: (families.count(family), -family))
        placement = placements[families.index(best)]
        for n, family in enumerate(allocation.families):
            if n == operator or family in entered:
                placements[n], families[n] = placement, best
    return Allocation(
        tuple(placements),
        tuple(families),
        allocation.apart - {operator},
        {n: others for n, others in allocation.parted.items() if n != operator},
    )
