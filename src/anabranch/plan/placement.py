"""Where operators are: the processor of every partition group of every operator.

An operator may be spread over all processors, or be whole on one of them, or anything between. State lies where its
operator is, and rows are exchanged to where they are needed (`rounds`).

Patterns say how operators are placed at first: `spread` gives each processor a block of groups of every operator,
blocks differing by at most one group; `round-robin` puts whole operators on processors, in turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from anabranch.errors import ConfigError, did_you_mean

# The processor of each partition group.
Placement = tuple[int, ...]

SPREAD = "spread"
ROUND_ROBIN = "round-robin"
PATTERNS = (SPREAD, ROUND_ROBIN)


def even_placement(groups: int, processors: int) -> Placement:
    """Contiguous blocks of groups, one per processor."""
    if processors < 1:
        raise ConfigError(f"processors must be 1 or more, not {processors}")
    if processors > groups:
        raise ConfigError(f"{processors} processors need at least as many partition groups, not {groups}")
    return tuple(group * processors // groups for group in range(groups))


def place(pattern: str, operators: int, groups: int, processors: int) -> tuple[Placement, ...]:
    """The placement of each of some operators by a pattern."""
    if pattern == SPREAD:
        return (even_placement(groups, processors),) * operators
    return tuple((n % processors,) * groups for n in range(operators))


def check_pattern(pattern: str) -> str:
    """`pattern` itself, if there is one of that name."""
    if pattern not in PATTERNS:
        raise ConfigError(f"there is no placement {pattern!r}; {did_you_mean(str(pattern), PATTERNS)}")
    return pattern


def as_blocks(placement: Placement) -> list[list[int]]:
    """A placement in few words: pairs of a processor and how many groups in a row it has."""
    return [[processor, sum(1 for _ in block)] for processor, block in groupby(placement)]


def from_blocks(blocks: Iterable[Sequence[int]]) -> Placement:
    """The inverse of `as_blocks`."""
    return tuple(processor for processor, count in blocks for _ in range(count))


def describe(placement: Placement, processors: int) -> str:
    """Where an operator is, for people."""
    used = sorted(set(placement))
    if len(used) == 1 and processors > 1:
        return f"whole on processor {used[0]}"
    if len(used) == processors:
        return "on all processors" if processors > 1 else "on the only processor"
    return f"on processors {', '.join(map(str, used))}"
