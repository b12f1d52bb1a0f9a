"""The SELECT list: every item with its name and the columns that it reads, stars written out."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sqlglot import exp

from anabranch.errors import QueryError
from anabranch.language.clauses import Statement
from anabranch.language.dialect import span_of
from anabranch.language.expressions import Expression, bind
from anabranch.language.scope import ColumnRef, Scope


@dataclass(frozen=True, slots=True)
class Item:
    """An expression with its name; or a column that a star stands for, which has no place in the text."""

    name: str
    expression: Expression | None = None
    column: ColumnRef | None = None

    @property
    def refs(self) -> Collection[ColumnRef]:
        """The columns that it reads."""
        return self.expression.refs.values() if self.expression is not None else [self.shown]

    @property
    def above(self) -> str:
        """Its text over joined columns."""
        return self.expression.above if self.expression is not None else self.shown.above

    @property
    def below(self) -> str:
        """Its text over a stream's columns."""
        return self.expression.below if self.expression is not None else self.shown.below

    @property
    def shown(self) -> ColumnRef:
        """The column, if it is one of a star."""
        assert self.column is not None, "an item is an expression or a column"
        return self.column


def read_items(statement: Statement, scope: Scope, allowed: Collection[str] = ()) -> list[Item]:
    """The items of SELECT. `allowed` are functions that are not of one row."""
    items: list[Item] = []
    for node in statement.outputs:
        refs = _star(node, scope)
        if refs is None:
            items.append(_named(node, scope, allowed))
        else:
            items += [Item(ref.column, column=ref) for ref in refs]
    _refuse_duplicates(items)
    return items


def _star(item: exp.Expr, scope: Scope) -> list[ColumnRef] | None:
    """The columns that `*` or `A.*` stands for; `None` if the item is neither."""
    star = item.this if isinstance(item, exp.Column) else item
    if not isinstance(star, exp.Star):
        return None
    if any(star.args.values()):
        raise scope.source.unsupported("* with EXCEPT, REPLACE or RENAME", hint="list the columns")
    qualifiers = [part.name for part in item.parts[:-1]] if isinstance(item, exp.Column) else []
    if not qualifiers:
        return list(scope.star)
    name = ".".join(qualifiers)
    alias = scope.alias(qualifiers[0]) if len(qualifiers) == 1 else None
    if alias is not None:
        return [ColumnRef(alias, column) for column in scope.streams[alias].columns]
    # Either an error about an unknown name, or a struct, whose fields only Spark knows.
    scope.resolve([*qualifiers, "*"], span_of(item) or (0, 1))
    raise scope.source.unsupported(f"{name}.* of a struct", hint="list its fields")


def _named(item: exp.Expr, scope: Scope, allowed: Collection[str]) -> Item:
    alias = item.args.get("alias") if isinstance(item, exp.Alias) else None
    if isinstance(item, exp.Aliases) or (alias is not None and not isinstance(alias, exp.Identifier)):
        raise scope.source.unsupported(f"the alias in {item.sql(dialect='spark')}")
    node = item.this if isinstance(item, exp.Alias) else item
    expression = bind(node, scope, allowed)
    if alias is not None:
        name = alias.name
    elif isinstance(node, exp.Column | exp.Dot):
        name = _last_name(node, expression)
    else:
        name = scope.source.render(expression.span)
    return Item(name, expression)


def _last_name(node: exp.Column | exp.Dot, expression: Expression) -> str:
    """The name of a column, in its registered spelling, or of a struct's field."""
    whole = expression.refs.get(expression.span)
    if whole is not None:
        return whole.column
    last: exp.Expr = node.this if isinstance(node, exp.Column) else node.expression
    return last.name


def _refuse_duplicates(items: Iterable[Item]) -> None:
    by_name: dict[str, list[str]] = {}
    for item in items:
        by_name.setdefault(item.name.lower(), []).append(item.name)
    clashes = [names[0] for names in by_name.values() if len(names) > 1]
    if clashes:
        names = ", ".join(map(repr, clashes))
        raise QueryError(f"more than one column of the answer is called {names}; give them aliases with AS")
