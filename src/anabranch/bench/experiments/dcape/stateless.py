"""The single-stream operator of the plans of paper 5: it needs no state, and its selectivity is 1 (section 4.3.1).

Rows that it has handed on lie in its state until runs are merged, as with any operator, and are dropped then.

As an operator of one's own it is like any other for the manager: it has a place, rows go to it, and it can be moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from anabranch.kernel.operator import Settled
from anabranch.state.runs.run import Segment

GIVES = "k BIGINT, v BIGINT"


@dataclass(frozen=True)
class Stateless:
    """Hands each row on, with its key `k` and its column `v`. `number` tells operators of one plan apart."""

    number: int

    @property
    def waits(self) -> bool:
        """Without new rows there are no results."""
        return False

    def process(
        self, old: Sequence[Sequence[Segment]], deltas: Sequence[Segment], settled: Settled
    ) -> Iterator[pa.RecordBatch]:
        """The rows that arrive."""
        rows = deltas[0].rows
        if len(rows):
            yield pa.record_batch({"k": rows["key.0"], "v": rows["col.v"]})

    def keep(self, port: int, rows: Segment, settled: Settled) -> Segment:
        """None: they have been handed on."""
        return rows.slice(0, 0)
