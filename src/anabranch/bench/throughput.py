"""`anabranch bench throughput`: one input through Anabranch and through Spark's own stream-stream joins.

Every contender gets the same files, the same number of rows per batch, the same cores, the same number of
partitions (`processors`; Spark's default of 200 would only slow its joins down), the same heap and the same
sink. Contenders alternate (a, b, c, a, b, c, ...) so that a slow minute of the machine hits all of them,
and each number is the median over the repeats.

A run only counts if every contender finds exactly the expected number of results, and, where the sink keeps
them, the same results. Ratios say how many times better Anabranch is: the peer's time, and memory, over its own.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from rich.table import Table

from anabranch.bench.contenders.child import Measurement, measure
from anabranch.bench.contenders.job import (
    ANABRANCH,
    CHAIN,
    CONTENDERS,
    GROUPBY,
    GROUPBY_CONTENDERS,
    MULTIWAY,
    SHARED,
    SHARED_CONTENDERS,
    SINKS,
    WINDOWS,
    Job,
)
from anabranch.bench.inputs.recipe import ChainRecipe, GroupsRecipe, Input, UniformRecipe, materialise
from anabranch.bench.machine import Machine, this_machine
from anabranch.errors import BenchmarkError, ConfigError, did_you_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputOptions:
    """Options of the benchmark. `rows` are per stream, `rows_per_batch` of all streams together, `window` in seconds.

    `window_rows` is the number of rows of one stream that a window covers. `tuned` gives the Spark contenders the
    checkpoint file manager that starts fewer processes on local disks than its default.
    """

    work: Path
    rows: int = 1_000_000
    streams: int = 3
    keys: int = 500_000
    rows_per_batch: int = 300_000
    window: int | None = None
    window_rows: int = 200_000
    processors: int = 2
    cores: int = 2
    sink: str = "parquet"
    contenders: tuple[str, ...] = CONTENDERS
    repeats: int = 1
    seed: int = 1
    driver_memory: str = "6g"
    tuned: bool = False
    query: str = MULTIWAY

    def __post_init__(self) -> None:
        """Refuse options that cannot be run, before anything starts."""
        for name in ("rows", "keys", "rows_per_batch", "window_rows", "processors", "cores", "repeats"):
            if getattr(self, name) < 1:
                raise ConfigError(f"bench throughput: {name} must be at least 1, not {getattr(self, name)}")
        if not 2 <= self.streams <= 8 and self.query != GROUPBY:
            raise ConfigError(f"bench throughput: streams must be 2 to 8, not {self.streams}")
        if self.window is not None and self.window < 1:
            raise ConfigError(f"bench throughput: window must be at least 1 second, not {self.window}")
        if self.sink not in SINKS:
            raise ConfigError(f"bench throughput: unknown sink {self.sink!r}; {did_you_mean(self.sink, SINKS)}")
        if not self.contenders:
            raise ConfigError("bench throughput: name at least one contender")
        contenders = {GROUPBY: GROUPBY_CONTENDERS, SHARED: SHARED_CONTENDERS}.get(self.query, CONTENDERS)
        for contender in self.contenders:
            if contender not in contenders:
                hint = did_you_mean(contender, contenders)
                raise ConfigError(f"bench throughput: unknown contender {contender!r}; {hint}")

    @property
    def recipe(self) -> UniformRecipe | ChainRecipe | GroupsRecipe:
        """The input that these options describe."""
        batch_count = max(1, round(self.rows * self.streams / self.rows_per_batch))
        if self.query == CHAIN:
            return ChainRecipe(self.rows, self.keys, batch_count, self.seed)
        if self.query == GROUPBY:
            return GroupsRecipe(self.rows, self.keys, batch_count, self.window or 1, self.window_rows, self.seed)
        return UniformRecipe(
            streams=tuple(string.ascii_uppercase[: self.streams]),
            rows=self.rows,
            keys=self.keys,
            batch_count=batch_count,
            window=self.window,
            window_rows=self.window_rows,
            seed=self.seed,
        )


@dataclass(frozen=True, slots=True)
class ContenderResult:
    """One contender's numbers, each the median over `runs`; memory is in bytes."""

    name: str
    runs: tuple[Measurement, ...]
    results: int
    total_seconds: float
    total_rows_per_second: float
    steady_rows_per_second: float
    batch_milliseconds: float
    peak_memory: int
    peak_memory_jvm: int


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times better Anabranch is than `against`."""

    against: str
    steady: float
    total: float
    memory: float


@dataclass(frozen=True, slots=True)
class ThroughputResult:
    """The outcome of `run`."""

    options: ThroughputOptions
    machine: Machine
    rows: int
    batches: int
    contenders: tuple[ContenderResult, ...]
    ratios: tuple[Ratio, ...]

    @property
    def hold(self) -> bool:
        """Always: the contenders' answers have been compared, and how much faster one is than another is no claim."""
        return True

    def document(self) -> dict[str, object]:
        """All values, every batch time of every run included."""
        return asdict(self)


_KINDS = {
    CHAIN: "join of 4 streams on 3 keys",
    GROUPBY: "aggregates of a stream",
    SHARED: "one query over a 3-way join, and two",
}


