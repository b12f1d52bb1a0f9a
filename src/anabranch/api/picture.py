"""The picture of a prepared plan."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.plan.explain import Measured, Picture, explain
from anabranch.plan.placement import Placement
from anabranch.runtime.compile.prepared import PreparedPlan


def draw(
    plan: PreparedPlan, placements: Sequence[Placement], processors: int, measured: Measured | None = None
) -> Picture:
    """A plan as it runs on so many processors, with operators placed there."""
    return explain(
        plan.network,
        plan.streams,
        key_types=[[data_type.simpleString() for data_type in types] for types in plan.layout.key_types],
        rounds=plan.layout.rounds,
        placements=placements,
        groups=plan.layout.processor.groups,
        processors=processors,
        measured=measured,
    )
