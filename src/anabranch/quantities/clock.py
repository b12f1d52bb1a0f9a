"""A clock that stands still until somebody advances it.

The engine asks a function for the time, `time.time` unless another is passed in. With `Clock.now` in its place,
whatever decides by spans of time decides the same in every run of a test.
"""

from __future__ import annotations

from datetime import timedelta

from anabranch.errors import ConfigError, QueryError
from anabranch.quantities.duration import MICROSECONDS, parse_duration

START = 1_767_225_600.0  # 2026-01-01, UTC


class Clock:
    """Shows `start`, in seconds since 1970, until it is advanced.

    >>> clock = Clock(1_000)
    >>> clock.advance("45 seconds")
    >>> clock.now()
    1045.0
    """

    def __init__(self, start: float = START) -> None:
        """Stand still at `start`, by default the beginning of 2026."""
        self._now = float(start)

    def __repr__(self) -> str:
        """What it shows."""
        return f"Clock({self._now!r})"

    def now(self) -> float:
        """The time that it shows, in seconds since 1970."""
        return self._now

    def advance(self, length: float | str | timedelta) -> None:
        """Go on by a number of seconds, or by a length of time such as "1 minute". A clock does not go back."""
        self._now += _seconds(length)


def _seconds(length: float | str | timedelta) -> float:
    if isinstance(length, str | timedelta):
        try:
            return parse_duration(length) / MICROSECONDS["second"]
        except QueryError as error:
            raise ConfigError(f"a clock cannot be advanced: {error}") from None
    if isinstance(length, bool) or not isinstance(length, int | float) or not 0 <= length < float("inf"):
        raise ConfigError(f"a clock is advanced by seconds or by a length such as '1 minute', not by {length!r}")
    return length
