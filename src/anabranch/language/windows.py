"""Windows: the text between the brackets after a stream's name.

    [RANGE 10 SECONDS]  [RANGE '10 seconds']  [RANGE INTERVAL 10 SECONDS]   a time window
    [NOW]                                                                   the same as RANGE 0
    [RANGE UNBOUNDED]   [UNBOUNDED]                                         no limit, as without brackets
    [PARTITION BY client ROWS 100]                                          the last rows of each group

A window of time is its length in microseconds, or `None` for no limit. The rest of CQL's windows (slides and the like)
is recognised only to be refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.errors import QueryError, UnsupportedError
from anabranch.quantities.duration import parse_duration

UNSUPPORTED = ("SLIDE", "BETWEEN", "PRECEDING", "FOLLOWING")

MAX_ROWS = 1_000_000_000

HINT = "write [RANGE 10 SECONDS], [NOW], [UNBOUNDED] or [PARTITION BY a ROWS 100]"


@dataclass(frozen=True, slots=True)
class RowsWindow:
    """The last `rows` tuples of each group of a stream; columns as dotted names."""

    columns: tuple[tuple[str, ...], ...]
    rows: int


Window = int | None | RowsWindow


def parse_window(words: list[str]) -> Window:
    """The window that the words between the brackets describe."""
    upper = [word.upper() for word in words]
    single = " ".join(upper).split()
    for construct in UNSUPPORTED:
        if construct in single:
            raise UnsupportedError(f"{construct} in a window is not supported; {HINT}")
    if single[:2] == ["PARTITION", "BY"]:
        return _parse_rows(words)
    if "ROWS" in single:
        raise UnsupportedError(f"ROWS in a window without PARTITION BY is not supported; {HINT}")
    if upper in (["UNBOUNDED"], ["RANGE", "UNBOUNDED"]):
        return None
    if upper == ["NOW"]:
        return 0
    if len(words) > 1 and upper[0] == "RANGE":
        return parse_duration(_length(words[1:]))
    raise QueryError(f"[{' '.join(words)}] is not a window; {HINT}")


def _parse_rows(words: list[str]) -> RowsWindow:
    """PARTITION BY a, s.b ROWS k. sqlglot may read PARTITION BY as one word."""
    rest = words[1:] if words[0].upper().split() == ["PARTITION", "BY"] else words[2:]
    names, rows = rest[:-2], rest[-1:]
    if len(rest) < 3 or rest[-2].upper() != "ROWS" or not rows[0].isdecimal() or not 1 <= int(rows[0]) <= MAX_ROWS:
        hint = f"write [PARTITION BY a ROWS 100], with a number from 1 to {MAX_ROWS:,}"
        raise QueryError(f"[{' '.join(words)}] is not a window; {hint}")
    columns: list[tuple[str, ...]] = []
    column: list[str] = []
    for position, word in enumerate([*names, ","]):
        if word == ",":
            columns.append(tuple(column))
            column = []
        elif word != "." and (position == 0 or names[position - 1] in (",", ".")):
            column.append(word[1:-1].replace("``", "`") if word.startswith("`") else word)
        elif word != ".":
            columns.append(())
    if not all(columns):
        raise QueryError(
            f"[{' '.join(words)}] is not a window; PARTITION BY takes names of columns, with commas between"
        )
    return RowsWindow(tuple(columns), int(rows[0]))


def _length(words: list[str]) -> str:
    if len(words) > 1 and words[0].upper() == "INTERVAL":
        words = words[1:]
    unquoted = [word[1:-1] if len(word) > 1 and word[0] in "'\"" else word for word in words]
    return " ".join(unquoted)
