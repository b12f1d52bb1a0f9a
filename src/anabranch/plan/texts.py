"""Replace columns in Spark SQL expressions, where they are identifiers in backquotes, by other expressions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import count

from anabranch.plan.names import Lambda, Names
from anabranch.plan.query import Output, Selection, quote

_NAME = re.compile(r"`(?:[^`]|``)*`")


def substituted(text: str, texts: Mapping[str, str]) -> str:
    """The expression with columns, as they are quoted in it, replaced by other texts. Other names stay (`names`).

    A lambda's variable that is called as a column in what is put inside the lambda gets another name.
    """
    if not any(name in text for name in texts):
        return text
    names = Names(text)
    edits = {n: texts[names.tokens[n].text] for n in names.columns() if names.tokens[n].text in texts}
    return "".join(_edited(text, names, edits | _renamed(names, edits)))


def _edited(text: str, names: Names, edits: Mapping[int, str]) -> list[str]:
    """The pieces of the text with some tokens replaced."""
    pieces, end = [], 0
    for n in sorted(edits):
        token = names.tokens[n]
        pieces += [text[end : token.start], edits[n]]
        end = token.end
    return [*pieces, text[end:]]


def _renamed(names: Names, edits: Mapping[int, str]) -> dict[int, str]:
    """New names for variables that would capture what is read in their lambdas."""
    if not names.lambdas:
        return {}
    captured: dict[tuple[Lambda, str], str] = {}
    read = set[str]().union(*(Names(text).free() for text in edits.values()))
    fresh = (f"v{number}" for number in count())
    for n, text in edits.items():
        inside = Names(text).free()
        for around in names.lambdas:
            for variable in around.variables & inside if around.first <= n <= around.last else ():
                if (around, variable) not in captured:
                    taken = read | {token.called for token in names.tokens} | set(captured.values())
                    captured[around, variable] = next(name for name in fresh if name not in taken)
    bound = ((n, names.variable(n), token.called) for n, token in enumerate(names.tokens))
    return {n: quote(captured[around, name]) for n, around, name in bound if around and (around, name) in captured}


def inlined(outputs: Sequence[Output], steps: Sequence[Selection]) -> tuple[tuple[str, ...], tuple[Output, ...]]:
    """Combine selections that follow each other into one. Returns its conditions and its outputs."""
    conditions: list[str] = []
    for step in steps:
        texts = texts_of(outputs)
        conditions += [substituted(condition, texts) for condition in step.conditions]
        outputs = [Output(output.name, substituted(output.expression, texts)) for output in step.outputs]
    return tuple(conditions), tuple(outputs)


def texts_of(outputs: Sequence[Output]) -> dict[str, str]:
    """The expression of each output, by its name in backquotes."""
    return {quote(output.name): _as_part(output.expression) for output in outputs}


def _as_part(text: str) -> str:
    """An expression as a part of another one."""
    return text if is_name(text) else f"({text})"


def is_name(text: str) -> bool:
    """Whether an expression is a plain column."""
    return _NAME.fullmatch(text) is not None
