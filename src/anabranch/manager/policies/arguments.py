"""Arguments of policies: what users write, checked."""

from __future__ import annotations

from datetime import timedelta

from anabranch.errors import ConfigError, QueryError
from anabranch.quantities.duration import parse_duration

MICROSECONDS = 1_000_000


def seconds_of(name: str, length: str | timedelta, example: str = "45 seconds") -> float:
    """An argument that is a length of time, in seconds; the example is for who wrote something else."""
    if not isinstance(length, str | timedelta):
        raise ConfigError(f"{name} must be a length of time, such as {example!r}, not {length!r}")
    try:
        return parse_duration(length) / MICROSECONDS
    except QueryError as error:
        raise ConfigError(f"{name}: {error}") from None


def is_number(value: object) -> bool:
    """Whether an argument is a number; True, False and NaN are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value
