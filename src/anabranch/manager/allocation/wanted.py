"""What a user or a policy wants of where operators are: the allocation that this makes, or why it cannot be.

Diffusion wants something of its own: an operator that is fused with others parts from them, and joins them again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from anabranch.errors import ConfigError, did_you_mean
from anabranch.manager.actions.numbers import is_whole
from anabranch.manager.distribution import Distribution
from anabranch.manager.plan_shape import PlanShape
from anabranch.manager.tiers.clusters import Clusters
from anabranch.plan.allocation import Allocation, parted, reallocated, rejoined
from anabranch.plan.placement import Placement

SPREAD = "spread"
STAY = "stay"


class ForDiffusion(StrEnum):
    """What diffusion wants of an operator that could run fused with others."""

    PART = "part"
    REJOIN = "rejoin"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Operators, by name, are to go to a processor, to all of them (`SPREAD`), or nowhere else (`STAY`); or they are to
    part from those that they run fused with while groups of them are diffused, or to join them again.

    With its `subplan` an operator takes everything along that only feeds it. Operators that are to be `apart` run in
    rounds of their own, whatever else is at their place.
    """

    operators: tuple[str, ...]
    to: int | str | ForDiffusion
    reason: str
    subplan: bool = False
    apart: bool = False


def operators_of(plan: PlanShape, wanted: Wanted, answering: Collection[int]) -> tuple[int, ...]:
    """The numbers of the operators that are meant; those that are `answering` feed an answer, too."""
    numbers = {operator.name: operator.number for operator in plan.operators}
    if not wanted.operators:
        raise ConfigError("no operator was given")
    for name in wanted.operators:
        if not isinstance(name, str) or name not in numbers:
            raise ConfigError(f"there is no operator {name!r}; {did_you_mean(str(name), list(numbers))}")
    chosen = {numbers[name] for name in wanted.operators}
    if wanted.subplan:
        for operator in reversed(plan.operators):
            fed = {
                upper.number for upper in plan.operators for edge in upper.edges if operator.number in edge.operators
            }
            if fed and fed <= chosen and operator.number not in answering:
                chosen.add(operator.number)
    return tuple(sorted(chosen))


def allocation_after(
    plan: PlanShape,
    distribution: Distribution,
    allocation: Allocation,
    operators: Sequence[int],
    wanted: Wanted,
    clusters: Clusters | None = None,
) -> Allocation:
    """The allocation after these operators have gone where they are wanted; what cannot rejoin its kin yet stays. With
    `clusters` that is within their own: all processors are those of the cluster."""
    if isinstance(wanted.to, ForDiffusion):
        for n in operators:
            after = _for_diffusion(plan, distribution, allocation, n, wanted.to)
            allocation = allocation if after is None else after
        return allocation
    places: dict[tuple[Placement | None, tuple[int, ...]], list[int]] = {}
    for n in operators:
        placement = _placement(distribution, allocation.placements[n], wanted.to)
        hosts = _hosts(plan.operators[n].name, distribution, allocation.placements[n], placement, clusters)
        places.setdefault((placement, hosts), []).append(n)
    for (placement, hosts), of in places.items():
        allocation = reallocated(
            allocation,
            [operator.kindred for operator in plan.operators],
            of,
            placement,
            hosts=hosts,
            apart=wanted.apart,
            closed=closed_families(plan, distribution, of),
        )
    return allocation


def can_rejoin(plan: PlanShape, distribution: Distribution, allocation: Allocation) -> list[str]:
    """The names of the operators that diffusion has set apart and that can join their kin again: nothing of them is
    diffused, and nothing that they join is diffused or on its way."""
    return [
        plan.operators[n].name
        for n in sorted(allocation.parted)
        if _for_diffusion(plan, distribution, allocation, n, ForDiffusion.REJOIN) is not None
    ]


def _for_diffusion(
    plan: PlanShape, distribution: Distribution, allocation: Allocation, operator: int, way: ForDiffusion
) -> Allocation | None:
    """The allocation after an operator has parted, or has joined its kin again; None if it cannot now."""
    if way is ForDiffusion.PART:
        return parted(allocation, operator)
    closed = closed_families(plan, distribution, ())
    if operator not in allocation.parted or plan.operators[operator].family in closed:
        return None
    return rejoined(allocation, [shape.kindred for shape in plan.operators], operator, closed)


def _placement(distribution: Distribution, now: Placement, to: int | str) -> Placement | None:
    """The placement that is wanted; None for all processors."""
    if to == STAY:
        return now
    if to == SPREAD:
        return None
    if not is_whole(to) or not 0 <= int(to) < distribution.processors:
        raise ConfigError(
            f"an operator goes to a processor from 0 to {distribution.processors - 1}, or to all of them "
            f"(None or {SPREAD!r}), not to {to!r}"
        )
    return (int(to),) * distribution.groups


def _hosts(
    name: str, distribution: Distribution, now: Placement, placement: Placement | None, clusters: Clusters | None
) -> tuple[int, ...]:
    """The processors that an operator may be on; refused if it is to go to others."""
    home = None if clusters is None else clusters.of_processors(now)
    if clusters is None or home is None:
        return tuple(range(distribution.processors))
    if placement is not None and clusters.of_processors(placement) != home:
        other = clusters.of_processor(placement[0])
        raise ConfigError(
            f"{name} is in {clusters.text(home)}, and processor {placement[0]} is not; a query goes to another cluster "
            f"as a whole: run.send(query, to={other!r})"
        )
    return clusters.hosts(home)


def closed_families(plan: PlanShape, distribution: Distribution, operators: Sequence[int]) -> set[int]:
    """The families that no operator can enter: groups of them are diffused, or on their way."""
    moving = {relocation.move.family for relocation in distribution.moving}
    diffused = {n for n, routing in enumerate(distribution.routings) if routing.diffused and n not in operators}
    return moving | {plan.operators[n].family for n in diffused}
