"""Three streams of a shop, generated: orders, their payments and their shipments.

The same seed gives the same files. Rows arrive up to `LATENESS` after their event time, so they are a bit out of order,
but never late. Most orders are paid once and shipped once, some in several parts, some not at all, and some so late
that the window has closed. A few rows have no order number and match nothing.
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
LATENESS = 10 * SECOND
BATCH_SPAN = 30 * SECOND
OPENING = 1_767_258_000 * SECOND  # 2026-01-01 09:00 UTC
NULL_KEYS = 0.002

METHODS = ("card", "invoice", "transfer", "voucher")
CARRIERS = ("bicycle", "courier", "post", "train")


@dataclass(frozen=True, slots=True)
class Shop:
    """The shop to generate: `rows` per stream, spread over `batches` of half a minute of event time."""

    rows: int
    batches: int
    seed: int

    def __post_init__(self) -> None:
        """Refuse numbers that make no streams."""
        if self.batches < 1 or self.rows < self.batches:
            raise ConfigError(f"{self.rows:,} rows per stream do not fill {self.batches} batches; ask for more rows")

    @property
    def total_rows(self) -> int:
        """Rows of all streams together."""
        return 3 * self.rows


def write_streams(shop: Shop, folder: Path) -> None:
    """Write the three streams below `folder`."""
    rng = np.random.default_rng(shop.seed)
    ordered = np.sort(rng.integers(0, shop.batches * BATCH_SPAN, shop.rows)) + OPENING
    customers = rng.integers(1, max(2, shop.rows // 20), shop.rows)
    amounts = np.round(rng.gamma(2.0, 30.0, shop.rows), 2)
    order_ids = np.arange(1, shop.rows + 1)
    _write(shop, folder / "orders", rng, order_ids, ordered, customer=customers, amount=amounts)

    which = _parts(rng, shop.rows, 0.08)
    paid = ordered[which] + (rng.exponential(20.0, shop.rows) * SECOND).astype(np.int64)
    method = _words(rng.integers(0, len(METHODS), shop.rows), METHODS)
    status = _words((rng.random(shop.rows) < 0.07).astype(np.int64), ("paid", "refused"))
    _write(shop, folder / "payments", rng, order_ids[which], paid, method=method, status=status)

    which = _parts(rng, shop.rows, 0.15)
    shipped = ordered[which] + ((5.0 + rng.gamma(3.0, 15.0, shop.rows)) * SECOND).astype(np.int64)
    carrier = _words(rng.integers(0, len(CARRIERS), shop.rows), CARRIERS)
    _write(shop, folder / "shipments", rng, order_ids[which], shipped, carrier=carrier)


def _parts(rng: np.random.Generator, rows: int, share: float) -> NDArray[np.int64]:
    """Every order once, but a share of the rows belongs to some other order instead."""
    which = np.arange(rows)
    moved = rng.random(rows) < share
    which[moved] = rng.integers(0, rows, int(moved.sum()))
    return which


def _words(codes: NDArray[np.int64], words: tuple[str, ...]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(codes.astype(np.int8), list(words)).cast(pa.string())


def _write(
    shop: Shop,
    folder: Path,
    rng: np.random.Generator,
    keys: NDArray[np.int64],
    ts: Micros,
    **columns: NDArray[np.float64] | NDArray[np.int64] | pa.Array,
) -> None:
    arrays = {
        "order_id": pa.array(keys, mask=rng.random(shop.rows) < NULL_KEYS),
        "ts": pa.array(ts).cast(pa.timestamp("us", tz="UTC")),
        **columns,
    }
    # Rows are read in the order of their arrival; a row that arrives at a has ts > a - LATENESS, and no row before it
    # has a ts beyond a, so no row is behind the watermark.
    arrival = ts + rng.integers(0, LATENESS, shop.rows)
    write_stream(folder, pa.table(arrays), arrival, shop.batches, OPENING // SECOND)
