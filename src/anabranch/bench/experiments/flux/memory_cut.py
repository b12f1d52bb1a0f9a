"""The runs behind figures 9 and 10 of paper 2 (section 6.2): the memory of one processor is cut in half.

The windowed group-by with a history that is full when the memory is cut, so its state does not grow any more. As in the
paper, three quarters of the memory of each processor are in use before, so after the cut all state still fits into the
memory of all processors together, but not on the processor that has it. Spilling alone pushes partition groups of that
processor to disk, and their tuples have to wait. With Flux's memory-constrained policy beside it partitions move to
processors with room.
"""

from __future__ import annotations

from anabranch.bench.experiments.rig.variant import CutMemory, Variant
from anabranch.bench.experiments.rig.workload import GroupWorkload
from anabranch.manager.policies.flux import FluxMemory
from anabranch.manager.policies.spill import Spill
from anabranch.manager.snapshot import Policy

PROCESSORS = 3
GROUPS = 64
BATCHES = 40
CUT = 16
WARM = 8
LAST = 10
MEMORY = 2_800_000

WORKLOAD = GroupWorkload(rows=20_000 * BATCHES, batch_count=BATCHES, keys=4_096, history=10)


def _variant(name: str, *policies: Policy) -> Variant:
    cut = CutMemory(CUT, 0, MEMORY // 2)
    return Variant(name, MEMORY, policies, PROCESSORS, groups=GROUPS, perturbations=(cut,))


VARIANTS = (
    _variant("static", Spill(idle=None)),
    _variant("flux", FluxMemory(on_disk=True, per_round=4), Spill(idle=None)),
)
