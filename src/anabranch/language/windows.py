"""What stands between the brackets after a stream's name.

    [RANGE 10 SECONDS]  [RANGE '10 seconds']  [RANGE INTERVAL 10 SECONDS]   a time window
    [NOW]                                                                   the same as RANGE 0
    [RANGE UNBOUNDED]   [UNBOUNDED]                                         no limit, as without brackets

A window is its length in microseconds, or `None` for no limit. The rest of CQL's windows (rows, partitions,
slides) is recognised only to be refused by name.
"""

from __future__ import annotations

from anabranch.errors import QueryError, UnsupportedError
from anabranch.language.duration import parse_duration

UNSUPPORTED = ("PARTITION", "ROWS", "SLIDE", "BETWEEN", "PRECEDING", "FOLLOWING")

HINT = "write [RANGE 10 SECONDS], [NOW] or [UNBOUNDED]"


def parse_window(words: list[str]) -> int | None:
    """The window that the words between the brackets describe: its length, or `None` if unbounded."""
    upper = [word.upper() for word in words]
    single = " ".join(upper).split()
    for construct in UNSUPPORTED:
        if construct in single:
            name = "PARTITION BY" if construct == "PARTITION" else construct
            raise UnsupportedError(f"{name} in a window is not supported yet; {HINT}")
    if upper in (["UNBOUNDED"], ["RANGE", "UNBOUNDED"]):
        return None
    if upper == ["NOW"]:
        return 0
    if len(words) > 1 and upper[0] == "RANGE":
        return parse_duration(_length(words[1:]))
    raise QueryError(f"[{' '.join(words)}] is not a window; {HINT}")


def _length(words: list[str]) -> str:
    if len(words) > 1 and words[0].upper() == "INTERVAL":
        words = words[1:]
    unquoted = [word[1:-1] if len(word) > 1 and word[0] in "'\"" else word for word in words]
    return " ".join(unquoted)
