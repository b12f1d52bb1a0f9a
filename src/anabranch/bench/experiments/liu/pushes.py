"""The runs behind figures 9 and 10: push 0 to 100% of the active state, random groups, when memory runs short."""

from __future__ import annotations

from anabranch.bench.experiments.rig.variant import Variant
from anabranch.bench.experiments.rig.workload import JoinWorkload
from anabranch.manager.policies.spill import Spill
from anabranch.sources.synthetic import Synthetic

# Tuple range and join ratio as in the paper; rows and memory scaled so that memory runs short after a third of the run.
WORKLOAD = JoinWorkload(rows=90_000, batch_count=30, stream=Synthetic(tuple_range=30_000, ratios=(3,)))
MEMORY = 1_600_000
PUSHES = (0, 10, 20, 30, 50, 100)


def variants() -> tuple[Variant, ...]:
    """A variant per percentage."""
    return tuple(
        Variant(f"{push}% push", MEMORY, (Spill(push=push / 100, order="random", idle=None),)) for push in PUSHES
    )
