"""The shape of a query's joins as text: what `joins=` takes, such as "((A B) C) D".

It is the inverse of `read_shape` in `language/shape`: what is written here is read back as the same shape. None, the
shape that is left to us, is "multiway". An alias stands in back-quotes where it has blanks, parentheses, commas or
back-quotes, and where it alone would be read as one of the two words that mean None.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from anabranch.plan.arrangement import Shape
from anabranch.plan.query import quote

AUTO = "auto"
MULTIWAY = "multiway"

_PLAIN = re.compile(r"[^\s()`,]+")


def shape_text(shape: Shape | None, aliases: Sequence[str]) -> str:
    """The shape over the numbers of the aliases, as a user writes it."""
    if shape is None:
        return MULTIWAY
    if isinstance(shape, int):
        return _name(aliases[shape])
    return " ".join(_part(part, aliases) for part in shape)


def _part(shape: Shape, aliases: Sequence[str]) -> str:
    text = shape_text(shape, aliases)
    return text if isinstance(shape, int) else f"({text})"


def _name(alias: str) -> str:
    plain = _PLAIN.fullmatch(alias) and alias.lower() not in (AUTO, MULTIWAY)
    return alias if plain else quote(alias)
