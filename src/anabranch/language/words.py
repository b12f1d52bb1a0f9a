"""Every word and sign of an expression must be accounted for.

A parser may know more than we do and drop what it does not need. So the tokens of an expression are read
once more: each word has to be a column, a field after a dot, a function, a lambda's variable, an argument's
name, part of a type or a word from `vocabulary`, and each sign has to be on the list below. What is left
over is refused by name.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlglot import TokenType

from anabranch.errors import UnsupportedError
from anabranch.language.source import SourceText, Span
from anabranch.language.vocabulary import MOVING_MOMENTS, NO_FUNCTIONS, TO_MOMENT, WORDS, refusal, words

SIGNS = words("( ) [ ] . , + - * / % = == <=> <> != < <= > >= ! & | ^ ~ || -> => ::")

LITERALS = frozenset(
    {
        TokenType.STRING,
        TokenType.RAW_STRING,
        TokenType.HEX_STRING,
        TokenType.NUMBER,
        TokenType.NATIONAL_STRING,
        TokenType.HEREDOC_STRING,
    }
)

QUANTIFIED = ("like", "ilike", "rlike")


def check_words(
    source: SourceText, span: Span, columns: set[int], variables: set[str], allowed: Collection[str] = ()
) -> None:
    """Refuse the first token that is not accounted for.

    `columns` are the places where column names begin, `allowed` are functions that would be refused elsewhere.
    """
    _Reading(source, span, columns, variables, allowed).check()


class _Reading:
    """One pass over the tokens of an expression; `calls` are the functions whose parentheses are open."""

    def __init__(
        self, source: SourceText, span: Span, columns: set[int], variables: set[str], allowed: Collection[str]
    ) -> None:
        self.source = source
        self.tokens = source.between(span)
        self.columns = columns
        self.variables = variables
        self.allowed = allowed
        self.texts = [source.raw(token).lower() for token in self.tokens]
        self.calls: list[str] = []

    def check(self) -> None:
        index = 0
        while index < len(self.tokens):
            index = self._step(index)

    def text(self, index: int) -> str:
        return self.texts[index] if 0 <= index < len(self.texts) else ""

    def refuse(self, index: int, construct: str, hint: str = "") -> UnsupportedError:
        token = self.tokens[index]
        return self.source.unsupported(construct, (token.start, token.end + 1), hint)

    def _step(self, index: int) -> int:
        """Check the token and say where to go on; types are stepped over as a whole."""
        token, text = self.tokens[index], self.texts[index]
        if token.token_type in LITERALS:
            self._literal(index)
        elif text[0].isalpha() or text[0] in "_`" or text[0].isdigit():
            self._word(index)
            if text == "as" and self.calls and self.calls[-1] in ("cast", "try_cast"):
                return self._closing(index)
        elif text not in SIGNS:
            raise self.refuse(index, f"the operator {text}")
        elif text == "(":
            self.calls.append(self.text(index - 1))
        elif text == ")" and self.calls:
            self.calls.pop()
        elif text == "::":
            return self._type_end(index + 1)
        return index + 1

    def _word(self, index: int) -> None:
        token, text = self.tokens[index], self.texts[index]
        before, after = self.text(index - 1), self.text(index + 1)
        name = token.text.lower() if text.startswith("`") else text
        quantifier = name in ("any", "some", "all") and before in QUANTIFIED
        if after == "(" and not (text in NO_FUNCTIONS or quantifier):
            self._function(index, name)
            return
        named = before in (".", "as", "collate") or after == "=>" or token.start in self.columns
        if named or name in self.variables or quantifier:
            return
        if text == "distinct" and after != "from":
            raise self.refuse(index, "DISTINCT")
        if text in ("any", "some", "all") or not all(word in WORDS for word in text.split()):
            raise self.refuse(index, f"{self.source.raw(token)} here")

    def _function(self, index: int, name: str) -> None:
        if self.text(index - 1) == ".":
            raise self.refuse(index, f"the qualified function {name}", "name the function alone")
        reason = None if name in self.allowed else refusal(name)
        if reason is not None:
            raise self.refuse(index, *reason)
        if name == "unix_timestamp" and self.text(index + 2) == ")":
            hint = "a batch that is repeated must give the same answer"
            raise self.refuse(index, "the function unix_timestamp without arguments", hint)

    def _literal(self, index: int) -> None:
        moment = self.tokens[index].text.lower().split()[:1]
        if not moment or moment[0] not in MOVING_MOMENTS or self.tokens[index].token_type == TokenType.NUMBER:
            return
        before = self.text(index - 1)
        function = self.calls[-1] if before == "(" and self.calls else before
        if function in TO_MOMENT or self.text(index + 1) == "::":
            hint = "a batch that is repeated must give the same answer"
            raise self.refuse(index, f"the moving moment '{moment[0]}'", hint)

    def _closing(self, index: int) -> int:
        """The parenthesis that closes the one around this place."""
        depth = 0
        for at in range(index, len(self.texts)):
            depth += {"(": 1, ")": -1}.get(self.texts[at], 0)
            if depth < 0:
                return at
        return len(self.texts)

    def _type_end(self, index: int) -> int:
        """Where the type that begins here ends: a word, then what stands in <> or () right after it."""
        depth, at = 0, index + 1
        while at < len(self.texts):
            change = {"(": 1, "<": 1, ")": -1, ">": -1}.get(self.texts[at], 0)
            if depth + change < 0 or (depth == 0 and change == 0):
                break
            depth += change
            at += 1
            if depth == 0:
                break
        return at
