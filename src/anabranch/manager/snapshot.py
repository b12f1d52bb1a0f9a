"""What policies decide on: the state of all processors after a step, as numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from anabranch.manager.actions import Action
from anabranch.state.statistics import Statistics


@dataclass(frozen=True, slots=True)
class OperatorSeen:
    """An operator on one processor: what is known of its partition groups there, and whether they can be spilled."""

    operator: int
    statistics: Statistics
    spillable: bool = True


@dataclass(frozen=True, slots=True)
class ProcessorSeen:
    """A processor with its active bytes (Mu in paper 1) and its operators."""

    processor: int
    active_bytes: int
    operators: tuple[OperatorSeen, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All processors after a step, at a time of the driver's clock. `memory` is the budget of each (Ma)."""

    step: int
    time: float
    memory: int | None
    processors: tuple[ProcessorSeen, ...]


class Policy(Protocol):
    """Something that decides."""

    def decide(self, snapshot: Snapshot) -> Iterator[Action]:
        """What should be done, given what is known."""
