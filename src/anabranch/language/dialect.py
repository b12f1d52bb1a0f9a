"""CQL for sqlglot: Spark's dialect plus a window in brackets after a stream's name or alias.

Three things differ from Spark's parser:

- A bracket after a table is claimed as a window; after a column it stays an index. Windows go into the
  `meta` of the table or alias node, because no node of sqlglot has a place for them.
- Every expression in a SELECT list, WHERE or ON remembers its span in the text (`span_of`), because we cut
  expressions from the source (see `source`).
- Functions stay what they are: a name and arguments. sqlglot would turn the names it knows into its own
  nodes, which lose the spelling, move arguments and read some of them as keywords. Only functions with a
  syntax of their own (CAST, EXTRACT, TRIM ...) keep their parsers. Names like `current_date` are read as
  columns, which they may be; the scope decides.
"""

from __future__ import annotations

import re
import typing

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, ParseError
from sqlglot.parsers.spark import SparkParser

from anabranch.errors import QueryError, UnsupportedError
from anabranch.language.source import SourceText, Span, excerpt, tokenize, without_overlaps
from anabranch.language.windows import parse_window

TokenTypes = typing.Collection[TokenType]

WINDOW = "anabranch_window"
SPAN = "anabranch_span"

# Refused before sqlglot warns that it has no parser for some of them.
_STATEMENTS = {*SparkParser.STATEMENT_PARSERS, *Spark.Tokenizer.COMMANDS} - {TokenType.FROM}

# Refused by token, because the tree does not tell: LATERAL VIEW takes the streams after it for its columns,
# and a pipe is folded into the query before it.
_REWRITTEN = {TokenType.LATERAL: "LATERAL", TokenType.PIPE_GT: "the pipe syntax"}

# What people bring along from Spark's own streams, and what there is instead.
_GROUPS_BY_WINDOW = re.compile(r"\bGROUP\s+BY\b.*\bwindow\s*\(", re.IGNORECASE | re.DOTALL)
_INSTEAD_OF_WINDOW = (
    "windows are written in FROM, as in A [RANGE 1 MINUTE]; to group by the clock, use date_trunc('MINUTE', A.ts)"
)

_OWN_SYNTAX = ("CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTR", "SUBSTRING", "TRIM", "TRY_CAST")


class CqlParser(SparkParser):
    """Spark's parser with windows, spans and unchanged functions."""

    FUNCTIONS: typing.ClassVar[dict[str, typing.Any]] = {}
    FUNCTION_PARSERS: typing.ClassVar[dict[str, typing.Any]] = {
        name: SparkParser.FUNCTION_PARSERS[name] for name in _OWN_SYNTAX
    }
    NO_PAREN_FUNCTIONS: typing.ClassVar[dict[typing.Any, typing.Any]] = {}
    NO_PAREN_FUNCTION_PARSERS: typing.ClassVar[dict[str, typing.Any]] = {
        "CASE": SparkParser.NO_PAREN_FUNCTION_PARSERS["CASE"]
    }

    def _parse_bracket(self, this: exp.Expr | None = None) -> exp.Expr | None:
        if isinstance(this, exp.Table):
            self._claim_window(this)
            return this
        return super()._parse_bracket(this)

    def _parse_table_alias(self, alias_tokens: TokenTypes | None = None) -> exp.TableAlias | None:
        if self._prev.token_type == TokenType.STAR:
            self.raise_error("a table takes no star", self._prev)  # other databases' `FROM t *`, else ignored
        alias = super()._parse_table_alias(alias_tokens)
        if alias is not None:
            self._claim_window(alias)
        return alias

    def _parse_disjunction(self) -> exp.Expr | None:
        first = self._curr
        node = super()._parse_disjunction()
        if node is not None:
            node.meta[SPAN] = (first.start, self._prev.end + 1)
        return node

    def _claim_window(self, node: exp.Expr) -> None:
        if not self._match(TokenType.L_BRACKET):
            return
        opening = self._prev
        inside: list[Token] = []
        while self._curr and not self._match(TokenType.R_BRACKET):
            inside.append(self._curr)
            self._advance()
        span = (opening.start, self._prev.end + 1)
        if self._prev.token_type != TokenType.R_BRACKET:
            raise QueryError("the window's bracket is not closed" + excerpt(self.sql, span))
        try:
            words = [self.sql[token.start : token.end + 1] for token in without_overlaps(tuple(inside))]
            node.meta[WINDOW] = (parse_window(words), span)
        except QueryError as error:
            raise type(error)(f"{error}{excerpt(self.sql, span)}") from None


class Cql(Spark):
    """Spark SQL with windows."""

    Parser = CqlParser


def read(text: str) -> tuple[SourceText, exp.Expr]:
    """The source and the syntax tree of the one statement in the text; `QueryError` if it cannot be read."""
    if not isinstance(text, str):
        raise QueryError(f"a query must be a text, not {text!r}")
    tokens = _one_statement(text, tokenize(text, Cql))
    parser = Cql().parser(error_level=ErrorLevel.IMMEDIATE)
    try:
        tree = parser.parse(list(tokens), text)[0]
    except ParseError as error:
        raise _syntax_error(text, error) from None
    except RecursionError:
        raise QueryError("the query is nested too deeply to be read") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # How sqlglot fails on some texts that it does not expect.
        raise QueryError("the query cannot be read: it does not follow the grammar of CQL") from error
    if tree is None:
        raise QueryError("the query is empty")
    return SourceText(text, without_overlaps(tokens)), tree


def span_of(node: exp.Expr) -> Span | None:
    """Where the expression stands in the text, if the parser saw it as one."""
    span: Span | None = node.meta.get(SPAN)
    return span


def identifier_span(identifier: exp.Expr) -> Span | None:
    """Where an identifier stands in the text."""
    if "start" not in identifier.meta:
        return None
    return identifier.meta["start"], identifier.meta["end"] + 1


def _one_statement(text: str, tokens: tuple[Token, ...]) -> tuple[Token, ...]:
    bare = list(tokens)
    while bare and bare[-1].token_type == TokenType.SEMICOLON:
        bare.pop()
    for token in bare:
        span = (token.start, token.end + 1)
        if token.token_type == TokenType.SEMICOLON:
            raise UnsupportedError("several statements in one query are not supported" + excerpt(text, span))
        if token.token_type in _REWRITTEN:
            raise UnsupportedError(f"{_REWRITTEN[token.token_type]} is not supported" + excerpt(text, span))
    if not bare:
        raise QueryError("the query is empty")
    if bare[0].token_type in _STATEMENTS:
        name = bare[0].text.upper()
        raise UnsupportedError(f"the statement {name} is not supported: a continuous query is a SELECT")
    return tuple(bare)


def _syntax_error(text: str, error: ParseError) -> QueryError:
    detail = error.errors[0] if error.errors else {}
    line, column = detail.get("line"), detail.get("col")
    if line is None or column is None:
        return QueryError("the query cannot be read: it does not follow the grammar of CQL")
    # sqlglot counts the column at the end of the offending token.
    token = detail.get("highlight") or " "
    offset = sum(len(row) + 1 for row in text.split("\n")[: line - 1]) + column - len(token)
    span = (offset, offset + len(token))
    hint = f"; {_INSTEAD_OF_WINDOW}" if _GROUPS_BY_WINDOW.search(text) else ""
    return QueryError(f"the query cannot be read near {token.strip() or 'its end'!r}{hint}" + excerpt(text, span))
