"""Join keys out of equalities.

The equalities of a query connect terms (an expression of one alias each). Terms that equalities connect form
a class, and all terms of a class are equal in every result. A class with terms of *every* alias is a column
of the join key: all inputs can be partitioned on it, so that tuples that join meet (SPEC 1: a group is all
inputs together). A further term of the same alias becomes a condition on that alias, equal to its key. The
equalities of a class that leaves out an alias are checked as they were written: those of one alias below the
join, the others above.

Keys, conditions and what is left together say exactly what the equalities said; an equality with a null is
never true on either side of this rewriting. Classes and terms keep the order of their first appearance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Term:
    """An expression over one alias: its text below the join, its identity, its text above, what it reads."""

    alias: str
    below: str
    above: str = field(compare=False)
    columns: frozenset[str] = field(compare=False, default=frozenset())


Equality = tuple[Term, Term]


@dataclass(frozen=True, slots=True)
class KeyPlan:
    """What equalities come to. `keys` has a term of every alias per key column, in the order of the aliases.

    `classes` are the sets of aliases that share a key, for a message when there is no key for all.
    """

    keys: tuple[tuple[Term, ...], ...]
    conditions: tuple[Equality, ...]
    residual: tuple[Equality, ...]
    classes: tuple[tuple[str, ...], ...]


def plan_keys(aliases: Sequence[str], equalities: Sequence[Equality]) -> KeyPlan:
    """The key columns, the conditions on one alias and the equalities left for above the join."""
    classes = _classes(equalities)
    keys: list[tuple[Term, ...]] = []
    conditions: list[Equality] = []
    residual: list[Equality] = []
    for terms in classes:
        first: dict[str, Term] = {}
        for term in terms:
            first.setdefault(term.alias, term)
        if len(first) == len(aliases):
            keys.append(tuple(first[alias] for alias in aliases))
            conditions += [(first[term.alias], term) for term in terms if term != first[term.alias]]
            continue
        written = [pair for pair in dict.fromkeys(equalities) if pair[0] in terms]
        conditions += [(left, right) for left, right in written if left.alias == right.alias]
        residual += [(left, right) for left, right in written if left.alias != right.alias]
    shared = (tuple(dict.fromkeys(term.alias for term in terms)) for terms in classes)
    return KeyPlan(tuple(keys), tuple(conditions), tuple(residual), tuple(shared))


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
