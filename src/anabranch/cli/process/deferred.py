"""Commands that are imported when they are used, so that `--version` and `--help` do not wait for Spark and pandas.

A group is made of placeholders with a command's name and its line in the list of commands. The module behind a
placeholder is imported when the command, or its own `--help`, is called. The line is therefore written twice, here and
in the command's docstring; a test compares them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from anabranch.cli.process.failures import EXIT_CODES

# Makes the command behind a placeholder: a typer application of its own.
Load = Callable[[], typer.Typer]


@dataclass(frozen=True, slots=True)
class Deferred:
    """A command by its name, its line in the list of commands, and the function that imports it."""

    name: str
    line: str
    load: Load


def deferred_group(*entries: Deferred) -> type[TyperGroup]:
    """The `cls` of a typer application that has these commands, beside those that are added to it."""

    class Group(TyperGroup):
        def __init__(self, **settings: Any) -> None:
            placeholders = {entry.name: _Placeholder(entry) for entry in entries}
            super().__init__(**{**settings, "commands": placeholders | dict(settings.get("commands") or {})})

    return Group


def command_in(module: str, name: str) -> Load:
    """A function that imports a command, which is a function of a module."""
    return lambda: command_of(getattr(import_module(module), name))


def group_in(module: str, name: str) -> Load:
    """A function that imports a group of commands, which is a typer application in a module."""

    def load() -> typer.Typer:
        group: typer.Typer = getattr(import_module(module), name)
        return group

    return load


def command_of(function: Callable[..., None]) -> typer.Typer:
    """A function as a command."""
    app = typer.Typer(rich_markup_mode="markdown", add_completion=False)
    app.command(epilog=EXIT_CODES)(function)
    return app


class _Placeholder(TyperCommand):
    """A command that has not been imported; it hands over to the real one as soon as it has arguments to read."""

    def __init__(self, entry: Deferred) -> None:
        super().__init__(entry.name, help=entry.line, rich_markup_mode="markdown")
        self._load = entry.load

    def make_context(self, *args: Any, **settings: Any) -> Any:
        """The context of the real command, which is the one that click then invokes."""
        with _shown_loading():
            command = typer.main.get_command(self._load())
        return command.make_context(*args, **settings)


@contextmanager
def _shown_loading() -> Iterator[None]:
    """Show that commands are being loaded: on a busy machine it takes seconds to import PySpark and pandas."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status("loading"):
        yield
