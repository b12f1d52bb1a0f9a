"""GROUP BY, HAVING and DISTINCT: what is grouped by what, and the answer in terms of groups and aggregates.

A SELECT item over groups is an expression over aggregates and keys. An aggregate's call, or a key as a whole, is one
name above the grouping; what is left must be columns that are keys by themselves. Keys are compared as written: an
expression that is a key may be an item by itself, but not a part of a larger one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import Token, TokenType, exp

from anabranch.errors import QueryError
from anabranch.language.clauses import FromItem, Statement
from anabranch.language.conjuncts import conjuncts, unwrapped
from anabranch.language.dialect import span_of
from anabranch.language.expressions import Expression, bind
from anabranch.language.scope import Scope, match
from anabranch.language.source import Span
from anabranch.language.vocabulary import AGGREGATES
from anabranch.language.windows import RowsWindow, Window
from anabranch.plan.query import (
    AggregateCall,
    Grouping,
    Source,
    StreamSchema,
    aggregate_column,
    group_column,
    quote,
)

# The functions of aggregates, by their names in Spark SQL.
FUNCTIONS = {
    "count": "count",
    "sum": "sum",
    "avg": "avg",
    "mean": "avg",
    "min": "min",
    "max": "max",
    "stddev": "stddev",
    "stddev_samp": "stddev",
    "std": "stddev",
}
# How often a group is answered.
EACH_TUPLE = "tuple"
EACH_BATCH = "batch"
# What all rows have in common: the key of an aggregate without GROUP BY.
EVERYTHING = "0"

_DEPTH = {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}


@dataclass(frozen=True, slots=True)
class WrittenAggregate:
    """An aggregate as it stands in an expression. It has no argument if it counts rows."""

    span: Span
    function: str
    argument: Expression | None


def is_grouped(statement: Statement) -> bool:
    """Whether the statement groups, by its clauses or by an aggregate in SELECT, supported or not."""
    calls = [call.name.lower() for node in statement.outputs for call in node.find_all(exp.Anonymous)]
    clauses = statement.group is not None or statement.distinct or statement.having is not None
    return clauses or any(name in AGGREGATES for name in calls)


def range_of(window: Window) -> int | None:
    """The length of a window of time; a window of rows has none."""
    return None if isinstance(window, RowsWindow) else window


def check_grouped(
    scope: Scope,
    items: Sequence[FromItem],
    sources: Mapping[str, tuple[Source, ...]],
    registered: Mapping[str, StreamSchema],
) -> None:
    """Refuse a grouping whose answers would never be complete, or of which nothing could ever be forgotten."""
    fed = [source for s in scope.streams.values() for source in sources.get(s.name, (Source(s.name),))]
    for stream in (registered[name] for source in fed for name in _streams_of(source)):
        if stream.time is None or stream.lateness is None:
            missing = "event time" if stream.time is None else "lateness"
            given = 'time="ts", lateness="0 seconds"' if stream.time is None else 'lateness="0 seconds"'
            raise QueryError(
                f"the stream {stream.name!r} is grouped but has no {missing}: the answer to a row is "
                f"complete when nothing older can come any more. Register it with {given}, or more"
            )
    for alias, stream in scope.streams.items():
        if stream.time is None:
            raise QueryError(f"{alias!r} is grouped, but its rows have no event time, so nothing is ever complete")
    if all(item.window is None for item in items):
        hint = f"say how far back it reaches, as in {items[0].alias} [RANGE 1 MINUTE]"
        raise scope.source.unsupported("GROUP BY or DISTINCT without a window", hint=hint)


def _streams_of(source: Source) -> list[str]:
    """The registered streams that rows are made of."""
    if source.block is None:
        return [source.stream]
    return [name for entry in source.block.inputs for inner in entry.sources for name in _streams_of(inner)]


class GroupedAnswer:
    """The grouping of a statement, filled while its SELECT items and HAVING are read."""

    def __init__(self, statement: Statement, scope: Scope) -> None:
        """Bind the keys; refuse what cannot be grouped."""
        self._scope = scope
        self._single = len(scope.aliases) == 1
        self._statement = statement
        self._calls: dict[tuple[str, str], AggregateCall] = {}
        self.reads: list[Expression] = []
        self._keys = [self._key(node) for node in statement.group or ()]
        if statement.distinct and (statement.group is not None or statement.having is not None):
            raise scope.source.unsupported("DISTINCT together with GROUP BY or HAVING")
        self._rows = self._rows_window(statement.items)

    def output(self, expression: Expression) -> str:
        """The text of a SELECT item or a condition above the grouping."""
        if self._statement.distinct:
            calls = self._written_aggregates(expression)
            if calls:
                raise self._scope.source.unsupported("an aggregate in SELECT DISTINCT", calls[0].span)
            self._keys.append(expression)
            self.reads.append(expression)
            return quote(group_column(len(self._keys) - 1))
        for n, key in enumerate(self._keys):
            if _words(key) == _words(expression):
                return quote(group_column(n))
        texts = {
            call.span: quote(aggregate_column(self._number(call))) for call in self._written_aggregates(expression)
        }
        plain = {key.above: n for n, key in enumerate(self._keys)}
        for at, ref in expression.refs.items():
            if any(start <= at[0] and at[1] <= end for start, end in texts):
                continue
            if ref.above not in plain:
                hint = "put it there, or into an aggregate such as MAX"
                raise self._scope.source.error(f"{ref.alias}.{ref.column} is not in GROUP BY; {hint}", at)
            texts[at] = ref.called(quote(group_column(plain[ref.above])))
        return expression.replaced(texts)

    def conditions(self) -> tuple[str, ...]:
        """The conditions of HAVING."""
        having = self._statement.having
        if having is None:
            return ()
        return tuple(dict.fromkeys(self.output(part) for part in conjuncts(bind(having, self._scope, FUNCTIONS))))

    def grouping(self, *, once: bool) -> Grouping:
        """The grouping, when everything has been read."""
        conditions = self.conditions()
        keys = tuple(self._text(key) for key in self._keys)
        return Grouping(
            keys=keys or (EVERYTHING,),
            calls=tuple(self._calls.values()),
            conditions=conditions,
            rows=self._rows,
            distinct=self._statement.distinct,
            once=once,
        )

    def _key(self, node: exp.Expr) -> Expression:
        """A key of GROUP BY: an expression, or the number or alias of a SELECT item."""
        outputs = self._statement.outputs
        if isinstance(node, exp.Literal) and not node.is_string:
            place = int(node.name) if node.name.isdecimal() else 0
            if not 1 <= place <= len(outputs):
                raise self._scope.source.error(f"GROUP BY {node.name}: there is no such SELECT item", _span(node))
            node = outputs[place - 1]
        elif isinstance(node, exp.Column) and len(node.parts) == 1:
            is_column = any(match(node.name, stream.columns) for stream in self._scope.streams.values())
            named = [
                item for item in outputs if isinstance(item, exp.Alias) and item.alias.lower() == node.name.lower()
            ]
            node = named[0] if named and not is_column else node
        bound = bind(node.this if isinstance(node, exp.Alias) else node, self._scope)
        self.reads.append(bound)
        return bound

    def _rows_window(self, items: Sequence[FromItem]) -> int | None:
        windows = [item for item in items if isinstance(item.window, RowsWindow)]
        if not windows:
            return None
        item = windows[0]
        assert isinstance(item.window, RowsWindow), "found by its type"
        source, span = self._scope.source, item.window_span or item.span
        if not self._single or self._statement.distinct:
            what = "a join" if not self._single else "DISTINCT"
            raise source.unsupported(f"a window of ROWS in {what}", span, "it is for GROUP BY over one stream")
        for names in item.window.columns:
            if self._scope.resolve(list(names), span)[1] < len(names):
                raise source.unsupported("a field of a column in PARTITION BY", span, "name columns")
        parts = {self._scope.resolve(list(names), span)[0].above for names in item.window.columns}
        if parts != {key.above for key in self._keys}:
            raise source.unsupported("PARTITION BY other columns than GROUP BY", span, "name the same in both")
        return item.window.rows

    def _written_aggregates(self, expression: Expression) -> list[WrittenAggregate]:
        aggregates: list[WrittenAggregate] = []
        source = expression.source
        tokens = source.between(expression.span)
        columns = {start for start, _ in expression.refs}
        for n, token in enumerate(tokens[:-1]):
            name = token.text.lower()
            opened = tokens[n + 1]
            if name not in FUNCTIONS or opened.token_type != TokenType.L_PAREN or token.start in columns:
                continue
            close = _closing(tokens, n + 1)
            span = (token.start, close.end + 1)
            if aggregates and span[0] < aggregates[-1].span[1]:
                raise source.error("an aggregate cannot be of another aggregate", span)
            aggregates.append(
                WrittenAggregate(span, FUNCTIONS[name], self._argument(expression, tokens, n + 1, close, name))
            )
        return aggregates

    def _argument(
        self, expression: Expression, tokens: Sequence[Token], opened: int, close: Token, name: str
    ) -> Expression | None:
        source = expression.source
        inside = [token for token in tokens[opened + 1 :] if token.start < close.start]
        span = (tokens[opened - 1].start, close.end + 1)
        if len(inside) == 1 and inside[0].token_type == TokenType.STAR:
            return None
        if not inside or _top_level_comma(inside):
            raise source.error(f"{name.upper()} takes one argument", span)
        return expression.part((inside[0].start, inside[-1].end + 1))

    def _number(self, call: WrittenAggregate) -> int:
        text = "*" if call.argument is None else self._text(call.argument)
        made = AggregateCall(call.function, None if call.argument is None else text)
        if call.argument is not None:
            self.reads.append(call.argument)
        self._calls.setdefault((call.function, text), made)
        return list(self._calls).index((call.function, text))

    def _text(self, expression: Expression) -> str:
        if not self._single:
            return expression.above
        if expression.captured:
            raise self._scope.source.unsupported("a lambda's variable that is called as a column", expression.span)
        return expression.below


def _words(expression: Expression) -> list[str]:
    """The words of an expression, without the space between them and without parentheses around all of it."""
    bare = unwrapped(expression)
    names = {start: (end, ref.above) for (start, end), ref in bare.refs.items()}
    words: list[str] = []
    position = 0
    for token in bare.source.between(bare.span):
        if token.start >= position:
            position, text = names.get(token.start, (token.end + 1, bare.source.raw(token)))
            words.append(text)
    return words


def _span(node: exp.Expr) -> Span:
    return span_of(node) or (0, 1)


def _closing(tokens: Sequence[Token], opened: int) -> Token:
    depth = 0
    for token in tokens[opened:]:
        depth += _DEPTH.get(token.token_type, 0)
        if depth == 0:
            return token
    return tokens[-1]


def _top_level_comma(tokens: Sequence[Token]) -> bool:
    depth = 0
    for token in tokens:
        depth += _DEPTH.get(token.token_type, 0)
        if depth == 0 and token.token_type == TokenType.COMMA:
            return True
    return False
