"""Text that commands print around a run: the query, the plan with long lines folded, sentences."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.syntax import Syntax
from rich.text import Text

from anabranch.api.query import Query


def show_query(console: Console, text: str) -> None:
    """Print CQL; with colours on a terminal."""
    body = textwrap.dedent(text).strip()
    console.print(Syntax(body, "sql", theme="ansi_dark", background_color="default") if console.is_terminal else body)


def show_plan(console: Console, query: Query) -> None:
    """Print the plan, folded to the width of a terminal."""
    show_tree(console, query.plan)


def show_tree(console: Console, plan: str) -> None:
    """Print a plan that is text already, folded in the same way."""
    for line in fold(plan, console.width) if console.is_terminal else plan.splitlines():
        console.print(Text(line, style="dim"), soft_wrap=True)


def say(console: Console, text: str, style: str = "") -> None:
    """Print a sentence: folded at spaces on a terminal, in one line elsewhere."""
    console.print(Text(text, style=style), soft_wrap=not console.is_terminal)


@contextmanager
def doing(console: Console, what: str) -> Iterator[None]:
    """Show what the command is doing while it takes time: a line that disappears, or a plain one outside a terminal."""
    if console.is_terminal:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            progress.add_task(what, total=None)
            yield
    else:
        say(console, f"{what} ...")
        yield


def fold(plan: str, width: int) -> list[str]:
    """The plan's lines, the long ones broken at spaces and continued below their own beginning."""
    folded = []
    for line in plan.splitlines():
        depth = len(line) - len(line.lstrip(" +-"))
        folded += textwrap.wrap(
            line,
            width,
            subsequent_indent=" " * (depth + 2),
            drop_whitespace=True,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
    return folded
