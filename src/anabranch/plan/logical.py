"""The logical form of a continuous query: what CQL text is bound to and what the runtime executes.

A `JoinQuery` is an m-way equi-join over stream occurrences (`JoinInput`, one per alias in FROM) that share one
join key, with selections pushed below the join, a residual predicate and a projection above it.

Expressions are Spark SQL text, because Spark evaluates them. Below the join (`key`, `conditions`) they refer to
the stream's columns by bare name; above it (`residual`, `Output.expression`) a column of an alias is one
identifier that contains the dot: `` `A.v` ``.

Times (windows, lateness) are whole microseconds; `None` means unbounded, or never late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MAX_INPUTS = 8


@dataclass(frozen=True, slots=True)
class StreamSchema:
    """What the binder has to know of a registered stream."""

    name: str
    columns: tuple[str, ...]
    time: str | None = None
    lateness: int | None = None


@dataclass(frozen=True, slots=True)
class JoinInput:
    """One occurrence of a stream in FROM; a row has to meet all `conditions`.

    `columns` are those that results need, in the stream's order.
    """

    alias: str
    stream: str
    window: int | None
    key: tuple[str, ...]
    conditions: tuple[str, ...]
    columns: tuple[str, ...]

    @property
    def predicate(self) -> str | None:
        """All conditions as one."""
        return all_of(self.conditions)


@dataclass(frozen=True, slots=True)
class Output:
    """One column of the answer: its name and the expression over joined columns that computes it."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class JoinQuery:
    """A bound continuous query. `text` is what the user wrote; a joined row has to meet all `conditions`."""

    text: str
    inputs: tuple[JoinInput, ...]
    outputs: tuple[Output, ...]
    conditions: tuple[str, ...] = ()

    @property
    def residual(self) -> str | None:
        """All conditions on joined rows as one."""
        return all_of(self.conditions)


def all_of(conditions: Sequence[str]) -> str | None:
    """The conjunction of the conditions, or None if there are none."""
    if len(conditions) < 2:
        return conditions[0] if conditions else None
    return " AND ".join(f"({condition})" for condition in conditions)


def joined_column(alias: str, column: str) -> str:
    """The name that a column of an alias has above the join."""
    return f"{alias}.{column}"


def quote(name: str) -> str:
    """A name as one Spark SQL identifier, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"
