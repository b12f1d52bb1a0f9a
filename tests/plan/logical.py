"""Logical queries made of classes, and all trees that join their inputs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations, pairwise, permutations

from anabranch.plan.arrangement import Shape
from anabranch.plan.query import LogicalInput, LogicalQuery, Term

SECOND = 1_000_000


def query_of(inputs: int, classes: Sequence[Collection[int]], windows: Sequence[int | None] = ()) -> LogicalQuery:
    """A query over A, B, C, ... in which the inputs of each class are equal in a column of that class."""
    aliases = "ABCDEFGH"[:inputs]
    equalities = []
    for number, members in enumerate(classes):
        terms = [Term(aliases[n], f"c{number}", f"{aliases[n]}.c{number}") for n in sorted(members)]
        equalities += list(pairwise(terms))
    entries = [
        LogicalInput(alias, alias, window, (), ())
        for alias, window in zip(aliases, windows or [SECOND] * inputs, strict=True)
    ]
    return LogicalQuery("", tuple(entries), tuple(equalities), (), (), ())


def binary_trees(parts: tuple[int, ...]) -> Iterator[Shape]:
    """All binary trees, with both orders of the parts of each operator."""
    if len(parts) == 1:
        yield parts[0]
    for size in range(1, len(parts)):
        for left in combinations(parts, size):
            right = tuple(part for part in parts if part not in left)
            yield from ((low, high) for low in binary_trees(left) for high in binary_trees(right))


def all_trees(parts: tuple[int, ...]) -> Iterator[Shape]:
    """All trees with two or more parts per operator, in all orders of those."""
    if len(parts) == 1:
        yield parts[0]
    for blocks in _partitions(parts):
        if len(blocks) > 1:
            for order in permutations(blocks):
                yield from _products(order)


def _products(blocks: Sequence[tuple[int, ...]]) -> Iterator[tuple[Shape, ...]]:
    if not blocks:
        yield ()
        return
    for tree in all_trees(blocks[0]):
        yield from ((tree, *others) for others in _products(blocks[1:]))


def _partitions(parts: tuple[int, ...]) -> Iterator[list[tuple[int, ...]]]:
    if not parts:
        yield []
        return
    first, *rest = parts
    for size in range(len(rest) + 1):
        for chosen in combinations(rest, size):
            left = tuple(part for part in rest if part not in chosen)
            yield from ([(first, *chosen), *others] for others in _partitions(left))
