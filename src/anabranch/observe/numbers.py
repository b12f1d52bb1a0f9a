"""Numbers for people: the one place that renders and reads bytes, counts and durations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from numbers import Integral

from anabranch.errors import ConfigError

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
# How many groups are named before the rest are counted.
NAMED_GROUPS = 8
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", re.IGNORECASE)


def parse_bytes(size: int | str) -> int:
    """A number of bytes from 1024, "200m", "1.5 GiB"; units are powers of 1024, as in Spark."""
    if isinstance(size, Integral) and not isinstance(size, bool):
        if size <= 0:
            raise ConfigError(f"a size must be positive, not {size}")
        return int(size)
    match = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if match is None or float(match[1]) == 0:
        raise ConfigError(f"{size!r} is not a size; write it like '200m' or '4g'")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def format_bytes(count: int) -> str:
    """Bytes with a unit, as in "1.5 GiB"."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def format_count(count: int) -> str:
    """A count with thousands separated."""
    return f"{count:,}"


def format_seconds(seconds: float) -> str:
    """A duration as people write it: "0.42 s", "3 min 20 s"."""
    if seconds < 60:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def numbered(groups: Sequence[int]) -> str:
    """Some groups, by number; only the first few if there are many."""
    if len(groups) == 1:
        return f"group {groups[0]}"
    more = f" and {len(groups) - NAMED_GROUPS} more" if len(groups) > NAMED_GROUPS else ""
    return f"groups {', '.join(map(str, sorted(groups)[:NAMED_GROUPS]))}{more}"


def format_quantity(count: int, one: str, several: str | None = None) -> str:
    """A number with what it counts: "1 batch", "12 batches". Without `several` it ends in an s."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"
