"""The counts of one run of a plan, batch by batch. Only the manager's CPU time and the time of a batch are measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.bench.experiments.dcape.plan import PlacementCosts

# Batches in which Spark compiles what later ones use again.
WARM_UP = 2


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """A batch: its `rounds`, the rows that Spark exchanged between operators, and what the placement costs, given the
    rows that operators make without being run.

    `answers` are rows of the answer. The batch took `seconds`, and of this the manager `manager_seconds` of CPU time.
    It read `report_bytes`, and has `manager_bytes` in memory.
    """

    rounds: int
    exchanged: int
    costs: PlacementCosts
    answers: int
    seconds: float
    manager_seconds: float
    report_bytes: int
    manager_bytes: int


@dataclass(frozen=True, slots=True)
class Moved:
    """Operators that were reallocated before a batch by hand, or after it by a policy, and where they went on."""

    batch: int
    operators: tuple[str, ...]
    where: str


@dataclass(frozen=True, slots=True)
class PlacementTrace:
    """A run of a plan with a distribution pattern on so many processors.

    `moved_by` says what moved operators, "" if nothing did. `state_rows` are those of each processor at the end. There
    is one run of each.
    """

    name: str
    plan: str
    pattern: str
    processors: int
    moved_by: str
    batches: tuple[BatchCounts, ...]
    moves: tuple[Moved, ...]
    state_rows: tuple[int, ...]
    repeat: int = 0

    @property
    def last(self) -> BatchCounts:
        """The last batch."""
        return self.batches[-1]

    @property
    def busiest(self) -> float:
        """The state of the processor with the most, in fair shares."""
        return max(self.state_rows) * len(self.state_rows) / max(sum(self.state_rows), 1)

    @property
    def as_placed(self) -> bool:
        """Whether each batch took the rounds, and Spark exchanged the rows, that the placement says."""
        return all(
            (batch.rounds, batch.exchanged) == (batch.costs.rounds, batch.costs.exchanged) for batch in self.batches
        )

    def cells(self) -> dict[str, str]:
        """The cells of its row, by column. Counts are those of the last batch: edges that cross, and the rows there."""
        return {
            "variant": self.name,
            "rounds": str(self.last.rounds),
            "crossing": str(self.last.costs.crossing),
            "rows": f"{self.last.costs.sent:,}",
            "exchanged": f"{self.last.exchanged:,}",
            "moves": str(len(self.moves)) if self.moved_by else "",
            "state, 1,000 rows": " ".join(f"{rows / 1_000:.1f}" for rows in self.state_rows),
        }


def static(traces: Sequence[PlacementTrace], plan: str, pattern: str) -> dict[int, PlacementTrace]:
    """By number of processors, the runs of a plan with a pattern in which nothing moved."""
    return {
        trace.processors: trace
        for trace in traces
        if (trace.plan, trace.pattern, trace.moved_by) == (plan, pattern, "")
    }


def steady(trace: PlacementTrace) -> Sequence[BatchCounts]:
    """The batches after the first ones."""
    return trace.batches[WARM_UP:]
