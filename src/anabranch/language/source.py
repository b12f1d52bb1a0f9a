"""The query's text and its tokens: cutting pieces out, rewriting names in them, and pointing at them.

Why text and not syntax trees. Spark evaluates every expression, so the best rendering of what the user wrote
is what the user wrote. sqlglot's generator rewrites (spellings of functions, casts, intervals, literals) for
the sake of other databases, and each rewrite is a chance to differ from Spark. So trees only tell us *where*
things are; an expression handed to Spark is cut from the source, token by token, with its column names
replaced. Comments fall out on the way, and any gap between two tokens becomes one blank.

A `Span` is a half-open range of character positions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import Token
from sqlglot.errors import TokenError

from anabranch.errors import QueryError, UnsupportedError

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class SourceText:
    """A query's text with its tokens, in order and without overlaps."""

    text: str
    tokens: tuple[Token, ...]

    def between(self, span: Span) -> tuple[Token, ...]:
        """The tokens inside the span."""
        first = bisect_left(self.tokens, span[0], key=lambda token: token.start)
        last = bisect_left(self.tokens, span[1], key=lambda token: token.start)
        return self.tokens[first:last]

    def raw(self, token: Token) -> str:
        """The token as written: with its quotes, escapes and suffixes."""
        return self.text[token.start : token.end + 1]

    def render(self, span: Span, replacements: Mapping[Span, str] | None = None) -> str:
        """The text of the span without comments, with whole sub-spans replaced."""
        starts = {start: (end, text) for (start, end), text in (replacements or {}).items()}
        pieces: list[str] = []
        position = span[0]
        for token in self.between(span):
            if token.start < position:
                continue
            if pieces and token.start > position:
                pieces.append(" ")
            position, text = starts.get(token.start, (token.end + 1, self.raw(token)))
            pieces.append(text)
        return "".join(pieces)

    def error(self, message: str, span: Span) -> QueryError:
        """A `QueryError` that shows where in the text the trouble is."""
        return QueryError(message + excerpt(self.text, span))

    def unsupported(
        self, construct: str, span: Span | None = None, hint: str = "", *, yet: bool = False
    ) -> UnsupportedError:
        """An `UnsupportedError` that names the construct and shows where it is."""
        message = f"{construct} is not supported{' yet' if yet else ''}" + (f": {hint}" if hint else "")
        return UnsupportedError(message + (excerpt(self.text, span) if span else ""))


def tokenize(text: str, dialect: type) -> tuple[Token, ...]:
    """The tokens of a text under a sqlglot dialect."""
    try:
        return tuple(dialect().tokenize(text))
    except TokenError:
        message = "the query cannot be read: a string, a quoted name or a comment is not closed"
        raise QueryError(message) from None


def without_overlaps(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
    """One token per place: sqlglot reads `10L` as `10`, `::` and `BIGINT`, all at the place of `10L`."""
    kept: list[Token] = []
    for token in tokens:
        if not kept or token.start > kept[-1].end:
            kept.append(token)
    return tuple(kept)


def excerpt(text: str, span: Span) -> str:
    """Line, column, the line itself and a caret under the span's part of it."""
    start = min(span[0], len(text))
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", start)
    line = text[line_start : line_end if line_end >= 0 else len(text)]
    column = start - line_start
    carets = "^" * max(1, min(span[1], line_start + len(line)) - start)
    margin = "".join("\t" if character == "\t" else " " for character in line[:column])
    number = text.count("\n", 0, start) + 1
    return f"\n  line {number}, column {column + 1}:\n    {line}\n    {margin}{carets}"
