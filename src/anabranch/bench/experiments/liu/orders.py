"""The runs behind figures 11 and 12: push the least or the most productive groups first when memory runs short."""

from __future__ import annotations

from anabranch.bench.experiments.rig.variant import Variant
from anabranch.bench.experiments.rig.workload import JoinWorkload
from anabranch.manager.policies.spill import Spill
from anabranch.sources.synthetic import Synthetic

MEMORY = 1_600_000

VARIANTS = (
    Variant("push low", MEMORY, (Spill(order="least-productive", idle=None),)),
    Variant("push high", MEMORY, (Spill(order="most-productive", idle=None),)),
)


def workload(*ratios: int) -> JoinWorkload:
    """Three streams whose groups have these join ratios."""
    return JoinWorkload(rows=90_000, batch_count=30, stream=Synthetic(tuple_range=30_000, ratios=ratios))
