"""Orders of joins with their costs as a table, for the terminal: in `explain` and `anabranch inspect --plans`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

HEADINGS = ("joins", "work/s", "between joins/s", "joined rows in state", "exchanges", "rows to migrate", "")


def order_cells(plans: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """The headings, and the cells of each order."""
    yield HEADINGS
    for plan in plans:
        yield (
            plan["joins"],
            _rows(plan["work"]),
            _rows(plan["intermediate_rate"]),
            _rows(plan["state_rows"]),
            str(plan["exchanges"]),
            "" if plan["in_force"] else _rows(plan["migration_rows"]),
            "in force" if plan["in_force"] else "",
        )


def _rows(count: float) -> str:
    """Rows as people compare them: few of them with a digit behind the point."""
    return f"{count:,.1f}" if 0 < count < 10 else f"{count:,.0f}"
