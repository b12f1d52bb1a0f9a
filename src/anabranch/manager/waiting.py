"""Whether state has rows that wait for an answer, or results that it owes, after a step.

Rows are *held back* while their partition group is on its way to another processor; a grouping that does so *lags*.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from anabranch.state.manifest import Manifest


def rows_wait(manifests: Sequence[Manifest]) -> bool:
    """Whether rows of any operator are held back."""
    states = (state for manifest in manifests for state in manifest.operators)
    return any(state.held or state.lagging for state in states)


def is_spilled(manifests: Sequence[Manifest]) -> bool:
    """Whether any operator has state on disk."""
    return any(state.generations for manifest in manifests for state in manifest.operators)


def joins_are_behind(manifests: Sequence[Manifest], joins: Collection[int]) -> bool:
    """Whether some joins, given by the numbers of their operators, owe results or hold rows back."""
    states = (manifest.operators[n] for manifest in manifests for n in joins)
    return any(state.held or state.owing() for state in states)
