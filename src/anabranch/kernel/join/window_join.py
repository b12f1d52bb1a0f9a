"""Window joins as stateful operators: the m-way join of a batch, and what of its combinations goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa

from anabranch.kernel.join.combinations import JoinShape, Matches
from anabranch.kernel.join.multiway import join_deltas, join_generations
from anabranch.kernel.operator import EXPIRY, Counted, Settled
from anabranch.state.arrays.row_bytes import narrowed
from anabranch.state.runs.run import TS, Segment


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of a join's results: its name, and the port and the state column it is taken from."""

    name: str
    port: int
    column: str


@dataclass(frozen=True, slots=True)
class WindowJoin:
    """A join of its ports on their hash.

    Of results that go on to another operator, `times` are the columns with the times of the rows they are made of, of
    which they get a time; None if they only are answers. Results that are grouped here also have the time at which they
    expire: the smallest ts + w of `windows`, pairs of such a column and a window.
    """

    shape: JoinShape
    results: tuple[ResultColumn, ...]
    times: tuple[str, ...] | None = None
    windows: tuple[tuple[str, int], ...] = ()

    @property
    def waits(self) -> bool:
        """Only what arrives can find a partner."""
        return False

    @property
    def can_spill(self) -> bool:
        """Any result may come later."""
        return True

    @property
    def freezes(self) -> bool:
        """Never: rows that arrive are joined with those that have arrived since the group was spilled."""
        return False

    def counted(
        self, old: Sequence[Sequence[Segment]], deltas: Sequence[Segment], settled: Settled, groups: int
    ) -> Iterator[Counted]:
        """All new combinations."""
        for matches in join_deltas(self.shape, old, deltas):
            yield self._project(matches), matches.counts(groups)

    def owed(
        self, generations: Sequence[Sequence[Sequence[Segment]]], settled: Settled, groups: int
    ) -> Iterator[Counted]:
        """All combinations that span generations."""
        for matches in join_generations(self.shape, generations):
            yield self._project(matches), matches.counts(groups)

    def keep(self, port: int, rows: Segment, settled: Settled) -> Segment:
        """All of them: what is dead is told by its time alone."""
        return rows

    def _project(self, matches: Matches) -> pa.RecordBatch:
        rows = [pa.array(picked) for picked in matches.rows]
        arrays = {
            result.name: matches.tables[result.port].column(result.column).take(rows[result.port])
            for result in self.results
        }
        if self.times is not None:
            no_time = np.zeros(len(matches), dtype=np.int64)  # as for a stream that has none
            times = [arrays[name].to_numpy() for name in self.times]
            arrays[TS] = pa.array(reduce(np.maximum, times) if times else no_time)
            if self.windows:
                ends = [arrays[name].to_numpy() + window for name, window in self.windows]
                arrays[EXPIRY] = pa.array(reduce(np.minimum, ends))
        return narrowed(pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays)))
