"""The contents of a checkpoint, as `anabranch inspect` reads them: plain values, and `--json` prints these fields.

Times are microseconds since 1970, sizes bytes. `observe/inspection_tables` shows them to people.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from anabranch.observe.diffused import DiffusedGroups
from anabranch.observe.events import Event


@dataclass(frozen=True, slots=True)
class StepSummary:
    """A committed step that the checkpoint retains."""

    number: int
    batch: int
    epoch: int
    processors: int


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The run that took the checkpoint last; `alive` is None if it ran on another machine."""

    epoch: int
    pid: int
    host: str
    since: float
    alive: bool | None


@dataclass(frozen=True, slots=True)
class QuerySummary:
    """A query that is answered, since which plan, and the rows of its answer so far.

    `results` is None if a residual predicate was applied and the rows after it were not counted.
    """

    name: str
    since: int
    residual: str | None
    results: int | None


@dataclass(frozen=True, slots=True)
class InputSummary:
    """A join input, with the rows that it has received since the beginning."""

    alias: str
    stream: str
    window: int | None
    lateness: int | None
    newest: int | None
    received: int
    late: int
    rejected: int

    @property
    def watermark(self) -> int | None:
        """The watermark: rows older than this are late, if the window of another input can expire."""
        if self.window is None or self.lateness is None or self.newest is None:
            return None
        return self.newest - self.lateness


@dataclass(frozen=True, slots=True)
class OperatorSummary:
    """An operator: the processors that have groups of it, its cluster of processors if there are some, and its state on
    all of them: active rows and bytes, and bytes on disk."""

    name: str
    processors: tuple[int, ...]
    cluster: str | None
    rows: int
    bytes: int
    spilled_bytes: int


@dataclass(frozen=True, slots=True)
class SpineSummary:
    """The active state of one part, an input or joined rows, on one processor."""

    processor: int
    input: str
    rows: int
    bytes: int
    runs: int
    merges: int
    files: int


@dataclass(frozen=True, slots=True)
class SpilledSummary:
    """The spilled state of one operator on one processor: its generations, the groups that owe results, and about how
    many they owe. With `at_most` that number is only a bound, since windows or groups allow no better estimate."""

    processor: int
    inputs: str
    generations: int
    rows: int
    bytes: int
    groups: int
    owing: int
    owed: int
    at_most: bool


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A partition group: the processors that have it, and its state in all operators together.

    `rows` and `bytes` are active ones; `generations` is the number of spilled generations.
    """

    group: int
    processors: tuple[int, ...]
    rows: int
    bytes: int
    spilled_bytes: int = 0
    generations: int = 0


@dataclass(frozen=True, slots=True)
class Inspection:
    """A checkpoint at one moment, with its newest events if the caller wants them.

    State, queries, inputs and groups are those of the newest readable step. `orders` are the costs of orders of joins
    when they were measured last, None if they never were. `diffused` are groups that are so after that step, in which
    `copied` rows were received more than once. `operators` say where each one is, `clusters` which processors the last
    run had in which cluster, None if it had none.
    """

    path: str
    identity: dict[str, Any]
    run: RunSummary | None
    steps: tuple[StepSummary, ...]
    combinations: int
    queries: tuple[QuerySummary, ...]
    inputs: tuple[InputSummary, ...]
    spines: tuple[SpineSummary, ...]
    spilled: tuple[SpilledSummary, ...]
    groups: tuple[GroupSummary, ...]
    disk: dict[str, int]
    unreferenced: tuple[str, ...]
    verified: bool
    damage: tuple[str, ...]
    events: tuple[Event, ...] = ()
    orders: dict[str, Any] | None = None
    diffused: tuple[DiffusedGroups, ...] = ()
    copied: int = 0
    operators: tuple[OperatorSummary, ...] = ()
    clusters: dict[str, list[int]] | None = None

    def document(self) -> dict[str, Any]:
        """All fields, for `json.dumps`."""
        fields = asdict(self)
        for values, entry in zip(fields["inputs"], self.inputs, strict=True):
            values["watermark"] = entry.watermark
        return fields
