"""The statement taken apart: what stands in FROM, the conditions, the grouping and the SELECT items.

Everything is let in by name. A clause, a kind of join or a property of a table that is not on a list here is
refused with its name, so that nothing a user wrote is ever ignored, not even what a later sqlglot may learn
to parse. Inner joins have one meaning however they are written, so ON and WHERE become one list of
conditions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import TokenType, exp

from anabranch.errors import UnsupportedError
from anabranch.language.dialect import WINDOW, identifier_span, span_of
from anabranch.language.source import SourceText, Span
from anabranch.language.windows import Window

# What does the same for a continuous query, of clauses that people try first.
INSTEAD = {
    "order": "results come as they arise; sort them where you read them",
    "limit": "a continuous query has no last row; limit it where you read the results",
}

# How users know the arguments of a Select that have another name in sqlglot.
CLAUSES = {
    "with_": "WITH",
    "order": "ORDER BY",
    "sort": "SORT BY",
    "cluster": "CLUSTER BY",
    "distribute": "DISTRIBUTE BY",
    "laterals": "LATERAL VIEW",
    "windows": "WINDOW",
    "hint": "a hint in a comment",
    "sample": "TABLESAMPLE",
    "pivots": "PIVOT",
    "version": "time travel",
    "when": "time travel",
    "joins": "a nested join",
    "locks": "FOR UPDATE",
    "all": "GROUP BY ALL",
    "on": "DISTINCT ON",
    "grouping_sets": "GROUPING SETS",
}

READ: dict[type[exp.Expr], set[str]] = {
    exp.Select: {"expressions", "from_", "joins", "where", "group", "having", "distinct"},
    exp.Group: {"expressions"},
    exp.Distinct: set(),
    exp.Table: {"this", "alias", "db", "catalog"},
    exp.Join: {"this", "on", "using", "kind"},
    exp.Subquery: {"this", "alias"},
    exp.Union: {"this", "expression", "distinct"},
}

SET_OPERATIONS: dict[type[exp.Expr], str] = {
    exp.Union: "UNION",
    exp.Intersect: "INTERSECT",
    exp.Except: "EXCEPT",
}


@dataclass(frozen=True, slots=True)
class FromItem:
    """One stream in FROM as written; `using` are the names in a USING that joins it to those before.

    If it is a sub-query, `branches` are its SELECTs, several if they are united, and it is called as its alias.
    """

    stream: str
    alias: str
    span: Span
    window: Window
    window_span: Span | None
    has_alias: bool
    after_comma: bool
    using: tuple[tuple[str, Span], ...]
    branches: tuple[Statement, ...] = ()


@dataclass(frozen=True, slots=True)
class Statement:
    """The parts of a supported statement. `group` is None if there is no GROUP BY."""

    items: tuple[FromItem, ...]
    conditions: tuple[exp.Expr, ...]
    outputs: tuple[exp.Expr, ...]
    group: tuple[exp.Expr, ...] | None = None
    having: exp.Expr | None = None
    distinct: bool = False


def take_apart(source: SourceText, tree: exp.Expr) -> tuple[Statement, ...]:
    """The SELECTs that are united; `UnsupportedError` naming the first construct that is not supported."""
    return tuple(_branches(source, tree))


def _select(source: SourceText, tree: exp.Expr) -> Statement:
    if isinstance(tree, exp.SetOperation):
        raise source.unsupported(SET_OPERATIONS.get(type(tree), "a set operation"))
    if isinstance(tree, exp.Subquery):
        raise source.unsupported("a query in parentheses")
    if not isinstance(tree, exp.Select):
        raise source.unsupported(f"{tree.key.upper()} as a query", hint="a continuous query is a SELECT")
    _only_known(source, tree)
    if not tree.args.get("from_"):
        raise source.unsupported("a SELECT without FROM", hint="a continuous query joins streams")
    _no_trailing_comma(source)
    joins = tree.args.get("joins") or []
    items = [_item(source, tree.args["from_"].this, None)]
    conditions: list[exp.Expr] = []
    for join in joins:
        _check_join(source, join)
        items.append(_item(source, join.this, join))
        on = join.args.get("on")
        # sqlglot writes ON TRUE for a JOIN without ON; that one has no place in the text.
        if on is not None and not (isinstance(on, exp.Boolean) and span_of(on) is None):
            conditions.append(on)
    if tree.args.get("where"):
        conditions.append(tree.args["where"].this)
    group, distinct, having = (tree.args.get(name) for name in ("group", "distinct", "having"))
    for clause in (group, distinct):
        if clause:
            _only_known(source, clause)
    return Statement(
        tuple(items),
        tuple(conditions),
        tuple(tree.expressions),
        group=tuple(group.expressions) if group else None,
        having=having.this if having else None,
        distinct=bool(distinct),
    )


def _only_known(source: SourceText, node: exp.Expr) -> None:
    for name, value in node.args.items():
        if value and name not in READ[type(node)]:
            if name == "operation_modifiers":
                raise source.unsupported(" ".join(str(word) for word in value))
            clause = CLAUSES.get(name, name.strip("_").replace("_", " ").upper())
            raise source.unsupported(clause, hint=INSTEAD.get(name, ""))


def _check_join(source: SourceText, join: exp.Join) -> None:
    words = [str(join.args[arg]).upper() for arg in ("method", "side", "kind") if join.args.get(arg)]
    if words not in ([], ["INNER"], ["CROSS"]):
        hint = "only inner joins are, as FROM a, b or a JOIN b ON ..."
        raise source.unsupported(f"{' '.join(words)} JOIN", hint=hint)
    _only_known(source, join)


def _item(source: SourceText, table: exp.Expr, join: exp.Join | None) -> FromItem:
    if isinstance(table, exp.Subquery) and isinstance(table.this, exp.Query):
        return _sub_query(source, table, join)
    if not isinstance(table, exp.Table):
        raise _not_a_stream(source, table)
    if not isinstance(table.this, exp.Identifier):
        raise source.unsupported("a table function in FROM", hint="name a registered stream")
    _only_known(source, table)
    names = [part for part in table.parts if isinstance(part, exp.Identifier)]
    span = _whole(names)
    alias = table.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        raise source.unsupported("a list of column names after an alias", span)
    window, window_span = _window(source, table, alias)
    return FromItem(
        stream=".".join(name.name for name in names),
        alias=alias.name if alias is not None else names[-1].name,
        span=span,
        window=window,
        window_span=window_span,
        has_alias=alias is not None,
        after_comma=_is_after_comma(source, span[0]),
        using=_using(join),
    )


def _using(join: exp.Join | None) -> tuple[tuple[str, Span], ...]:
    return tuple((name.name, _whole([name])) for name in join.args.get("using") or []) if join else ()


def _is_after_comma(source: SourceText, start: int) -> bool:
    before = [token for token in source.tokens if token.start < start]
    return bool(before) and before[-1].token_type == TokenType.COMMA


def _sub_query(source: SourceText, node: exp.Subquery, join: exp.Join | None) -> FromItem:
    _only_known(source, node)
    alias = node.args.get("alias")
    if alias is None or not isinstance(alias.this, exp.Identifier):
        raise source.unsupported("a sub-query in FROM without an alias", hint="write (SELECT ...) AS name")
    span = _whole([alias.this])
    if alias.args.get("columns"):
        raise source.unsupported("a list of column names after an alias", span)
    window, window_span = _window(source, node, alias)
    return FromItem(
        stream=alias.name,
        alias=alias.name,
        span=span,
        window=window,
        window_span=window_span,
        has_alias=True,
        after_comma=_is_after_comma(source, _opening(source, span[0])),
        using=_using(join),
        branches=tuple(_branches(source, node.this)),
    )


def _branches(source: SourceText, node: exp.Expr) -> Iterator[Statement]:
    """The SELECTs of a sub-query, united by UNION ALL."""
    if isinstance(node, exp.Subquery) and not node.args.get("alias"):
        _only_known(source, node)
        yield from _branches(source, node.this)
    elif isinstance(node, exp.Union):
        if node.args.get("distinct"):
            raise source.unsupported("UNION", hint="only UNION ALL is; it keeps duplicates")
        _only_known(source, node)
        yield from _branches(source, node.this)
        yield from _branches(source, node.expression)
    else:
        yield _select(source, node)


def _opening(source: SourceText, alias: int) -> int:
    """Where the parenthesis stands that a sub-query begins with, given where its alias does."""
    depth = 0
    for token in reversed([token for token in source.tokens if token.start < alias]):
        depth += {TokenType.R_PAREN: 1, TokenType.L_PAREN: -1}.get(token.token_type, 0)
        if depth == 0 and token.token_type == TokenType.L_PAREN:
            return token.start
    return 0


def _not_a_stream(source: SourceText, node: exp.Expr) -> UnsupportedError:
    if isinstance(node, exp.Subquery):
        return source.unsupported("a join in parentheses")
    names: dict[type[exp.Expr], str] = {exp.Lateral: "LATERAL", exp.Values: "VALUES", exp.Unnest: "UNNEST"}
    construct = names.get(type(node), f"{node.key.upper()} in FROM")
    return source.unsupported(construct, hint="name a registered stream")


def _window(source: SourceText, table: exp.Expr, alias: exp.Expr | None) -> tuple[Window, Span | None]:
    marks = [node.meta[WINDOW] for node in (table, alias) if node is not None and WINDOW in node.meta]
    if len(marks) > 1:
        raise source.error("the stream has two windows", marks[1][1])
    return marks[0] if marks else (None, None)


def _no_trailing_comma(source: SourceText) -> None:
    """Sqlglot forgives a comma before FROM; Spark does not."""
    for token, following in zip(source.tokens, source.tokens[1:], strict=False):
        if token.token_type == TokenType.COMMA and following.token_type == TokenType.FROM:
            raise source.error("the query cannot be read near ','", (token.start, token.end + 1))


def _whole(names: list[exp.Identifier]) -> Span:
    spans = [span for span in map(identifier_span, names) if span is not None]
    return (spans[0][0], spans[-1][1]) if spans else (0, 1)
