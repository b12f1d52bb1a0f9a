"""The runs behind figures 17 and 20 of paper 1: one of three processors has most of the partition groups at first.

One variant spills only. The other relocates as well, below a difference of 80%, before it spills in the same way.
"""

from __future__ import annotations

from anabranch.bench.experiments.rig.variant import Variant
from anabranch.manager.policies.lazy_disk import LazyDisk
from anabranch.manager.policies.spill import Spill


def variants(relocating: str, memory: int, spill: Spill, shares: tuple[int, int, int]) -> tuple[Variant, Variant]:
    """Both variants, the second under the name `relocating`; `shares` of the groups begin on each processor."""
    lazy = LazyDisk(difference=0.8, span="150 milliseconds", spill=spill)
    return (
        Variant("spill", memory, (spill,), processors=3, initial_placement=shares),
        Variant(relocating, memory, (lazy,), processors=3, initial_placement=shares),
    )
