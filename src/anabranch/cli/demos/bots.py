"""Visits, clicks, orders and payments of a shop, into which bots come in the middle: the streams of `demo migration`.

Row i of each stream belongs to row i of the others, if they match at all. Three visits of ten lead to a click; the
other clicks come from elsewhere. Six clicks of ten are followed by an order, eight orders of ten by a payment. From
batch `turn` on, three visits and three clicks of ten are those of a few bots, in the place of others that matched
nothing: every click of a bot meets all of its visits in the window, and none of them is followed by an order. So the
answer stays as large as it was. All numbers are in proportion to the rows of a batch.

As with the other demos' streams, rows arrive up to `LATENESS` after their event time and are never late.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.cli.demos.stream_files import Micros, write_stream
from anabranch.errors import ConfigError

SECOND = 1_000_000
LATENESS = 5 * SECOND
BATCH_SPAN = 30 * SECOND
OPENING = 1_767_258_000  # 2026-01-01 09:00 UTC, in seconds

LED_TO_A_CLICK = 0.3
OF_BOTS = 0.3
ORDERED = 0.6
PAID = 0.8
ROWS_PER_BOT = 120  # of a batch of visits
LEAST_ROWS = 1_000  # per batch

SOURCES = ("newsletter", "search", "banner", "friend")
METHODS = ("card", "invoice", "transfer")

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class BotShop:
    """The shop to generate: `rows` of visits, clicks and orders each, in `batches`; bots come with batch `turn`."""

    rows: int
    batches: int
    turn: int
    seed: int

    def __post_init__(self) -> None:
        """Refuse numbers that are too small to show anything."""
        if self.rows < self.batches * LEAST_ROWS:
            raise ConfigError(
                f"{self.rows:,} rows per stream are too few for {self.batches} batches; ask for "
                f"{self.batches * LEAST_ROWS:,} or more"
            )

    @property
    def bots(self) -> int:
        """The number of bots."""
        return self.rows // self.batches // ROWS_PER_BOT


def write_bot_shop(shop: BotShop, folder: Path) -> None:
    """Write the four streams below `folder`."""
    rng, rows = np.random.default_rng(shop.seed), shop.rows
    numbers = np.arange(rows)
    visited = np.sort(rng.integers(0, shop.batches * BATCH_SPAN, rows)) + OPENING * SECOND
    clicked, ordered, paid = np.cumsum([_delay(rng, rows, mean) for mean in (4.0, 6.0, 6.0)], axis=0) + visited
    led = rng.random(rows) < LED_TO_A_CLICK
    turned = visited >= OPENING * SECOND + shop.turn * BATCH_SPAN
    visitors, _ = _with_bots(shop, rng, numbers, turned & ~led)
    clickers, by_bots = _with_bots(shop, rng, np.where(led, numbers, rows + numbers), turned & ~led)
    buys = (rng.random(rows) < ORDERED) & ~by_bots
    pays = rng.random(rows) < PAID
    source = pa.array(SOURCES).take(pa.array(rng.integers(0, len(SOURCES), rows)))
    method = pa.array(METHODS).take(pa.array(rng.integers(0, len(METHODS), rows)))
    streams = {
        "visits": (visited, {"visitor": visitors, "source": source}),
        "clicks": (clicked, {"click": numbers, "visitor": clickers, "item": rng.integers(1, 500, rows)}),
        "orders": (
            ordered,
            {
                "order_id": numbers,
                "click": np.where(buys, numbers, rows + numbers),
                "amount": np.round(rng.gamma(2.0, 30.0, rows), 2),
            },
        ),
        "payments": (paid, {"order_id": np.where(pays, numbers, rows + numbers), "method": method}),
    }
    for name, (ts, columns) in streams.items():
        table = pa.table({"ts": pa.array(ts).cast(pa.timestamp("us", tz="UTC")), **columns})
        write_stream(folder / name, table, ts + rng.integers(0, LATENESS, rows), shop.batches, OPENING)


def _delay(rng: np.random.Generator, rows: int, seconds: float) -> Micros:
    return (rng.exponential(seconds, rows) * SECOND).astype(np.int64)


def _with_bots(shop: BotShop, rng: np.random.Generator, people: Micros, may_be: Flags) -> tuple[Micros, Flags]:
    """Put bots, whose numbers are below zero, in the place of some people; also the flags of these places."""
    bots = may_be & (rng.random(shop.rows) < OF_BOTS / (1 - LED_TO_A_CLICK))
    return np.where(bots, -1 - rng.integers(0, shop.bots, shop.rows), people), bots
