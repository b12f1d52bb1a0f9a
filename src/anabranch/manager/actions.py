"""What can be done to a running query between two batches, with the reason why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SpillGroups:
    """Take partition groups of an operator out of the active state of a processor."""

    processor: int
    operator: int
    groups: tuple[int, ...]
    bytes: int
    reason: str


Action = SpillGroups
