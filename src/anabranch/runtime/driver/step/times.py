"""The times of a step: when rows are late, dead and settled in it, and how old results of later rows can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anabranch.checkpoint.step import Step
from anabranch.kernel.operator import Settled
from anabranch.plan.network import Network
from anabranch.plan.watermark import (
    Backlog,
    Thresholds,
    earlier_times,
    frontier,
    is_answered,
    settled_at_end,
    thresholds,
    with_feeding_inputs,
)
from anabranch.runtime.compile.layout import Layout


@dataclass(frozen=True, slots=True)
class StepTimes:
    """The times that hold in a step. `settled` is per grouping; `since` per operator: no result of later rows is
    older."""

    limits: Thresholds
    settled: tuple[Settled, ...]
    since: tuple[int | None, ...]

    def standing_still(self) -> StepTimes:
        """The same times, but no further row is settled."""
        settled = tuple(Settled(then.since, then.since) for then in self.settled)
        before = tuple(then.since for then in self.settled)
        return replace(self, limits=replace(self.limits, settled=before), settled=settled)


class Times:
    """The arithmetic of event time for one plan."""

    def __init__(self, network: Network, layout: Layout) -> None:
        """Take a network and its layout."""
        self._network = network
        self._layout = layout

    def of_step(self, last: Step | None, backlog: Backlog, *, ending: bool) -> StepTimes:
        """The times of the step after the last one. An `ending` step settles all rows, as if the input had ended."""
        newest = last.newest if last else (None,) * len(self._layout.inputs)
        before = last.settled if last else (None,) * self._layout.groupings
        limits = self._thresholds(newest, before, backlog)
        if ending and last is not None:
            limits = replace(
                limits, settled=settled_at_end(self._layout.ports, self._layout.blocks, self._ends(last), before)
            )
        pairs = zip(before, limits.settled, strict=True)
        settled = tuple(Settled(then, now) for then, now in pairs)
        return StepTimes(limits, settled, self._since(limits, backlog))

    def since(
        self, newest: Sequence[int | None], settled: Sequence[int | None], backlog: Backlog
    ) -> tuple[int | None, ...]:
        """Per operator, the time that results of rows that come after a step cannot be older than."""
        return self._since(replace(self._thresholds(newest, settled, backlog), settled=tuple(settled)), backlog)

    def waiting(self, last: Step | None) -> bool:
        """Whether rows wait for the end of the input."""
        return last is not None and not all(map(is_answered, last.settled, self._ends(last)))

    def _ends(self, last: Step) -> list[int | None]:
        """Per grouping, the time up to which there are rows; None if there are none."""
        ends: list[int | None] = [None] * self._layout.groupings
        for port in self._layout.ports:
            if port.grouping is not None:
                inside = with_feeding_inputs(port.inside, self._layout.blocks)
                pairs = zip(self._layout.inputs, last.newest, strict=True)
                newest = [t for entry, t in pairs if entry.leaf in inside and entry.time is not None and t is not None]
                ends[port.grouping] = max(newest) + 1 if newest else None
        return ends

    def _thresholds(self, newest: Sequence[int | None], settled: Sequence[int | None], backlog: Backlog) -> Thresholds:
        layout = self._layout
        return thresholds(layout.sources, layout.ports, newest, settled, layout.blocks, backlog.owed, backlog.held)

    def _since(self, limits: Thresholds, backlog: Backlog) -> tuple[int | None, ...]:
        network, groupings = self._network, self._layout.processor.groupings
        times = []
        for n in range(len(network.operators)):
            node = len(network.inputs) + n
            inside, lower = network.inputs_of(node), network.operators_of(node)[:-1]
            if n in groupings:
                times.append(limits.settled[groupings.index(n)])
            else:
                owed = {m: time for m, time in backlog.owed.items() if m in lower}
                held = {m: time for m, time in backlog.held.items() if m in lower or m == n}
                times.append(frontier(inside, (*lower, n), limits.marks, earlier_times(owed, held)))
        return tuple(times)
