"""Where operators are: the processor of every partition group of every operator.

An operator may be spread over all processors, or be whole on one of them, or anything between. State lies where its
operator is, and rows are exchanged to where they are needed (`rounds`).

Where operators are at first is for patterns to say (`manager/patterns`). What is spread has a block of groups on each
processor; blocks differ by at most one group, or by given shares.

While a query runs groups move. Operators that run fused, one after the other on the same rows, are a *family*: they are
placed alike, and a group moves for all of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate, groupby
from math import inf

from anabranch.errors import ConfigError

# The processor of each partition group.
Placement = tuple[int, ...]

EVEN = "even"


def even_placement(groups: int, processors: int) -> Placement:
    """Contiguous blocks of groups, one per processor."""
    if processors < 1:
        raise ConfigError(f"processors must be 1 or more, not {processors}")
    if processors > groups:
        raise ConfigError(f"{processors} processors need at least as many partition groups, not {groups}")
    return tuple(group * processors // groups for group in range(groups))


def spread_over(hosts: Sequence[int], groups: int) -> Placement:
    """A block of groups for each of some processors, as even as can be; all groups for a single one."""
    return tuple(hosts[nth] for nth in even_placement(groups, len(hosts)))


def placement_by_shares(groups: int, shares: Sequence[float]) -> Placement:
    """Contiguous blocks of groups, as large as each processor's share among all shares, rounded."""
    edges = [round(groups * share / sum(shares)) for share in accumulate(shares)]
    return tuple(bisect_right(edges, group) for group in range(groups))


def check_shares(shares: object, processors: int) -> tuple[float, ...] | None:
    """The share of the groups that each processor has at first, as a user gives them; None for equal ones."""
    if shares is None or shares == EVEN:
        return None
    expected = "initial_placement is 'even' or a list of shares, one per processor, such as [4, 1, 1]"
    if not isinstance(shares, Sequence) or isinstance(shares, str):
        raise ConfigError(f"{expected}, not {shares!r}")
    if not all(isinstance(share, int | float) and not isinstance(share, bool) for share in shares):
        raise ConfigError(f"{expected}, not {shares!r}")
    if len(shares) != processors:
        raise ConfigError(f"initial_placement has {len(shares)} shares for {processors} processors; give one each")
    if not all(0 <= share < inf for share in shares) or not sum(shares) > 0:
        raise ConfigError(f"the shares of initial_placement must be numbers from 0 on, and not all 0, not {shares!r}")
    return tuple(float(share) for share in shares)


def moved(placement: Placement, groups: Collection[int], receiver: int) -> Placement:
    """The placement after some groups have moved to a processor."""
    return tuple(receiver if group in groups else owner for group, owner in enumerate(placement))


def rescaled(placement: Placement, processors: int) -> Placement:
    """Place the groups evenly on another number of processors, moving as few of them as possible."""
    even_placement(len(placement), processors)  # refuses what cannot be
    least, rest = divmod(len(placement), processors)
    owned = Counter(placement)
    order = sorted(range(processors), key=lambda processor: -owned[processor])
    room = {processor: least + (nth < rest) for nth, processor in enumerate(order)}
    owners: list[int | None] = []
    for owner in placement:
        stays = room.get(owner, 0) > 0
        if stays:
            room[owner] -= 1
        owners.append(owner if stays else None)
    free = iter([processor for processor in range(processors) for _ in range(room[processor])])
    return tuple(next(free) if owner is None else owner for owner in owners)


def converted(placement: Placement, before: int, after: int) -> Placement:
    """Convert a placement from `before` to `after` processors; an operator that is whole on one processor stays
    whole."""
    if before == after:
        return placement
    if before > 1 and len(set(placement)) == 1:
        return (placement[0] % after,) * len(placement)
    return rescaled(placement, after)


def families_of(operators: int, fused: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    """The family of each operator, called by its first member; `fused` are pairs of a lower operator and an upper."""
    family = list(range(operators))
    for lower, upper in fused:
        first, second = sorted((family[lower], family[upper]))
        family = [first if each == second else each for each in family]
    return tuple(family)


def as_blocks(placement: Placement) -> list[list[int]]:
    """A placement in few words: pairs of a processor and how many groups in a row it has."""
    return [[processor, sum(1 for _ in block)] for processor, block in groupby(placement)]


def from_blocks(blocks: Iterable[Sequence[int]]) -> Placement:
    """The inverse of `as_blocks`."""
    return tuple(processor for processor, count in blocks for _ in range(count))


def placement_text(placement: Placement, processors: int) -> str:
    """Where an operator is, for people."""
    used = sorted(set(placement))
    if len(used) == 1 and processors > 1:
        return f"whole on processor {used[0]}"
    if len(used) == processors:
        return "on all processors" if processors > 1 else "on the only processor"
    return f"on processors {', '.join(map(str, used))}"
