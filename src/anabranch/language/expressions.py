"""One expression of a query: the columns that it reads, and its text below or above the join.

An `Expression` is a span of the source with the column references in it resolved. Rendering replaces exactly
those and leaves the rest as written (see `source` for why): `A.payload.x` becomes `` `payload`.x`` below the
join and `` `A.payload`.x`` above it. A part of an expression is again an expression.

Below the join a bare name can be captured: in `transform(A.xs, x -> x + A.x)` the column x would turn into
the lambda's variable. Such an expression stays above the join, where `` `A.x` `` cannot be mistaken.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from anabranch.language.dialect import identifier_span, span_of
from anabranch.language.scope import ColumnRef, Scope, match
from anabranch.language.source import SourceText, Span
from anabranch.language.vocabulary import AGGREGATES, CURRENT, UNIT_FIRST, UNITS, refusal
from anabranch.language.words import check_words

# Syntax that an expression may not contain, most specific first.
REFUSED: tuple[tuple[type[exp.Expr], str], ...] = (
    (exp.Exists, "EXISTS with a subquery"),
    (exp.SetOperation, "a set operation in an expression"),
    (exp.Query, "a subquery in an expression"),
    (exp.Window, "a window function (OVER)"),
    (exp.WithinGroup, "WITHIN GROUP"),
    (exp.Filter, "an aggregate with FILTER"),
    (exp.IgnoreNulls, "IGNORE NULLS"),
    (exp.RespectNulls, "RESPECT NULLS"),
    (exp.Order, "ORDER BY"),
    (exp.Limit, "LIMIT"),
    (exp.Distinct, "DISTINCT"),
    (exp.Placeholder, "a parameter"),
    (exp.Parameter, "a parameter"),
    (exp.SessionParameter, "a parameter"),
    (exp.JSONExtract, "the operator ->"),
)


@dataclass(frozen=True, slots=True)
class Expression:
    """A resolved span of the source; `captured` are references that a lambda would capture below the join."""

    source: SourceText
    span: Span
    refs: Mapping[Span, ColumnRef]
    captured: frozenset[Span]

    @property
    def aliases(self) -> tuple[str, ...]:
        """The aliases it reads, in order of appearance."""
        return tuple(dict.fromkeys(ref.alias for ref in self.refs.values()))

    @property
    def below(self) -> str:
        """Its text over bare column names; only for an expression over one alias that nothing captures."""
        return self.source.render(self.span, {span: ref.called(ref.below) for span, ref in self.refs.items()})

    @property
    def above(self) -> str:
        """Its text over joined columns."""
        return self.source.render(self.span, {span: ref.called(ref.above) for span, ref in self.refs.items()})

    def replaced(self, texts: Mapping[Span, str]) -> str:
        """Its text with whole spans replaced; what else it reads is as above the join."""
        refs = self.refs.items()
        kept = {at: ref.called(ref.above) for at, ref in refs if not any(s <= at[0] and at[1] <= e for s, e in texts)}
        return self.source.render(self.span, {**kept, **texts})

    def part(self, span: Span) -> Expression:
        """The part of it that stands in the span."""
        inside = {at: ref for at, ref in self.refs.items() if span[0] <= at[0] and at[1] <= span[1]}
        return Expression(self.source, span, inside, self.captured & inside.keys())


def bind(node: exp.Expr, scope: Scope, allowed: Collection[str] = ()) -> Expression:
    """The expression that the node stands for, resolved in the scope, or an error that says what is wrong.

    `allowed` are functions that may stand in it although they are not of one row.
    """
    source = scope.source
    span = span_of(node)
    if span is None:
        raise source.unsupported(f"the expression {node.sql(dialect='spark')}")
    for kind, construct in REFUSED:
        refused = node.find(kind)
        call = refused.parent if isinstance(refused, exp.Distinct) else None
        if isinstance(call, exp.Anonymous) and call.name.lower() in AGGREGATES:
            name = call.name.upper()
            hint = f"{name} is of all values in the window, repeated ones included"
            raise source.unsupported(f"{name}(DISTINCT ...)", span, hint)
        if refused:
            raise source.unsupported(construct, span)
    # Functions come first: of count(*), the aggregate is what has to be said.
    variables = {name for at in node.find_all(exp.Lambda) for name in _variables(at)}
    places = _columns(node, source, span)
    check_words(source, span, {start for start, _ in places}, variables, allowed)
    for inside in node.find_all(exp.Lambda):
        if any(call.name.lower() in allowed for call in inside.find_all(exp.Anonymous)):
            raise source.unsupported("an aggregate in a lambda", span)
    if any(not _is_counted(star, allowed) for star in node.find_all(exp.Star)):
        raise source.unsupported("* inside an expression", span)
    refs: dict[Span, ColumnRef] = {}
    captured: set[Span] = set()
    for start, column in places:
        parts = [part.name for part in column.parts]
        enclosing = {name for at in _lambdas(column) for name in _variables(at)}
        if parts[0].lower() in enclosing or _is_unit(column):
            continue
        _refuse_current(scope, parts, (start, start + len(parts[0])))
        ends = [at[1] for at in map(identifier_span, column.parts) if at is not None]
        ref, used = scope.resolve(parts, (start, ends[-1]))
        if used == len(parts) and _is_field_of_struct(column):
            ref = replace(ref, named=parts[-1])
        refs[(start, ends[used - 1])] = ref
        if ref.column.lower() in enclosing:
            captured.add((start, ends[used - 1]))
    return Expression(source, span, dict(sorted(refs.items())), frozenset(captured))


def _is_counted(star: exp.Expr, allowed: Collection[str]) -> bool:
    call = star.parent
    return isinstance(call, exp.Anonymous) and call.name.lower() == "count" and "count" in allowed


def _columns(node: exp.Expr, source: SourceText, span: Span) -> list[tuple[int, exp.Column]]:
    columns_at: dict[int, exp.Column] = {}
    for column in node.find_all(exp.Column):
        at = identifier_span(column.parts[0])
        if at is None:
            raise source.unsupported(f"the name {column.sql(dialect='spark')} here", span)
        columns_at[at[0]] = column
    return sorted(columns_at.items(), key=lambda entry: entry[0])


def _lambdas(node: exp.Expr) -> Iterator[exp.Lambda]:
    parent = node.parent
    while parent is not None:
        if isinstance(parent, exp.Lambda):
            yield parent
        parent = parent.parent


def _variables(node: exp.Lambda) -> set[str]:
    return {variable.name.lower() for variable in node.expressions}


def _is_unit(column: exp.Column) -> bool:
    """Whether it is the unit in `datediff(DAY, a, b)`, which only looks like a column."""
    call = column.parent
    return (
        isinstance(call, exp.Anonymous)
        and call.name.lower() in UNIT_FIRST
        and len(call.expressions) == 3
        and call.expressions[0] is column
        and column.name.lower() in UNITS
        and len(column.parts) == 1
    )


def _is_field_of_struct(column: exp.Column) -> bool:
    """Whether a column is an argument of struct(...), which calls the field as the column.

    Spark takes no names for the arguments if the function's own name is in backquotes.
    """
    call = column.parent
    return isinstance(call, exp.Anonymous) and isinstance(call.this, str) and call.this.lower() == "struct"


def _refuse_current(scope: Scope, parts: list[str], span: Span) -> None:
    if len(parts) > 1 or parts[0].lower() not in CURRENT:
        return
    if not any(match(parts[0], stream.columns) for stream in scope.streams.values()):
        construct, hint = refusal(parts[0]) or (parts[0], "")
        raise scope.source.unsupported(construct, span, hint)
