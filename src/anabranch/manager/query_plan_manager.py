"""The query plan manager (paper 5, section 4.3): whether a distribution of a plan over processors is valid.

It is if every operator is placed exactly once, all of it, on processors that are alive. Spark replaces an executor that
is lost, so a processor is alive as long as it has a number: it is one that there is a manifest of.
"""

from __future__ import annotations

from anabranch.manager.distribution import Distribution
from anabranch.manager.plan_shape import PlanShape
from anabranch.plan.routing import check_routings


def check_valid(plan: PlanShape, distribution: Distribution) -> Distribution:
    """`distribution` itself, if every group of every operator of a plan is routed as it must be."""
    check_routings(distribution.routings, plan.owners, distribution.groups, distribution.processors)
    return distribution


def fits(plan: PlanShape, distribution: Distribution) -> bool:
    """Whether operators of a family are placed alike."""
    homes = distribution.placements
    return all(homes[n] == homes[family] for n, family in enumerate(plan.families))
