"""Partition groups are ranges of the unsigned key hash.

With G groups (a power of two) the group of a row is the top log2(G) bits of its hash. In anything sorted by hash a
group is therefore one contiguous slice, and finding it is two binary searches, whatever G is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

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


def group_starts(groups: int) -> NDArray[np.uint64]:
    """The smallest hash of every group, ascending."""
    shift = 64 - group_bits(groups)
    return np.array([group << shift for group in range(groups)], dtype=np.uint64)


def owned_ranges(placement: Sequence[int], processor: int) -> list[tuple[int, int]]:
    """The hash ranges [first, last] that a processor owns, neighbours joined."""
    shift = 64 - group_bits(len(placement))
    ranges = []
    first = 0
    for owner, block in groupby(placement):
        last = first + sum(1 for _ in block)
        if owner == processor:
            ranges.append((first << shift, (last << shift) - 1))
        first = last
    return ranges


def group_counts(hashes: NDArray[np.uint64], groups: int) -> NDArray[np.int64]:
    """How many entries of an ascending array of hashes fall into each group."""
    cuts = np.searchsorted(hashes, group_starts(groups), side="left")
    return np.diff(cuts, append=len(hashes)).astype(np.int64)
