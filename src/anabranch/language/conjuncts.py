"""A condition split at its ANDs, and an equality at its sign.

Both are done on tokens and by Spark's grammar, in which NOT binds tighter than AND, AND tighter than OR, and
all comparisons and predicates (=, <, IS, IN, LIKE, BETWEEN ...) stand on one level and associate to the
left. So `A.x = B.x IS NULL` asks whether the equality is unknown; sqlglot reads it otherwise. An equality
counts as one only if its sign is the only operator of that level. Everything in parentheses, brackets or
CASE ... END is below.
"""

from __future__ import annotations

from sqlglot import Token, TokenType

from anabranch.language.expressions import Expression
from anabranch.language.source import Span
from anabranch.language.vocabulary import words

EQUAL = ("=", "==")
NULL_SAFE = "<=>"
PREDICATES = words("! not is in like ilike rlike regexp between and or <=> <> != < <= > >= = ==")


def conjuncts(condition: Expression) -> list[Expression]:
    """The conditions whose conjunction this is, parentheses around them taken off."""
    condition = unwrapped(condition)
    top = _top_level(condition)
    texts = [condition.source.raw(token).lower() for token in top]
    if "or" in texts:
        return [condition]
    cuts: list[Token] = []
    betweens = 0
    for token, word in zip(top, texts, strict=True):
        if word == "between":
            betweens += 1
        elif word == "and" and betweens:
            betweens -= 1
        elif word == "and":
            cuts.append(token)
    if not cuts:
        return [condition]
    starts = [condition.span[0], *(token.end + 1 for token in cuts)]
    ends = [*(token.start for token in cuts), condition.span[1]]
    spans = list(zip(starts, ends, strict=True))
    if not all(condition.source.between(span) for span in spans):
        return [condition]
    return [part for span in spans for part in conjuncts(condition.part(span))]


def equality(conjunct: Expression) -> tuple[Expression, Expression] | None:
    """The two sides, if the conjunct is a plain equality of two single values."""
    sign = _only_operator(conjunct)
    if sign is None or conjunct.source.raw(sign) not in EQUAL:
        return None
    left = _side(conjunct.part((conjunct.span[0], sign.start)))
    right = _side(conjunct.part((sign.end + 1, conjunct.span[1])))
    if _is_row(left) or _is_row(right):
        return None
    return left, right


def is_null_safe_equality(conjunct: Expression) -> bool:
    """Whether the conjunct is `a <=> b`."""
    sign = _only_operator(conjunct)
    return sign is not None and conjunct.source.raw(sign) == NULL_SAFE


def unwrapped(expression: Expression) -> Expression:
    """The expression without parentheses around all of it. A row, as in (a, b), keeps them."""
    tokens = expression.source.between(expression.span)
    if not tokens:
        return expression
    if not _in_parentheses(expression) or _is_row(expression):
        return expression.part((tokens[0].start, tokens[-1].end + 1))
    return unwrapped(expression.part((tokens[0].end + 1, tokens[-1].start)))


def _side(side: Expression) -> Expression:
    """The side of an equality without parentheses, unless it needs them to stand beside another sign."""
    bare = unwrapped(side)
    return side if _operators(bare) else bare


def _only_operator(conjunct: Expression) -> Token | None:
    operators = _operators(conjunct)
    return operators[0] if len(operators) == 1 else None


def _operators(expression: Expression) -> list[Token]:
    raw = expression.source.raw
    return [token for token in _top_level(expression) if raw(token).lower() in PREDICATES]


def _is_row(expression: Expression) -> bool:
    if not _in_parentheses(expression):
        return False
    tokens = expression.source.between(expression.span)
    inner: Span = (tokens[0].end + 1, tokens[-1].start)
    return any(token.token_type == TokenType.COMMA for token in _top_level(expression.part(inner)))


def _in_parentheses(expression: Expression) -> bool:
    tokens = expression.source.between(expression.span)
    top = _top_level(expression)
    if len(top) != 2 or top[0].token_type != TokenType.L_PAREN:
        return False
    return tokens[0] is top[0] and tokens[-1] is top[1]


def _top_level(expression: Expression) -> list[Token]:
    """The tokens outside of parentheses, brackets and CASE ... END, with the outermost of those themselves.

    Names are left out: a column may be called `end`.
    """
    opening = {"(": ")", "[": "]", "case": "end"}
    expected: list[str] = []
    outside: list[Token] = []
    position = expression.span[0]
    ends = dict(expression.refs.keys())
    previous = ""
    for token in expression.source.between(expression.span):
        word = expression.source.raw(token).lower()
        position = ends.get(token.start, position)
        if token.start >= position and previous != ".":
            if expected and word == expected[-1]:
                expected.pop()
                if not expected:
                    outside.append(token)
                previous = word
                continue
            if not expected:
                outside.append(token)
            if word in opening:
                expected.append(opening[word])
        previous = word
    return outside
