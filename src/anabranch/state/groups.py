"""Partition groups are ranges of the unsigned key hash.

With G groups (a power of two) the group of a row is the top log2(G) bits of its hash. In anything sorted by hash a
group is therefore one contiguous slice, and finding it is two binary searches, whatever G is.

Adaptations move groups, not rows: a run of many groups is listed by several owners at once, each with the set of groups
(`GroupSet`) whose rows it means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from anabranch.errors import ConfigError

DEFAULT_GROUPS = 256
MAX_GROUPS = 65_536


def check_groups(groups: int) -> int:
    """`groups` itself, if it is a usable number of partition groups."""
    if not isinstance(groups, int) or not 1 <= groups <= MAX_GROUPS or groups & (groups - 1):
        raise ConfigError(f"groups must be a power of two from 1 to {MAX_GROUPS}, not {groups!r}")
    return groups


def group_bits(groups: int) -> int:
    """How many leading bits of the hash name the group."""
    return groups.bit_length() - 1


@lru_cache(maxsize=16)
def group_starts(groups: int) -> NDArray[np.uint64]:
    """The smallest hash of every group, ascending."""
    shift = 64 - group_bits(groups)
    return np.array([group << shift for group in range(groups)], dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class GroupSet:
    """Some of `count` partition groups, as the bits of a number."""

    count: int
    bits: int

    @classmethod
    def of(cls, count: int, groups: Iterable[int]) -> GroupSet:
        """The set of these groups."""
        mask = np.zeros(count, dtype=bool)
        mask[np.fromiter(groups, dtype=np.int64)] = True
        return cls(count, int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little"))

    @classmethod
    def all(cls, count: int) -> GroupSet:
        """All groups."""
        return cls(count, (1 << count) - 1)

    def __bool__(self) -> bool:
        return self.bits != 0

    def __len__(self) -> int:
        return self.bits.bit_count()

    def __and__(self, other: GroupSet) -> GroupSet:
        return GroupSet(self.count, self.bits & other.bits)

    def __or__(self, other: GroupSet) -> GroupSet:
        return GroupSet(self.count, self.bits | other.bits)

    def __sub__(self, other: GroupSet) -> GroupSet:
        return GroupSet(self.count, self.bits & ~other.bits)

    def numbers(self) -> NDArray[np.int64]:
        """The groups of the set, ascending."""
        return np.flatnonzero(self.mask())

    def mask(self) -> NDArray[np.bool_]:
        """Whether a group is in the set, by its number."""
        return _mask(self.count, self.bits)

    def holds(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Which of some hashes belong to a group of the set."""
        held: NDArray[np.bool_] = self.mask()[groups_of(hashes, self.count)]
        return held

    @property
    def is_all(self) -> bool:
        """Whether no group is missing."""
        return len(self) == self.count

    def to_text(self) -> str:
        """As stored: hexadecimal."""
        return f"{self.bits:x}"

    @classmethod
    def from_text(cls, count: int, text: str) -> GroupSet:
        """The inverse of `to_text`."""
        return cls(count, int(text, 16))


def union_by_operator(some: Mapping[int, GroupSet], others: Mapping[int, GroupSet]) -> dict[int, GroupSet]:
    """The union of two sets of groups per operator."""
    both = {n: some[n] | groups for n, groups in others.items() if n in some}
    return {**some, **others, **both}


@lru_cache(maxsize=1_024)
def _mask(count: int, bits: int) -> NDArray[np.bool_]:
    octets = np.frombuffer(bits.to_bytes((count + 7) // 8, "little"), dtype=np.uint8)
    return np.unpackbits(octets, count=count, bitorder="little").astype(bool)


def groups_of(hashes: NDArray[np.uint64], groups: int) -> NDArray[np.int64]:
    """The groups of some hashes."""
    if groups == 1:
        return np.zeros(len(hashes), dtype=np.int64)
    return (hashes >> np.uint64(64 - group_bits(groups))).view(np.int64)


def group_cuts(hashes: NDArray[np.uint64], groups: int) -> NDArray[np.int64]:
    """Where each group begins among ascending hashes, and at last their number."""
    return np.append(np.searchsorted(hashes, group_starts(groups), side="left"), len(hashes))


def group_counts(hashes: NDArray[np.uint64], groups: int) -> NDArray[np.int64]:
    """How many entries of an ascending array of hashes fall into each group."""
    return np.diff(group_cuts(hashes, groups))
