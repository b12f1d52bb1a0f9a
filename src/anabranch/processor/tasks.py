"""What the driver sends to a processor: its plan, which stays the same, and its task in one step."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from anabranch.errors import AnabranchError
from anabranch.kernel.delta import Projection
from anabranch.kernel.expression import Fused, columns_of, evaluate, select
from anabranch.kernel.operator import Settled, SpillableOperator, StatefulOperator
from anabranch.state.groups import GroupSet
from anabranch.state.runs.run import RunFile
from anabranch.state.runs.slice import Slice
from anabranch.state.spill import CleanUp
from anabranch.state.store import Json


class DestinationKind(StrEnum):
    """The three kinds of destinations: a sink, the next exchange, or a port on the same processor."""

    SINK = "sink"
    EXCHANGE = "exchange"
    HERE = "here"


@dataclass(frozen=True, slots=True)
class Destination:
    """A destination of an operator's results. `number` is, by `kind`, that of an outlet, a lane's tag, or that of a
    port.

    `picked` are pairs of a new name and the name in the results. Results that stay on the processor may have to meet
    conditions, and have columns that are `computed`.
    """

    kind: DestinationKind
    number: int
    picked: tuple[tuple[str, str], ...]
    conditions: tuple[Fused, ...] = ()
    computed: tuple[tuple[str, Fused], ...] = ()

    @property
    def reads(self) -> set[str]:
        """The columns of the results that are needed."""
        evaluated = [*self.conditions, *(fused for _, fused in self.computed)]
        return {name for _, name in self.picked}.union(*(columns_of(fused.expression) for fused in evaluated))

    def take(self, results: pa.RecordBatch) -> pa.RecordBatch:
        """Select the rows and columns of some results that go to this destination."""
        missing = self.reads.difference(results.schema.names)
        if missing:
            names = results.schema.names
            raise AnabranchError(f"an operator gave columns {names}, and none that is called {min(missing)!r}")
        rows = select(self.conditions, results)
        arrays = {name: rows.column(column) for name, column in self.picked}
        arrays |= {name: evaluate(fused, rows) for name, fused in self.computed}
        if not arrays:
            return rows.select([0])  # a batch without columns has no rows
        return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """An operator as a processor runs it: its number, those of its ports, and where its results go."""

    number: int
    ports: tuple[int, ...]
    operator: StatefulOperator | SpillableOperator
    destinations: tuple[Destination, ...]


@dataclass(frozen=True, slots=True)
class Arrival:
    """The port that rows with one tag go to, and which of their columns are stored there."""

    port: int
    stored: Projection


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """The operators of a round, lower ones first, and what arrives before it, by tag: in the first, by source.

    `exchanged` is the schema of what goes through the exchange after this round; None after the last.
    """

    operators: tuple[OperatorPlan, ...]
    arrivals: dict[int, Arrival]
    exchanged: pa.Schema | None = None


# What comes out of an outlet is written as Arrow for Spark to read, or as Parquet with a compression, or only counted.
ARROW = "arrow"
COUNTED = "counted"


@dataclass(frozen=True, slots=True)
class ProcessorPlan:
    """All that a processor has to know which stays the same for a whole run, or until it answers other queries.

    Rows arrive from sources, which are called `aliases`. `stored`, `max_spans` and `windows` are per port: the columns
    of its state, how much time a run may cover, and how long its rows can be met by others, None for ever. `groupings`
    are the numbers of the operators that group, `groups` is how many partition groups there are. `owners` are the
    operators that ports belong to.
    `late_projections` say what to show of late rows, if they are wanted: the key also where it is not stored. Rows of
    the sources in `shadows` come for other inputs, too, and are put aside there.

    `written` says what becomes of what comes out of each outlet. Processors write results into files that their reports
    name: what a sink does with an answer begins when all processors are done, and cannot reach them.
    """

    aliases: tuple[str, ...]
    rounds: tuple[RoundPlan, ...]
    stored: tuple[tuple[str, ...], ...]
    max_spans: tuple[int | None, ...]
    windows: tuple[int | None, ...]
    owners: tuple[int, ...]
    groupings: tuple[int, ...]
    groups: int
    keep_rejected: bool
    late_projections: tuple[Projection, ...] | None = None
    written: tuple[str, ...] = ()
    shadows: frozenset[int] = frozenset()

    @property
    def ports(self) -> int:
        """How many ports have state."""
        return len(self.max_spans)

    @property
    def operators(self) -> int:
        """How many operators there are."""
        return sum(len(entry.operators) for entry in self.rounds)


@dataclass(frozen=True, slots=True)
class StepTask:
    """The task of one processor in one step; `late` is per source, `purge` per port, `settled` per grouping.

    `results` are the folders for what is written, per outlet. `epoch` is that of the run. `owned` are the
    groups whose rows it can get, per port. `manifest` is JSON, to travel lightly. `clean_up` says what to clean up, by
    operator, `hold` the groups of an operator whose rows wait; `since` is per operator: no result of later rows is
    older. `now` is the driver's time. `warm` are files to be read ahead: groups are about to come. A step that is
    made again from its first round on is another `trial`.

    Of some diffused groups this processor is a host without being their home (`state/share`). Per port, `copied` are
    those of which it gets copies of arriving rows, and `borrowed` is what the homes list of them. Both are empty if
    nothing is diffused.
    """

    state: str
    reports: str
    results: tuple[str | None, ...]
    epoch: int
    step: int
    processor: int
    owned: tuple[GroupSet, ...]
    manifest: Json
    late: tuple[int | None, ...]
    purge: tuple[int | None, ...]
    settled: tuple[Settled, ...]
    since: tuple[int | None, ...]
    clean_up: dict[int, CleanUp]
    hold: dict[int, GroupSet]
    now: float
    warm: tuple[RunFile, ...] = ()
    trial: int = 0
    copied: tuple[GroupSet, ...] = ()
    borrowed: tuple[tuple[Slice, ...], ...] = ()

    def copied_at(self, port: int) -> GroupSet | None:
        """The groups of which copies come to a port; None if there are none."""
        return (self.copied[port] or None) if self.copied else None

    def borrowed_at(self, port: int) -> tuple[Slice, ...]:
        """What is borrowed for a port."""
        return self.borrowed[port] if self.borrowed else ()
