"""The picture of a prepared plan, and the state that its processors have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from anabranch.manager.plan_shape import shape_of
from anabranch.manager.tiers.clusters import Clusters
from anabranch.observe.diffused import overhead
from anabranch.plan.explain import Measured, Picture, explain
from anabranch.plan.placement import Placement
from anabranch.runtime.compile.prepared import PreparedPlan
from anabranch.runtime.driver.step.result import StepResult


def draw(
    plan: PreparedPlan,
    placements: Sequence[Placement],
    processors: int,
    measured: Measured | None = None,
    clusters: Clusters | None = None,
) -> Picture:
    """Draw a plan with the placements of its operators on a number of processors, or on clusters of them."""
    shape = shape_of(plan.network, plan.layout.processor, plan.layout.families, plan.layout.kindred)
    return explain(
        plan.network,
        plan.streams,
        key_types=[[data_type.simpleString() for data_type in types] for types in plan.layout.key_types],
        rounds=plan.layout.rounds,
        placements=placements,
        groups=plan.layout.processor.groups,
        processors=processors,
        measured=measured,
        flow=plan.graph.flow,
        parted=[shape.operators[n].name for n in shape.parted],
        clusters=[] if clusters is None else [clusters.of_processors(placement) for placement in placements],
    )


class Drawn(Protocol):
    """A query or a run: it has a picture."""

    def _picture(self) -> Picture: ...


def outline(drawn: Drawn) -> str:
    """The plan of a query or a run in short: the titles of its boxes."""
    return drawn._picture().outline


def state_lines(result: StepResult) -> Iterator[str]:
    """A line per processor: its active state after a step, and the use of its memory."""
    for report, use in zip(result.reports, result.memory, strict=True):
        yield f"processor {report.processor}: {report.active_rows:,} rows of active state, {use.sentence()}"


def diffusion_lines(result: StepResult) -> Iterator[str]:
    """A line for groups that are diffused alike after a step, and one for what that cost in it."""
    yield from (entry.sentence for entry in result.diffused)
    if result.diffused:
        copied = sum(sum(report.copied) for report in result.reports)
        yield f"what diffusion costs: {overhead(result.diffused, copied)}, in the last step"
