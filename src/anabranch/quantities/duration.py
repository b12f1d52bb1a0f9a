"""Lengths of time as people write them, in whole microseconds.

`"10 seconds"`, `"1 hour 30 minutes"`, `"1.5 days"` and `datetime.timedelta` are read; windows and lateness
both come through here, so that a length means the same wherever it is written. The result is exact or
refused: a fraction is fine as long as it comes to whole microseconds. Months and years are no lengths and
are refused.
"""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

from anabranch.errors import QueryError, did_you_mean

MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}

# Spark keeps timestamps in 64 bits; a longer length could not be added to one.
LONGEST = 2**63 - 1

_PART = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([^\W\d]+)(?=[\s\d.]|$)\s*", re.ASCII)


def parse_duration(length: str | timedelta) -> int:
    """The length in microseconds; `QueryError` if it is not a length, negative, or not whole microseconds."""
    if isinstance(length, timedelta):
        return _checked(Fraction(length // timedelta(microseconds=1)), str(length))
    hint = "write a number and a unit, as in '10 seconds'"
    if not isinstance(length, str):
        raise QueryError(f"{length!r} is not a length of time; {hint}")
    total = Fraction(0)
    position = 0
    while position < len(length) or position == 0:
        part = _PART.match(length, position)
        if part is None:
            raise QueryError(f"{length!r} is not a length of time; {hint}")
        total += Fraction(part[1]) * _unit(part[2], length)
        position = part.end()
    return _checked(total, length)


def _unit(word: str, length: str) -> int:
    name = word.lower()
    for unit in (name, name.removesuffix("s")):
        if unit in MICROSECONDS:
            return MICROSECONDS[unit]
    hint = did_you_mean(word, (unit + "s" for unit in MICROSECONDS))
    raise QueryError(f"unknown unit of time {word!r} in {length!r}; {hint}")


def _checked(microseconds: Fraction, length: str) -> int:
    if microseconds < 0:
        raise QueryError(f"the length of time {length!r} is negative")
    if microseconds.denominator != 1:
        raise QueryError(f"the length of time {length!r} is not a whole number of microseconds")
    if microseconds > LONGEST:
        raise QueryError(f"the length of time {length!r} is too long; leave it out for unbounded")
    return int(microseconds)
