"""The shape of a query's joins, as a user writes it: "auto", "multiway", or a tree such as "((A B) C) D".

Parentheses hold what one operator joins, two parts or more: "(A B C) D" joins three streams at once, and their results
with D. Names are the aliases of FROM; a name with spaces or parentheses stands in back-quotes. With "auto" and
"multiway" streams that share a key meet in one operator (`plan/arrangement`). What is read here, `plan/shape_text`
writes.
"""

from __future__ import annotations

import re

from anabranch.errors import QueryError, did_you_mean
from anabranch.language.scope import match
from anabranch.plan.arrangement import Shape
from anabranch.plan.shape_text import AUTO, MULTIWAY

_TOKENS = re.compile(r"\s*(?:(?P<mark>[()])|`(?P<quoted>(?:[^`]|``)+)`|(?P<name>[^\s()`,]+)|(?P<comma>,))")


def read_shape(text: str, aliases: tuple[str, ...]) -> Shape | None:
    """The tree over the numbers of the aliases; None where it is left to us."""
    if text.strip().lower() in (AUTO, MULTIWAY):
        return None
    levels: list[list[Shape]] = [[]]
    named: list[int] = []
    position = 0
    while text[position:].strip():
        token = _TOKENS.match(text, position)
        if token is None:
            raise _error(text, f"{text[position:].strip()!r} cannot be read")
        position = token.end()
        if token["mark"] == "(":
            levels.append([])
        elif token["mark"] == ")":
            if len(levels) == 1:
                raise _error(text, "a ')' closes nothing")
            _close(text, levels)
        elif not token["comma"]:
            name = token["name"] or token["quoted"].replace("``", "`")
            alias = match(name, aliases)
            if alias is None:
                raise _error(text, f"there is no {name!r} in FROM; {did_you_mean(name, list(aliases))}")
            named.append(list(aliases).index(alias))
            levels[-1].append(named[-1])
    if len(levels) > 1:
        raise _error(text, "a '(' is not closed")
    twice = sorted({aliases[n] for n in named if named.count(n) > 1})
    missing = [alias for n, alias in enumerate(aliases) if n not in named]
    if twice or missing:
        raise _error(text, f"{', '.join(twice or missing)} {'occurs twice' if twice else 'does not occur'} in it")
    top = levels[0]
    return top[0] if len(top) == 1 else tuple(top)


def _close(text: str, levels: list[list[Shape]]) -> None:
    parts = levels.pop()
    if not parts:
        raise _error(text, "there are parentheses around nothing")
    levels[-1].append(parts[0] if len(parts) == 1 else tuple(parts))


def _error(text: str, problem: str) -> QueryError:
    return QueryError(
        f"joins={text!r}: {problem}; write {AUTO!r}, {MULTIWAY!r}, or which streams are joined first, "
        'as in "((A B) C) D", with every alias of FROM once'
    )
