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


@dataclass(frozen=True, slots=True)
class RelocateGroups:
    """Move partition groups of a family of operators from one processor to another.

    Operators that run fused are a family, called by the number of its first: their groups move together. With a `pace`
    the receiver reads so many bytes per step before the groups are its own, and what arrives for them is held back.
    """

    family: int
    groups: tuple[int, ...]
    sender: int
    receiver: int
    bytes: int
    reason: str
    pace: int | None = None


@dataclass(frozen=True, slots=True)
class HoldGroups:
    """Let all rows of some partition groups wait in the next step: those that arrive, and those that wait already."""

    processor: int
    family: int
    groups: tuple[int, ...]
    reason: str


Action = SpillGroups | RelocateGroups | HoldGroups
