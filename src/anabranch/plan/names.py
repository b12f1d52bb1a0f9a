"""Which names in a Spark SQL expression are columns. Not all are: some name fields, functions, variables and more.

An expression is cut into tokens as by Spark: strings in all forms, comments, which may contain others, names in
backquotes, words, numbers and signs. What a name stands for follows from the tokens around it:

| the name is | in |
|---|---|
| a field, or a part of a path into a VARIANT | ``s.`a` ``, ``v:`a` `` |
| a field of a type, with or without a colon | ``STRUCT<`a`: INT, `b` INT>`` |
| a function | `` `f`(x)``, `` `db`.`f`(x)`` |
| the name of an argument | ``f(`a` => 1)`` |
| a new name for an expression | ``struct(x AS `a`, y `b`)`` |
| a collation | ``s COLLATE `UNICODE` `` |
| a variable, up to the end of its lambda | ``transform(xs, `x` -> `x` + 1)`` |

Every other name in backquotes is a column, also before `::type` and `:path`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

NAME, WORD, VALUE, SIGN = "name", "word", "value", "sign"

_TOKEN = re.compile(
    r"""
    (?P<comment>--(?:\\\n|[^\r\n])*)
  | (?P<value>(?<!\w)[rR]'[^']*'|(?<!\w)[rR]"[^"]*"|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\d\w*(?:\.\d\w*)?|\.\d\w*)
  | (?P<name>`(?:[^`]|``)*`)
  | (?P<word>[^\W\d]\w*)
  | (?P<sign><=>|::|->|=>|<=|>=|<>|!=|==|\|\||\S)
    """,
    re.DOTALL | re.VERBOSE,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_CLOSING = {"(": ")", "[": "]", "<": ">"}
_TYPES = ("struct", "array", "map")
# Words that are a whole operand, so that a name after them is a new name for it.
_OPERANDS = ("end", "null", "true", "false")


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of an expression, and how many brackets it stands in; brackets themselves count as outside."""

    kind: str
    text: str
    start: int
    depth: int
    in_struct_type: bool

    @property
    def end(self) -> int:
        """Where the next piece can begin."""
        return self.start + len(self.text)

    @property
    def called(self) -> str:
        """A name or a word as Spark compares names: in lower case, without backquotes."""
        return unquoted(self.text).lower()


@dataclass(frozen=True, slots=True)
class Lambda:
    """The variables of a lambda, and where it stands, by the numbers of tokens."""

    variables: frozenset[str]
    first: int
    last: int


class Names:
    """The names of an expression, by the numbers of its tokens."""

    def __init__(self, text: str) -> None:
        """Cut the text into tokens and find its lambdas."""
        self.tokens = _tokens(text)
        self.lambdas = [self._lambda(n) for n in range(len(self.tokens)) if self._is(n, "->")]

    def columns(self) -> Iterator[int]:
        """The tokens that are columns."""
        for n, token in enumerate(self.tokens):
            if token.kind == NAME and self._is_read(n) and self.variable(n) is None:
                yield n

    def free(self) -> set[str]:
        """The names that may be columns, in backquotes or not; variables of lambdas are left out."""
        return {token.called for n, token in enumerate(self.tokens) if self._is_read(n) and self.variable(n) is None}

    def variable(self, n: int) -> Lambda | None:
        """The lambda whose variable a token is; the innermost one."""
        if not self._is_read(n):
            return None
        around = (one for one in reversed(self.lambdas) if one.first <= n <= one.last)
        return next((one for one in around if self.tokens[n].called in one.variables), None)

    def _is_read(self, n: int) -> bool:
        """Whether a token is the name of a value, be it a column or a variable."""
        token = self.tokens[n]
        if token.kind not in (NAME, WORD) or self._is_after(n, ".", ":") or self._is(n + 1, "=>"):
            return False
        if token.in_struct_type and self._is_after(n, "<", ","):
            return False
        return not self._is_function(n) and (token.kind == WORD or not self._is_alias(n))

    def _is_alias(self, n: int) -> bool:
        if n == 0:
            return False
        before = self.tokens[n - 1]
        if before.kind == WORD:
            word = before.text.lower()
            field_or_variable = self._is_after(n - 1, ".") or self.variable(n - 1) is not None
            return field_or_variable or word in _OPERANDS or word in ("as", "collate")
        return before.kind in (NAME, VALUE) or before.text in (")", "]")

    def _is_function(self, n: int) -> bool:
        while self._is(n + 1, ".") and n + 2 < len(self.tokens):
            n += 2
        return self._is(n + 1, "(")

    def _is(self, n: int, sign: str) -> bool:
        return n < len(self.tokens) and self.tokens[n].kind == SIGN and self.tokens[n].text == sign

    def _is_after(self, n: int, *signs: str) -> bool:
        return n > 0 and any(self._is(n - 1, sign) for sign in signs)

    def _lambda(self, arrow: int) -> Lambda:
        """The lambda of an arrow: its variables stand before it, alone or in parentheses; it ends with its argument."""
        depth, first = self.tokens[arrow].depth, arrow - 1
        if self._is(first, ")"):
            first = max(n for n in range(first) if self._is(n, "(") and self.tokens[n].depth == depth)
        variables = {token.called for token in self.tokens[first:arrow] if token.kind in (NAME, WORD)}
        after = range(arrow + 1, len(self.tokens))
        ends = (
            n for n in after if self.tokens[n].depth < depth or (self._is(n, ",") and self.tokens[n].depth == depth)
        )
        return Lambda(frozenset(variables), first, next(ends, len(self.tokens)) - 1)


def unquoted(name: str) -> str:
    """A name without its backquotes."""
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _tokens(text: str) -> Sequence[Token]:
    tokens: list[Token] = []
    open_brackets: list[tuple[str, bool]] = []
    for kind, piece, start in _pieces(text):
        depth = len(open_brackets)
        if kind == SIGN and open_brackets and piece == _CLOSING[open_brackets[-1][0]]:
            open_brackets.pop()
            depth -= 1
        in_struct_type = bool(open_brackets) and open_brackets[-1][1]
        before = tokens[-1].text.lower() if tokens and tokens[-1].kind == WORD else ""
        is_type = piece == "<" and before in _TYPES and not (len(tokens) > 1 and tokens[-2].text == ".")
        tokens.append(Token(kind, piece, start, depth, in_struct_type))
        if kind == SIGN and (piece in ("(", "[") or is_type):
            open_brackets.append((piece, is_type and before == "struct"))
    return tokens


def _pieces(text: str) -> Iterator[tuple[str, str, int]]:
    at = 0
    while at < len(text):
        if text.startswith("/*", at):
            at = _after_comment(text, at)
            continue
        token = _TOKEN.match(text, at)
        if token is None:
            at += 1
            continue
        kind = str(token.lastgroup)
        if kind != "comment":
            yield kind, token.group(), at
        at = token.end()


def _after_comment(text: str, at: int) -> int:
    """The end of a comment in brackets, with all comments inside it."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, at):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(text)
