"""The trace of a run with a migration: counts, step by step, which are the same each time.

The unit of work is a row that comes to a join, or that a join makes (`work`), as in all predictions of Anabranch
(`plan/orders/order_cost`). The paper counts the pairs that its nested loops compare; here rows are looked up by their
hashes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.bench.experiments.zhu.parts.setting import STREAMS, Setting
from anabranch.plan.query import RESERVED


@dataclass(frozen=True, slots=True)
class JoinCounts:
    """The work of a join in a step: the rows that came to it, and those that it made.

    It belongs to a `shadow` as long as the query goes on in the old order beside it. The `last` join of an order makes
    the answers, others make intermediate rows.
    """

    streams: tuple[str, ...]
    shadow: bool
    worked: int
    produced: int

    @property
    def last(self) -> bool:
        """Whether it joins all streams."""
        return len(self.streams) == len(STREAMS)

    @property
    def work(self) -> int:
        """Rows that came and rows that were made."""
        return self.worked + self.produced


@dataclass(frozen=True, slots=True)
class StepCounts:
    """A step: that of a batch that `arrived` at a time, or one between two batches (None).

    The time is in milliseconds of event time. `state_rows` are in state afterwards; rows that two ports list count
    twice.
    """

    arrived: int | None
    answers: int
    joins: tuple[JoinCounts, ...]
    state_rows: int

    @property
    def work(self) -> int:
        """Rows of work of all joins."""
        return sum(join.work for join in self.joins)

    @property
    def shadow_work(self) -> int:
        """Rows of work of the joins of a shadow."""
        return sum(join.work for join in self.joins if join.shadow)

    @property
    def intermediate(self) -> int:
        """Rows that were made and are no answers."""
        return sum(join.produced for join in self.joins if not join.last)


@dataclass(frozen=True, slots=True)
class MigrationTrace:
    """A run in one setting, without a migration or with one of a `strategy` that `began` and `ended` at a time.

    It only listed `listed_rows` anew; it read and wrote `rehashed_rows`. `predicted_rows` is its work as predicted from
    measurements before it began, None without any. There is one run of each.
    """

    name: str
    setting: Setting
    steps: tuple[StepCounts, ...]
    strategy: str | None = None
    began: int | None = None
    ended: int | None = None
    listed_rows: int = 0
    rehashed_rows: int = 0
    predicted_rows: int | None = None
    repeat: int = 0

    @property
    def batches(self) -> list[StepCounts]:
        """The steps of batches."""
        return [step for step in self.steps if step.arrived is not None]

    @property
    def length(self) -> int:
        """The length of the migration in milliseconds of event time: 0 if no batch came in between."""
        assert self.began is not None, f"{self.name} has a migration"
        assert self.ended is not None, f"the migration of {self.name} has come to its end"
        return self.ended - self.began

    @property
    def migration_work(self) -> int:
        """The work of the migration in rows: those that were hashed anew, and the work of the shadow."""
        return self.rehashed_rows + sum(step.shadow_work for step in self.steps)

    @property
    def silent_steps(self) -> list[StepCounts]:
        """Steps between two batches, in which there are no answers."""
        return [step for step in self.steps if step.arrived is None]

    @property
    def meanwhile(self) -> list[StepCounts]:
        """The steps of the batches that came while the query migrated."""
        began, ended = self.began or 0, self.ended or 0
        return [step for step in self.batches if step.arrived is not None and began < step.arrived <= ended]

    def made(self, *streams: str) -> int:
        """The number of joined rows of these streams that the shadow has made."""
        joins = (join for step in self.steps for join in step.joins)
        return sum(join.produced for join in joins if join.shadow and set(join.streams) == set(streams))

    def cells(self) -> dict[str, str]:
        """The cells of its row, by column."""
        migrated = self.ended is not None
        return {
            "variant": self.name,
            "W, ms": f"{self.setting.window:,}",
            "B, rows/s": f"{self.setting.rate('B'):.0f}",
            "batches": str(len(self.batches)),
            "answers": f"{sum(step.answers for step in self.steps):,}",
            "lasted, ms": f"{self.length:,}" if migrated else "",
            "listed": f"{self.listed_rows:,}" if migrated else "",
            "rehashed": f"{self.rehashed_rows:,}" if migrated else "",
            "work, rows": f"{self.migration_work:,}" if migrated else "",
            "silent steps": str(len(self.silent_steps)) if migrated else "",
        }


def with_strategy(traces: Sequence[MigrationTrace], strategy: str) -> list[MigrationTrace]:
    """The runs that migrated by a strategy."""
    return [trace for trace in traces if trace.strategy == strategy]


def step_counts(progress: Mapping[str, Any], arrived: int | None) -> StepCounts:
    """The counts of a step, from its entry in `Steps.progress_since`."""
    return StepCounts(
        arrived,
        answers=sum(query["numOutputRows"] for query in progress["queries"].values()),
        joins=tuple(_joins(progress["operators"])),
        state_rows=sum(processor["activeRows"] for processor in progress["processors"]),
    )


def _joins(operators: list[Mapping[str, Any]]) -> Iterator[JoinCounts]:
    """The counts of all joins. The name of a join has its inputs; that of a shadow's join begins with a sign."""
    for operator in operators:
        names = operator["operator"].removeprefix("join of ").split(", ")
        streams = tuple(name.removeprefix(RESERVED)[:1] for name in names)
        yield JoinCounts(streams, names[0].startswith(RESERVED), operator["rows"], operator["results"])
