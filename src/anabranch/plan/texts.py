"""Names inside of expressions: Spark SQL text in which columns are identifiers in backquotes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from anabranch.plan.logical import Output, Selection, quote

# What is no identifier is there to be passed over: a backquote in a string or a comment begins none.
_PIECES = re.compile(
    r"""(?<!\w)[rR]'[^']*'|(?<!\w)[rR]"[^"]*"|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|--[^\n]*|/\*.*?\*/|`(?:[^`]|``)*`""",
    re.DOTALL,
)


_NAME = re.compile(r"`(?:[^`]|``)*`")


# The variables of a lambda, before its arrow: one, or several in parentheses.
_VARIABLES = re.compile(r"(`(?:[^`]|``)*`|\([^()]*\))\s*->")


def substituted(text: str, texts: Mapping[str, str]) -> str:
    """The expression with columns, as they are quoted in it, replaced by other texts.

    A field of a struct, a field in the name of a type and a variable of a lambda are no columns.
    """
    variables = {name for found in _VARIABLES.findall(text) for name in _NAME.findall(found)}

    def other(piece: re.Match[str]) -> str:
        name, before, after = piece.group(), text[: piece.start()].rstrip(), text[piece.end() :].lstrip()
        if name in variables or before.endswith(".") or after.startswith(":"):
            return name
        return texts.get(name, name)

    return _PIECES.sub(other, text) if texts else text


def inlined(outputs: Sequence[Output], steps: Sequence[Selection]) -> tuple[tuple[str, ...], tuple[Output, ...]]:
    """Selections one after the other as one, over what the outputs are over: its conditions and outputs."""
    conditions: list[str] = []
    for step in steps:
        texts = texts_of(outputs)
        conditions += [substituted(condition, texts) for condition in step.conditions]
        outputs = [Output(output.name, substituted(output.expression, texts)) for output in step.outputs]
    return tuple(conditions), tuple(outputs)


def texts_of(outputs: Sequence[Output]) -> dict[str, str]:
    """What stands for each column, in expressions over what the outputs are over."""
    return {quote(output.name): _as_part(output.expression) for output in outputs}


def _as_part(text: str) -> str:
    """An expression as a part of another one."""
    return text if is_name(text) else f"({text})"


def is_name(text: str) -> bool:
    """Whether an expression is a plain column."""
    return _NAME.fullmatch(text) is not None
