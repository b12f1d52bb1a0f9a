"""Join keys out of equalities.

The equalities of a query connect terms (an expression of one alias each). Terms that equalities connect form a class,
and all terms of a class are equal in every result. `plan/arrangement` says which streams meet on which classes; here
that becomes terms. For each alias the first term of a class stands for it, and a further term of the same alias is a
condition on that alias, equal to the first. For a part that holds several aliases one of them stands for the class, as
all its terms are equal already: the one with terms in most classes, since it keeps columns for its others anyway.

Where a class is checked on an operator's results, its equalities between different parts are checked as they were
written; only if those leave parts unconnected (because the alias that connects them comes later) are others added.

Keys, conditions and checks together say exactly what the equalities said; an equality with a null is never true on
either side of this rewriting. Classes and terms keep the order of their first appearance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from anabranch.plan.arrangement import InputNumbers, Shape, arrange
from anabranch.plan.query import Equality, Term

TermClass = tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class KeyedJoin:
    """An operator and its key. Per class of the key, `keys` have a term for every part; `checks` are made on its
    results."""

    parts: tuple[int, ...]
    classes: tuple[int, ...]
    keys: tuple[tuple[Term, ...], ...]
    checks: tuple[Equality, ...]


@dataclass(frozen=True, slots=True)
class KeyPlan:
    """What the equalities of a query become: classes, conditions on one alias, and operators, children before
    parents."""

    classes: tuple[TermClass, ...]
    conditions: tuple[Equality, ...]
    operators: tuple[KeyedJoin, ...]


def plan_keys(aliases: Sequence[str], equalities: Sequence[Equality], shape: Shape | None = None) -> KeyPlan:
    """Plan the operators that join the aliases on equal terms. Raises `UnconnectedError` where no equality connects
    them."""
    number = {alias: n for n, alias in enumerate(aliases)}
    classes = tuple(map(tuple, _classes(equalities)))
    first: list[dict[int, Term]] = [{} for _ in classes]
    conditions: list[Equality] = []
    for terms, representatives in zip(classes, first, strict=True):
        for term in terms:
            representatives.setdefault(number[term.alias], term)
        if len(representatives) == 1:
            conditions += [pair for pair in dict.fromkeys(equalities) if pair[0] in terms]
        else:
            conditions += [
                (first_term, term) for term in terms if term != (first_term := representatives[number[term.alias]])
            ]
    meetings = arrange(len(aliases), [frozenset(representatives) for representatives in first], shape)
    inputs = [frozenset({n}) for n in range(len(aliases))]
    for meeting in meetings:
        inputs.append(frozenset().union(*(inputs[part] for part in meeting.parts)))

    classes_of = [sum(alias in standing and len(standing) > 1 for standing in first) for alias in range(len(aliases))]

    def representative(part: int, n: int) -> Term:
        return first[n][min(inputs[part] & first[n].keys(), key=lambda alias: (-classes_of[alias], alias))]

    operators = []
    for meeting in meetings:
        keys = tuple(tuple(representative(part, n) for n in meeting.keys) for part in meeting.parts)
        part_of = {aliases[n]: part for part in meeting.parts for n in inputs[part]}
        checks: list[Equality] = []
        for n in meeting.checks:
            touched = [representative(part, n) for part in meeting.parts if inputs[part] & first[n].keys()]
            written = [pair for pair in dict.fromkeys(equalities) if pair[0] in classes[n]]
            checks += _connecting(written, touched, part_of)
        operators.append(KeyedJoin(meeting.parts, meeting.keys, keys, tuple(checks)))
    return KeyPlan(classes, tuple(conditions), tuple(operators))


def reaches(aliases: Sequence[str], equalities: Sequence[Equality]) -> tuple[InputNumbers, ...]:
    """Per class of a plan the numbers of the aliases that have a term in it."""
    number = {alias: n for n, alias in enumerate(aliases)}
    return tuple(frozenset(number[term.alias] for term in terms) for terms in _classes(equalities))


def _connecting(
    written: Sequence[Equality], representatives: Sequence[Term], part_of: dict[str, int]
) -> list[Equality]:
    """The written equalities between different parts; where they leave parts unconnected, others are added."""
    between = [
        (left, right)
        for left, right in written
        if left.alias in part_of and right.alias in part_of and part_of[left.alias] != part_of[right.alias]
    ]
    connected = {part: part for part in part_of.values()}

    def root(part: int) -> int:
        return part if connected[part] == part else root(connected[part])

    for left, right in between:
        connected[root(part_of[left.alias])] = root(part_of[right.alias])
    for left, right in pairwise(representatives):
        if root(part_of[left.alias]) != root(part_of[right.alias]):
            connected[root(part_of[left.alias])] = root(part_of[right.alias])
            between.append((left, right))
    return between


def _classes(equalities: Sequence[Equality]) -> list[list[Term]]:
    """The classes of connected terms, in order of first appearance, as are the terms in each."""
    class_of: dict[Term, list[Term]] = {}
    for left, right in equalities:
        ours = class_of.setdefault(left, [left])
        theirs = class_of.setdefault(right, [right])
        if ours is not theirs:
            ours.extend(theirs)
            class_of.update(dict.fromkeys(theirs, ours))
    order = {term: index for index, term in enumerate(dict.fromkeys(t for pair in equalities for t in pair))}
    unique = {id(terms): sorted(terms, key=order.__getitem__) for terms in class_of.values()}
    return sorted(unique.values(), key=lambda terms: order[terms[0]])
