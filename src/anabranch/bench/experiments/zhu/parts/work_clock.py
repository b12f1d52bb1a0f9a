"""A machine with a number of rows of work per second, on which the counts of a run become times.

The paper measures seconds of its machine. Here times are computed from counts, so they are the same each time. Event
time goes on evenly: a batch arrives with its last row. The machine works on one step after the other, and answers come
at the end of a step. A machine that is too slow for a query falls behind; a step between two batches is a silence.
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
        """The time for a number of rows of work."""
        return 1_000 * rows / self.rows_per_second

    def ends(self, trace: MigrationTrace) -> Iterator[tuple[StepCounts, float]]:
        """Each step with the time of its end, in milliseconds."""
        now, last_arrived, rehashed = 0.0, 0, trace.rehashed_rows
        for step in trace.steps:
            if step.arrived is not None:
                now, last_arrived = max(now, step.arrived), step.arrived
            elif last_arrived == trace.began and rehashed:
                now, rehashed = now + self.milliseconds(rehashed), 0  # rows that are hashed anew are no step of joins
            now += self.milliseconds(step.work)
            yield step, now

    def delays(self, trace: MigrationTrace) -> dict[int, float]:
        """The delay of the answer to each batch, by the time at which the batch came; in milliseconds."""
        return {step.arrived: end - step.arrived for step, end in self.ends(trace) if step.arrived is not None}
