"""`anabranch bench relocation`: moving a gigabyte of state from one processor to another while a query runs.

A join of two streams with wide rows fills one processor of two with state. Then its partition groups move to the other
one, `turns` times there and back, with batches in between; all but one, so that every file has to be divided. Claims: a
move takes less time than a batch, its commit included, and copies nothing: no file is written or changed by it. The
later costs are shown, too: the time of the batch after a move, in which the other processor opens its new state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession
from rich.table import Table

from anabranch.api.run import Run
from anabranch.bench.inputs.growing_state import growing_state
from anabranch.bench.machine import Machine, this_machine
from anabranch.errors import ConfigError
from anabranch.observe.numbers import format_bytes, parse_bytes

BETWEEN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RelocationOptions:
    """Options of the benchmark: the amount of state before the first move, and the number of batches that bring it."""

    work: Path
    state: str = "1g"
    batches: int = 16
    turns: int = 4
    processors: int = 2

    def __post_init__(self) -> None:
        """Refuse options that cannot be run, before anything starts."""
        for name, least in (("batches", 2), ("turns", 1), ("processors", 2)):
            if getattr(self, name) < least:
                raise ConfigError(f"bench relocation: {name} must be at least {least}, not {getattr(self, name)}")
        parse_bytes(self.state)


@dataclass(frozen=True, slots=True)
class RelocationResult:
    """The outcome, in seconds: of each move, of batches before the first move, of those right after a move, and of
    others between moves."""

    options: RelocationOptions
    machine: Machine
    state_bytes: int
    moves: tuple[float, ...]
    copied_bytes: int
    before: tuple[float, ...]
    after: tuple[float, ...]
    between: tuple[float, ...]

    @property
    def hold(self) -> bool:
        """Whether every move took less than a batch, and copied nothing."""
        return max(self.moves) < median(self.before) and self.copied_bytes == 0

    def document(self) -> dict[str, object]:
        """All values."""
        return asdict(self)


def run(spark: SparkSession, options: RelocationOptions, report: Callable[[str], None]) -> RelocationResult:
    """Fill a processor, then move everything there and back."""
    machine, folder = this_machine(), options.work / "relocation"
    edits, after, between = [], [], []
    with growing_state(spark, folder, options.state, options.batches, processors=options.processors) as state:
        report(f"filling a processor with {options.state} of state")
        before = state.fill()
        size = state.bytes
        for turn in range(options.turns):
            report(f"move {turn + 1} of {options.turns}")
            edits.append(state.edit(partial(_move, range(1, state.groups), (turn + 1) % 2)))
            after.append(state.batch())
            between += [state.batch() for _ in range(BETWEEN)]
    moves, copied = tuple(edit.seconds for edit in edits), sum(edit.written_bytes for edit in edits)
    half = len(before) // 2
    return RelocationResult(options, machine, size, moves, copied, tuple(before[half:]), tuple(after), tuple(between))


def _move(groups: range, receiver: int, running: Run) -> None:
    running.relocate(groups, to=receiver)


def table(result: RelocationResult) -> Table:
    """The result for a terminal."""
    shown = Table(
        title=f"{format_bytes(result.state_bytes)} of state moved {len(result.moves)} times, "
        f"{format_bytes(result.copied_bytes)} copied",
        caption=str(result.machine),
    )
    shown.add_column("what")
    for heading in ("median", "longest"):
        shown.add_column(heading, justify="right")
    for name, seconds in (
        ("move", result.moves),
        ("batch before any move", result.before),
        ("batch after a move", result.after),
        ("other batches", result.between),
    ):
        shown.add_row(name, f"{median(seconds):.3f} s", f"{max(seconds):.3f} s")
    return shown