def run(options: ThroughputOptions, report: Callable[[str], None]) -> ThroughputResult:
    """Run all contenders; `report` is called with a line of text on the progress."""
    machine = this_machine()
    report(f"generating {options.streams} x {options.rows:,} rows in {options.work}")
    source = materialise(options.recipe, options.work)
    runs: dict[str, list[Measurement]] = {contender: [] for contender in options.contenders}
    for repeat in range(options.repeats):
        for contender in options.contenders:
            report(f"{contender}: run {repeat + 1} of {options.repeats}")
            measurement = measure(_job(options, source, contender))
            report(f"{contender}: {measurement.outcome.seconds:.1f} s, {measurement.outcome.results:,} results")
            runs[contender].append(measurement)
    check_agreement({name: measured for name, measured in runs.items() if name != WINDOWS}, source.expected_results)
    contenders = tuple(summarise(name, measurements) for name, measurements in runs.items())
    return ThroughputResult(options, machine, source.rows, source.batches, contenders, ratios(contenders))


def _job(options: ThroughputOptions, source: Input, contender: str) -> Job:
    return Job(
        contender=contender,
        input=str(source.path),
        scratch=str(options.work.absolute() / f"scratch-{contender}"),
        streams=options.recipe.streams,
        window=options.window,
        lateness=None if options.window is None else 0,
        sink=options.sink,
        processors=options.processors,
        cores=options.cores,
        driver_memory=options.driver_memory,
        tuned=options.tuned and contender != ANABRANCH,
        query=options.query,
    )


def check_agreement(runs: Mapping[str, Sequence[Measurement]], expected: int) -> None:
    """Raise unless every run has the expected number of results and all outputs are the same."""
    counts = {name: sorted({run.outcome.results for run in measured}) for name, measured in runs.items()}
    if any(results != [expected] for results in counts.values()):
        said = "; ".join(f"{name}: {', '.join(f'{n:,}' for n in results)}" for name, results in counts.items())
        raise BenchmarkError(
            "the contenders' result counts are wrong, so their times mean nothing:"
            f" expected {expected:,} results from the input, found {said}"
        )
    checksums = {name: sorted({str(run.outcome.checksum) for run in measured}) for name, measured in runs.items()}
    if len({checksum for values in checksums.values() for checksum in values}) > 1:
        raise BenchmarkError(f"equally many results, but not the same ones; sums of row hashes: {checksums}")


def summarise(name: str, runs: Sequence[Measurement]) -> ContenderResult:
    """Medians over the repeats of one contender."""
    outcomes = [run.outcome for run in runs]
    return ContenderResult(
        name=name,
        runs=tuple(runs),
        results=outcomes[0].results,
        total_seconds=median(outcome.seconds for outcome in outcomes),
        total_rows_per_second=median(outcome.rows_per_second for outcome in outcomes),
        steady_rows_per_second=median(outcome.steady_rows_per_second for outcome in outcomes),
        batch_milliseconds=median(outcome.steady_milliseconds for outcome in outcomes),
        peak_memory=int(median(run.memory.total for run in runs)),
        peak_memory_jvm=int(median(run.memory.jvm for run in runs)),
    )


def ratios(contenders: Sequence[ContenderResult]) -> tuple[Ratio, ...]:
    """Anabranch against every other contender; none if it did not run."""
    ours = next((contender for contender in contenders if contender.name == ANABRANCH), None)
    if ours is None:
        return ()
    return tuple(
        Ratio(
            against=peer.name,
            steady=peer.batch_milliseconds / ours.batch_milliseconds,
            total=peer.total_seconds / ours.total_seconds,
            memory=peer.peak_memory / ours.peak_memory,
        )
        for peer in contenders
        if peer is not ours
    )


def table(result: ThroughputResult) -> Table:
    """The result for a terminal."""
    options = result.options
    kind = _KINDS.get(options.query, f"{options.streams}-way join")
    window = "unbounded" if options.window is None else f"{options.window} s window"
    rendered = Table(
        title=f"{kind}, {result.rows:,} rows in {result.batches} batches, {window}",
        caption=f"{result.machine}, {options.sink} sink, Spark {'tuned' if options.tuned else 'as it comes'}",
    )
    rendered.add_column("contender")
    for heading in ("total", "rows/s", "steady rows/s", "per batch", "peak memory", "results"):
        rendered.add_column(heading, justify="right")
    for contender in result.contenders:
        rendered.add_row(
            contender.name,
            f"{contender.total_seconds:.1f} s",
            f"{contender.total_rows_per_second:,.0f}",
            f"{contender.steady_rows_per_second:,.0f}",
            f"{contender.batch_milliseconds / 1000:.2f} s",
            f"{contender.peak_memory / 2**20:,.0f} MiB",
            f"{contender.results:,}",
        )
    for ratio in result.ratios:
        rendered.add_row(
            f"against {ratio.against}",
            "",
            f"{ratio.total:.1f}x",
            f"{ratio.steady:.1f}x",
            "",
            f"{ratio.memory:.1f}x",
            "",
        )
    return rendered
