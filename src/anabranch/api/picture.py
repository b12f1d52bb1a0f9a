"""The picture of a prepared plan."""

from __future__ import annotations

from anabranch.plan.explain import Measured, Picture, explain
from anabranch.runtime.outcome import StepSettings
from anabranch.runtime.prepare import Plan


def draw(plan: Plan, settings: StepSettings, measured: Measured | None = None) -> Picture:
    """A plan as it runs on an engine with these settings."""
    return explain(
        plan.network,
        plan.streams,
        key_types=[[data_type.simpleString() for data_type in types] for types in plan.layout.key_types],
        rounds=plan.layout.rounds,
        placements=plan.layout.placements,
        groups=settings.groups,
        processors=settings.processors,
        measured=measured,
    )
