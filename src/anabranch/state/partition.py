"""Moving partition groups: Flux's interface to stateful operators (paper 2, sections 5.1 and 6.1).

An operator whose state can be extracted, installed and described, partition by partition, can be re-partitioned while
it runs. The paper's getPartitionState, installPartitionState and getPartitionInfo are edits of what manifests list, the
same for every operator, since state is files that all processors can reach: nothing is read and nothing is copied.
Active state, spilled generations, statistics and rows that are held back move together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from anabranch.state.groups import GroupSet
from anabranch.state.manifest import Manifest, OperatorState
from anabranch.state.runs.slice import Cuts
from anabranch.state.spill import rows_by_group, spilled_bytes


def extract(
    manifest: Manifest, operators: Collection[int], groups: GroupSet, owners: Sequence[int], cuts: Cuts
) -> tuple[Manifest, Manifest]:
    """Split a processor's state in two: what it keeps, and the state of some groups of some operators.

    `owners` are the operators that ports belong to.
    """
    everything, nothing = GroupSet.all(groups.count), GroupSet(groups.count, 0)
    taken = [groups if n in operators else nothing for n in range(len(manifest.operators))]
    kept = [everything - own for own in taken]
    return manifest.of_groups(kept, owners, cuts), manifest.of_groups(taken, owners, cuts)


def install(manifest: Manifest, part: Manifest) -> Manifest:
    """Add what was extracted from another processor's state to a processor's state."""
    return manifest.union(part)


def partition_info(state: OperatorState, count: int) -> dict[int, dict[str, int]]:
    """Numbers on an operator's groups on a processor, by group: active and spilled bytes, results, generations, and
    rows that have arrived (the paper's getPartitionInfo)."""
    statistics = state.statistics.dense(count)
    spilled = spilled_bytes(state.generations, count)
    generations = np.zeros(count, dtype=np.int64)
    for generation in state.generations:
        generations += generation.groups.mask()
    present = np.flatnonzero((statistics.bytes > 0) | (spilled > 0)).tolist()
    return {
        group: {
            "activeBytes": int(statistics.bytes[group]),
            "spilledBytes": int(spilled[group]),
            "results": int(statistics.produced[group]),
            "generations": int(generations[group]),
            "rows": int(statistics.arrived[group]),
        }
        for group in present
    }


def held_rows(state: OperatorState, count: int, cuts: Cuts) -> Mapping[int, int]:
    """How many rows are held back, by group."""
    rows = rows_by_group((piece for slices in state.held for piece in slices), count, cuts)
    return {int(group): int(rows[group]) for group in np.flatnonzero(rows)}
