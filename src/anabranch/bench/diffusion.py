"""`anabranch bench diffusion`: entering, switching and leaving diffusion with a gigabyte of state while a query runs.

A join of two streams with wide rows fills one processor with state, in a few partition groups. Then, `turns` times, all
of them are diffused over the processors with one stream as master, go on with the other one as master, and come back to
the one processor, with a batch after each. Claims: each of these changes takes less time than a batch, its commit
included, and writes no file. The later costs are shown, too: the time of the batch after a change, in which processors
open state that is new to them.
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
from anabranch.bench.inputs.growing_state import STREAMS, growing_state
from anabranch.bench.machine import Machine, this_machine
from anabranch.errors import ConfigError
from anabranch.observe.numbers import format_bytes, parse_bytes

ENTER, SWITCH, LEAVE = CHANGES = ("enter", "switch", "leave")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffusionOptions:
    """Options of the benchmark: the amount of state before the first change, the number of batches that bring it, and
    the number of partition groups."""

    work: Path
    state: str = "1g"
    batches: int = 16
    turns: int = 4
    processors: int = 3
    groups: int = 4

    def __post_init__(self) -> None:
        """Refuse options that cannot be run, before anything starts."""
        for name, least in (("batches", 2), ("turns", 1), ("processors", 2), ("groups", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"bench diffusion: {name} must be at least {least}, not {getattr(self, name)}")
        parse_bytes(self.state)


@dataclass(frozen=True, slots=True)
class DiffusionResult:
    """The outcome, in seconds: of each kind of change, of the batches after it, and of the batches before any."""

    options: DiffusionOptions
    machine: Machine
    state_bytes: int
    changes: dict[str, tuple[float, ...]]
    after: dict[str, tuple[float, ...]]
    written_bytes: int
    before: tuple[float, ...]

    @property
    def hold(self) -> bool:
        """Whether every change took less than a batch, and wrote nothing."""
        longest = max(second for seconds in self.changes.values() for second in seconds)
        return longest < median(self.before) and self.written_bytes == 0

    def document(self) -> dict[str, object]:
        """All values."""
        return asdict(self)


def run(spark: SparkSession, options: DiffusionOptions, report: Callable[[str], None]) -> DiffusionResult:
    """Fill a processor, then enter, switch and leave again and again."""
    machine, folder = this_machine(), options.work / "diffusion"
    seconds: dict[str, list[float]] = {what: [] for what in CHANGES}
    after: dict[str, list[float]] = {what: [] for what in CHANGES}
    written = 0
    with growing_state(
        spark, folder, options.state, options.batches, processors=options.processors, groups=options.groups
    ) as state:
        report(f"filling a processor with {options.state} of state")
        before = state.fill()
        size = state.bytes
        for turn in range(options.turns):
            report(f"enter, switch and leave, {turn + 1} of {options.turns}")
            for what in CHANGES:
                edit = state.edit(partial(_change, what, options))
                seconds[what].append(edit.seconds)
                written += edit.written_bytes
                after[what].append(state.batch())
    half = len(before) // 2
    return DiffusionResult(
        options,
        machine,
        size,
        {what: tuple(values) for what, values in seconds.items()},
        {what: tuple(values) for what, values in after.items()},
        written,
        tuple(before[half:]),
    )


def _change(what: str, options: DiffusionOptions, running: Run) -> None:
    """Make one of the changes, of all partition groups."""
    groups, hosts = range(options.groups), range(options.processors)
    if what == LEAVE:
        running.undiffuse(groups)
    else:
        running.diffuse(groups, master=STREAMS[what == SWITCH], over=hosts)


def table(result: DiffusionResult) -> Table:
    """The result for a terminal."""
    options = result.options
    several = "s" if options.groups > 1 else ""
    shown = Table(
        title=f"{format_bytes(result.state_bytes)} of state in {options.groups} partition group{several} diffused over "
        f"{options.processors} processors {options.turns} times, {format_bytes(result.written_bytes)} written",
        caption=str(result.machine),
    )
    shown.add_column("what")
    for heading in ("median", "longest"):
        shown.add_column(heading, justify="right")
    rows = [(what, result.changes[what]) for what in CHANGES]
    rows += [("batch before any change", result.before)]
    rows += [(f"batch after {what}", result.after[what]) for what in CHANGES]
    for name, seconds in rows:
        shown.add_row(name, f"{median(seconds):.3f} s", f"{max(seconds):.3f} s")
    return shown
