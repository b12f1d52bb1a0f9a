"""What can be done to a running query between two batches, with the reason why.

Numbers may be Python's or NumPy's, as snapshots have them. What is none is refused where the action is made, which is
in the policy that got it wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from anabranch.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SpillGroups:
    """Take partition groups of an operator out of the active state of a processor."""

    processor: int
    operator: int
    groups: tuple[int, ...]
    bytes: int
    reason: str

    def __post_init__(self) -> None:
        """Refuse what is no number."""
        _settle(self, "processor", "operator", "bytes")


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

    def __post_init__(self) -> None:
        """Refuse what is no number."""
        _settle(self, "family", "sender", "receiver", "bytes", *(() if self.pace is None else ("pace",)))


@dataclass(frozen=True, slots=True)
class HoldGroups:
    """Let all rows of some partition groups wait in the next step: those that arrive, and those that wait already."""

    processor: int
    family: int
    groups: tuple[int, ...]
    reason: str

    def __post_init__(self) -> None:
        """Refuse what is no number."""
        _settle(self, "processor", "family")


Action = SpillGroups | RelocateGroups | HoldGroups


def is_whole(value: object) -> bool:
    """Whether something is a whole number, of Python or NumPy; True and False are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _settle(action: Action, *names: str) -> None:
    """Make the groups, and the fields of these names, numbers of Python."""
    groups: Any = action.groups
    if not isinstance(groups, Iterable) or isinstance(groups, str):
        raise ConfigError(f"{type(action).__name__}: groups must be a list of whole numbers, not {groups!r}")
    settled = {name: getattr(action, name) for name in names}
    found = tuple(groups)
    for name, value in [*settled.items(), *(("groups", group) for group in found)]:
        if not is_whole(value):
            raise ConfigError(f"{type(action).__name__}: {name} must be whole numbers, not {value!r}")
    object.__setattr__(action, "groups", tuple(map(int, found)))
    for name, value in settled.items():
        object.__setattr__(action, name, int(value))
