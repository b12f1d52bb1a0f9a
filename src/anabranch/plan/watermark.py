"""Late rows and purgeable state (SPEC section 0), as pure arithmetic on event time.

The watermark of input j is the greatest ts seen before the batch minus j's lateness; it exists only if j has a
window and a lateness. From now on j delivers nothing older.

A stored row s of input i can only be part of a new result through a later row x of some other input j, and needs
s.ts >= x.ts - w_i >= watermark_j - w_i. So rows older than min over j != i of watermark_j, minus w_i, are dead. If
any of the other inputs has no watermark (it is unbounded, or has no lateness) nothing of i ever dies.

Where no window can expire, no row is late: dropping it would save nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InputTime:
    """Window and lateness of one input in microseconds; None is unbounded, or never late."""

    window: int | None
    lateness: int | None

    @property
    def has_watermark(self) -> bool:
        """Whether rows of this input can be late."""
        return self.window is not None and self.lateness is not None


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Per input: rows older than `late` are late, stored rows older than `purge` are dead; None means never."""

    late: tuple[int | None, ...]
    purge: tuple[int | None, ...]


def can_expire(inputs: Sequence[InputTime], i: int) -> bool:
    """Whether rows of input i can ever die."""
    others = [other for j, other in enumerate(inputs) if j != i]
    return inputs[i].window is not None and all(other.has_watermark for other in others)


def thresholds(inputs: Sequence[InputTime], newest: Sequence[int | None]) -> Thresholds:
    """What is late and what is dead, given the greatest ts seen per input before this batch."""
    watermarks = [
        seen - entry.lateness if entry.has_watermark and entry.lateness is not None and seen is not None else None
        for entry, seen in zip(inputs, newest, strict=True)
    ]
    expiring = [can_expire(inputs, i) for i in range(len(inputs))]
    late = tuple(
        watermark if any(expiring[i] for i in range(len(inputs)) if i != j) else None
        for j, watermark in enumerate(watermarks)
    )
    purge = []
    for i, entry in enumerate(inputs):
        others = [watermark for j, watermark in enumerate(watermarks) if j != i]
        known = [watermark for watermark in others if watermark is not None]
        dead = expiring[i] and entry.window is not None and len(known) == len(others)
        purge.append(min(known) - entry.window if dead and entry.window is not None else None)
    return Thresholds(late, tuple(purge))


def retention(inputs: Sequence[InputTime], i: int) -> int | None:
    """About how much event time a row of input i is kept, or None if it is kept for ever."""
    window = inputs[i].window
    if window is None or not can_expire(inputs, i):
        return None
    return window + max(other.lateness or 0 for j, other in enumerate(inputs) if j != i)
