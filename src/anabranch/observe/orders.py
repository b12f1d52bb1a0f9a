"""Orders of joins with their costs as a table, for the terminal: in `explain` and `anabranch inspect --plans`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from anabranch.observe.numbers import format_count

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


def orders_tables(orders: Mapping[str, Any] | None, step: int) -> Iterator[RenderableType]:
    """The recorded costs of orders of joins in a checkpoint whose last step is `step`: per query a sentence and a
    table."""
    if orders is None:
        yield Text("orders of joins: nothing is on record; run.plans() and the policy ab.AutoMigrate measure them")
        return
    ago = "the last step" if orders["step"] == step else f"step {orders['step']} of {step}"
    for name, entry in orders["queries"].items():
        inputs = (
            f"{alias} {_rows(rate)} rows/s, {format_count(entry['stored'][alias])} stored"
            for alias, rate in entry["rates"].items()
        )
        yield Text(f"orders of the joins of {name}, as measured after {ago}: {'; '.join(inputs)}")
        headings, *rows = order_cells(entry["plans"])
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
        for number, heading in enumerate(headings):
            table.add_column(heading, justify="left" if number == 0 else "right", no_wrap=True)
        for row in rows:
            table.add_row(*row)
        yield table


def _rows(count: float) -> str:
    """A number of rows, with a digit behind the point if it is small."""
    return f"{count:,.1f}" if 0 < count < 10 else f"{count:,.0f}"
