"""Names inside of expressions: Spark SQL text in which columns are identifiers in backquotes."""

from __future__ import annotations

import re
from collections.abc import Mapping

# What is no identifier is there to be passed over: a backquote in a string or a comment begins none.
_PIECES = re.compile(
    r"""(?<!\w)[rR]'[^']*'|(?<!\w)[rR]"[^"]*"|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|--[^\n]*|/\*.*?\*/|`(?:[^`]|``)*`""",
    re.DOTALL,
)


def substituted(text: str, texts: Mapping[str, str]) -> str:
    """The expression with identifiers, as they are quoted in it, replaced by other texts."""

    def other(piece: re.Match[str]) -> str:
        return texts.get(piece.group(), piece.group())

    return _PIECES.sub(other, text) if texts else text
