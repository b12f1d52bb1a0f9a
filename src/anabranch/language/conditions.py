"""The conjuncts of ON and WHERE, each by what it is.

A conjunct is an equality between two streams, a condition on one stream, or something else that joined rows have to
meet.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.language.clauses import Statement
from anabranch.language.conjuncts import conjuncts, equality, is_null_safe_equality
from anabranch.language.expressions import Expression, bind
from anabranch.language.scope import ColumnRef, Scope
from anabranch.plan.query import Equality, Term

# By alias: the conditions on its rows alone.
Predicates = dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class Conjuncts:
    """The conjuncts of ON and WHERE: equalities between terms, conditions on one alias, and the rest."""

    equalities: list[Equality]
    predicates: Predicates
    residual: list[Expression]


def classify(statement: Statement, scope: Scope) -> Conjuncts:
    """The conjuncts of ON and WHERE by what they are."""
    equalities = [(_column_term(left), _column_term(right)) for left, right in scope.merged]
    predicates: Predicates = {alias: [] for alias in scope.aliases}
    residual: list[Expression] = []
    for condition in statement.conditions:
        for conjunct in conjuncts(bind(condition, scope)):
            if len(conjunct.aliases) > 1 and is_null_safe_equality(conjunct):
                hint = "join on =, which leaves out nulls"
                raise scope.source.unsupported("<=> between streams", conjunct.span, hint)
            pair = _equality_of_terms(conjunct)
            if pair is not None:
                equalities.append(pair)
            elif len(conjunct.aliases) == 1 and not conjunct.captured:
                predicates[conjunct.aliases[0]].append(conjunct.below)
            else:
                residual.append(conjunct)
    return Conjuncts(equalities, predicates, residual)


def _equality_of_terms(conjunct: Expression) -> Equality | None:
    sides = equality(conjunct)
    if sides is None or conjunct.captured or any(len(side.aliases) != 1 for side in sides):
        return None
    left, right = (
        Term(side.aliases[0], side.below, side.above, frozenset(ref.column for ref in side.refs.values()))
        for side in sides
    )
    return left, right


def _column_term(ref: ColumnRef) -> Term:
    return Term(ref.alias, ref.below, ref.above, frozenset({ref.column}))
