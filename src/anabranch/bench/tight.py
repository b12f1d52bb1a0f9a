"""`anabranch bench memory`: state ten times as large as its memory, beside the same run with ample memory.

Three runs: *ample* has no memory limit; *tight* has one that a tenth of its state fills, so it spills all along and
cleans up in the end; *short* is the same on the first third of the input. The number of results of each run is compared
with the number that follows from its input.

Claims: before clean-up, tight is at least 0.7 times as fast as ample; and the memory of its Python processes, which
hold the state, is that of the short run, give or take a quarter: it does not grow with the state. Memory is measured by
the kernel (PSS: mapped files included), not by the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from rich.table import Table

from anabranch.bench.contenders.child import Measurement, measure
from anabranch.bench.contenders.job import ANABRANCH, MULTIWAY, Job
from anabranch.bench.inputs.recipe import UniformRecipe, materialise
from anabranch.bench.machine import Machine, this_machine
from anabranch.errors import BenchmarkError, ConfigError
from anabranch.observe.numbers import format_bytes, parse_bytes

SHORT, AMPLE, TIGHT = "short", "ample", "tight"
SLOWEST = 0.7
LARGEST = 1.25
STREAMS = ("A", "B", "C")
SHARE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOptions:
    """Options of the benchmark. `rows` are per stream, `memory` is of each processor in the runs that have a limit."""

    work: Path
    rows: int = 9_000_000
    keys: int = 30_000_000
    rows_per_batch: int = 1_000_000
    memory: str = "20m"
    processors: int = 2
    cores: int = 2
    repeats: int = 1
    driver_memory: str = "6g"

    def __post_init__(self) -> None:
        """Refuse options that cannot be run, before anything starts."""
        for name in ("rows", "keys", "rows_per_batch", "processors", "cores", "repeats"):
            if getattr(self, name) < 1:
                raise ConfigError(f"bench memory: {name} must be at least 1, not {getattr(self, name)}")
        parse_bytes(self.memory)


@dataclass(frozen=True, slots=True)
class MemoryResult:
    """The outcome: runs by name, and the two ratios that have limits."""

    options: MemoryOptions
    machine: Machine
    state_bytes: int
    runs: dict[str, tuple[Measurement, ...]]
    throughput: float
    memory: float

    @property
    def hold(self) -> bool:
        """Whether both limits are kept."""
        return self.throughput >= SLOWEST and self.memory <= LARGEST

    def document(self) -> dict[str, object]:
        """All values."""
        return asdict(self)


def run(options: MemoryOptions, report: Callable[[str], None]) -> MemoryResult:
    """Run all three runs, in turn."""
    machine = this_machine()
    recipes = {name: _recipe(options, 1 if name != SHORT else SHARE) for name in (SHORT, AMPLE, TIGHT)}
    runs: dict[str, list[Measurement]] = {name: [] for name in recipes}
    for repeat in range(options.repeats):
        for name, recipe in recipes.items():
            report(f"{name}: run {repeat + 1} of {options.repeats}, 3 x {recipe.rows:,} rows")
            source = materialise(recipe, options.work)
            job = Job(
                contender=ANABRANCH,
                input=str(source.path),
                scratch=str(options.work.absolute() / f"scratch-{name}"),
                streams=STREAMS,
                processors=options.processors,
                cores=options.cores,
                driver_memory=options.driver_memory,
                query=MULTIWAY,
                memory=None if name == AMPLE else options.memory,
            )
            measurement = measure(job)
            if measurement.outcome.results != source.expected_results:
                said = f"{measurement.outcome.results:,} results instead of {source.expected_results:,}"
                raise BenchmarkError(f"bench memory, {name}: {said}")
            report(f"{name}: {measurement.outcome.seconds:.1f} s, {measurement.outcome.results:,} results")
            runs[name].append(measurement)

    def batch(name: str) -> float:
        return median(one.outcome.steady_milliseconds for one in runs[name])

    def python(name: str) -> float:
        return median(one.memory.python for one in runs[name])

    largest = max(one.outcome.state_bytes for one in runs[AMPLE])
    kept = {name: tuple(measurements) for name, measurements in runs.items()}
    return MemoryResult(options, machine, largest, kept, batch(AMPLE) / batch(TIGHT), python(TIGHT) / python(SHORT))


def _recipe(options: MemoryOptions, share: int) -> UniformRecipe:
    rows = max(options.rows // share, 1)
    batches = max(1, round(rows * len(STREAMS) / options.rows_per_batch))
    return UniformRecipe(STREAMS, rows, options.keys, batches, None, 1, 1)


def table(result: MemoryResult) -> Table:
    """The result for a terminal."""
    options = result.options
    budget = parse_bytes(options.memory) * options.processors
    shown = Table(
        title=f"{format_bytes(result.state_bytes)} of state, {format_bytes(budget)} of memory "
        f"({result.state_bytes / budget:.1f}x)",
        caption=f"{result.machine}; throughput {result.throughput:.2f}x of ample (at least {SLOWEST}x), Python memory "
        f"{result.memory:.2f}x of the short run (at most {LARGEST}x)",
    )
    shown.add_column("run")
    for heading in ("rows", "total", "per batch", "steady rows/s", "Python memory", "results", "in clean-up"):
        shown.add_column(heading, justify="right")
    for name, runs in result.runs.items():
        first = runs[0].outcome
        shown.add_row(
            name,
            f"{first.rows:,}",
            f"{median(one.outcome.seconds for one in runs):.1f} s",
            f"{median(one.outcome.steady_milliseconds for one in runs) / 1000:.2f} s",
            f"{median(one.outcome.steady_rows_per_second for one in runs):,.0f}",
            format_bytes(int(median(one.memory.python for one in runs))),
            f"{first.results:,}",
            f"{first.results - sum(batch.results or 0 for batch in first.batches):,}",
        )
    return shown
