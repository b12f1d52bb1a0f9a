"""A machine that does so many rows of work per second, on which a run's counts become times.

What a paper measures in seconds of its machine is told of counts here, so it is the same each time. Event time goes on
evenly: a batch is there when its last row is. The machine works on one step after the other; answers are there when the
step is done. A machine that is too slow for a query falls behind, and what it does between two batches is a silence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from anabranch.bench.experiments.zhu.parts.trace import MigrationTrace, StepCounts


@dataclass(frozen=True, slots=True)
class WorkClock:
    """The machine."""

    rows_per_second: float

    def milliseconds(self, rows: float) -> float:
        """How long it takes for so many rows of work."""
        return 1_000 * rows / self.rows_per_second

    def ends(self, trace: MigrationTrace) -> Iterator[tuple[StepCounts, float]]:
        """Each step with the time when it is done, in milliseconds."""
        now, last_arrived, rehashed = 0.0, 0, trace.rehashed_rows
        for step in trace.steps:
            if step.arrived is not None:
                now, last_arrived = max(now, step.arrived), step.arrived
            elif last_arrived == trace.began and rehashed:
                now, rehashed = now + self.milliseconds(rehashed), 0  # rows that are hashed anew are no step of joins
            now += self.milliseconds(step.work)
            yield step, now

    def delays(self, trace: MigrationTrace) -> dict[int, float]:
        """How long after a batch has come it is answered, by the time at which it came; in milliseconds."""
        return {step.arrived: end - step.arrived for step, end in self.ends(trace) if step.arrived is not None}
