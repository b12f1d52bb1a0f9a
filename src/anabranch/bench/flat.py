"""`anabranch bench flat`: the cost of a batch follows its work, and not the history before it.

Each experiment compares a baseline with a measurement that differs in one thing only, and gives a ratio
with the limit it must stay under:

- growth, unbounded and with a window: time per batch with ten times the state, equal results per batch. The
  window covers the whole run, so nothing expires and the state really grows inside it.
- hot key in a small window: time per batch with ten times the history of one key. The streams are
  registered without lateness bound, so the whole history stays in the state and only the probe can leave it
  alone.
- groups: time per batch with 512 partition groups against 16; runs alternate.
- hot batch: peak memory when one batch produces 50 million results against 50 thousand from equally many
  rows. The JVM's heap is kept small here: a JVM with room fills it with garbage before it collects, which
  would be measured as memory that the results need.

Every run's results are compared with the number that its recipe expects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from anabranch.bench.contenders.child import Measurement, measure
from anabranch.bench.contenders.job import ANABRANCH, Job
from anabranch.bench.inputs.flat_recipes import STREAMS, GrowthRecipe, HotBatchRecipe, HotHistoryRecipe, Phases
from anabranch.bench.inputs.recipe import Recipe, UniformRecipe, materialise
from anabranch.bench.machine import Machine, this_machine
from anabranch.errors import BenchmarkError, ConfigError, did_you_mean

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatOptions:
    """Options of the benchmark. `unit` is the number of rows per stream in a measured batch, `asked` that of keys that
    a growth experiment looks up in every batch."""

    work: Path
    experiments: tuple[str, ...] = ("growth", "growth-window", "hot-history", "groups", "hot-batch")
    unit: int = 20_000
    asked: int = 10_000
    hot_unit: int = 10_000
    few_results: int = 50_000
    many_results: int = 50_000_000
    few_groups: int = 16
    many_groups: int = 512
    repeats: int = 3
    phases: Phases = field(default_factory=Phases)
    processors: int = 2
    cores: int = 2
    driver_memory: str = "2g"
    hot_batch_driver_memory: str = "1g"

    def __post_init__(self) -> None:
        """Refuse options that cannot be run, before anything starts."""
        for experiment in self.experiments:
            if experiment not in EXPERIMENTS:
                hint = did_you_mean(experiment, EXPERIMENTS)
                raise ConfigError(f"bench flat: unknown experiment {experiment!r}; {hint}")
        if not 0 < self.asked <= self.unit:
            raise ConfigError(f"bench flat: asked must be 1 to unit ({self.unit}), not {self.asked}")
        if min(self.phases.reference, self.phases.final) < 1:
            raise ConfigError("bench flat: there must be at least one reference and one final batch")


@dataclass(frozen=True, slots=True)
class Finding:
    """One comparison; `measurements` are the runs behind it."""

    experiment: str
    compared: str
    unit: str
    baseline: float
    measured: float
    limit: float
    measurements: tuple[Measurement, ...]

    @property
    def ratio(self) -> float:
        """Measured over baseline; 1.0 is perfectly flat."""
        return self.measured / self.baseline

    @property
    def within_limit(self) -> bool:
        """Whether the promise holds."""
        return self.ratio <= self.limit


@dataclass(frozen=True, slots=True)
class FlatResult:
    """The outcome of `run`."""

    options: FlatOptions
    machine: Machine
    findings: tuple[Finding, ...]

    @property
    def hold(self) -> bool:
        """Whether all promises hold."""
        return all(finding.within_limit for finding in self.findings)

    def document(self) -> dict[str, object]:
        """All values, with the ratios."""
        fields: dict[str, Any] = asdict(self)
        for values, finding in zip(fields["findings"], self.findings, strict=True):
            values |= {"ratio": finding.ratio, "within_limit": finding.within_limit}
        return fields


def run(options: FlatOptions, report: Report) -> FlatResult:
    """Run the chosen experiments; `report` is called with a line of text on the progress."""
    machine = this_machine()
    findings: list[Finding] = []
    for experiment in options.experiments:
        report(f"{experiment}: started")
        for finding in EXPERIMENTS[experiment](options, report):
            report(f"{experiment}: {finding.compared}: {finding.ratio:.2f} (limit {finding.limit:.2f})")
            findings.append(finding)
    return FlatResult(options, machine, tuple(findings))


def _growth(options: FlatOptions, report: Report) -> Iterator[Finding]:
    recipe = GrowthRecipe(options.unit, options.asked, None, options.phases)
    yield from _flatness("growth", options, recipe, report)


def _growth_window(options: FlatOptions, report: Report) -> Iterator[Finding]:
    # Batches are a second of event time apart, so this window outlasts the run.
    recipe = GrowthRecipe(options.unit, options.asked, 2 * len(options.phases.sizes), options.phases)
    yield from _flatness("growth-window", options, recipe, report)


def _hot_history(options: FlatOptions, report: Report) -> Iterator[Finding]:
    recipe = HotHistoryRecipe(options.hot_unit, spacing=500, window=1, phases=options.phases)
    yield from _flatness("hot-history", options, recipe, report)


def _flatness(experiment: str, options: FlatOptions, recipe: Recipe, report: Report) -> Iterator[Finding]:
    measurement = _measure(options, recipe, report)
    milliseconds = [batch.milliseconds for batch in measurement.outcome.filled_batches]
    phases = options.phases
    if len(milliseconds) != len(phases.sizes):
        raise BenchmarkError(
            f"{experiment}: {len(phases.sizes)} files per stream were read in {len(milliseconds)} batches;"
            " batches cannot be told apart"
        )
    yield Finding(
        experiment,
        f"time per batch, state x{phases.state_growth:.1f}",
        "ms",
        median(milliseconds[phases.reference_batches]),
        median(milliseconds[phases.final_batches]),
        1.3,
        (measurement,),
    )


def _groups(options: FlatOptions, report: Report) -> Iterator[Finding]:
    rows = 10 * options.unit
    recipe = UniformRecipe(STREAMS, rows, max(1, rows // 2), 10, None, options.unit, seed=1)
    runs: dict[int, list[Measurement]] = {options.few_groups: [], options.many_groups: []}
    for _ in range(options.repeats):
        for groups, measurements in runs.items():
            measurements.append(_measure(options, recipe, report, groups=groups))
    few, many = (median(run.outcome.steady_milliseconds for run in runs[groups]) for groups in runs)
    compared = f"time per batch, {options.many_groups} groups against {options.few_groups}"
    yield Finding("groups", compared, "ms", few, many, 1.1, tuple(run for group in runs.values() for run in group))


def _hot_batch(options: FlatOptions, report: Report) -> Iterator[Finding]:
    few, many = (
        _measure(options, HotBatchRecipe(options.unit, results), report, heap=options.hot_batch_driver_memory)
        for results in (options.few_results, options.many_results)
    )
    compared = f"peak memory, {options.many_results:,} results against {options.few_results:,}"
    parts = (
        ("process tree", few.memory.total, many.memory.total),
        ("Python", few.memory.python, many.memory.python),
    )
    for part, baseline, measured in parts:
        yield Finding("hot-batch", f"{compared}, {part}", "MiB", baseline / 2**20, measured / 2**20, 1.25, (few, many))


def _measure(
    options: FlatOptions,
    recipe: Recipe,
    report: Report,
    *,
    groups: int | None = None,
    heap: str | None = None,
) -> Measurement:
    source = materialise(recipe, options.work)
    measurement = measure(
        Job(
            contender=ANABRANCH,
            input=str(source.path),
            scratch=str(options.work.absolute() / "scratch-flat"),
            streams=recipe.streams,
            window=recipe.window,
            processors=options.processors,
            cores=options.cores,
            groups=groups,
            driver_memory=heap or options.driver_memory,
        )
    )
    results = measurement.outcome.results
    if results != source.expected_results:
        raise BenchmarkError(f"expected {source.expected_results:,} results from {source.path}, found {results:,}")
    report(f"{source.rows:,} rows, {results:,} results in {measurement.outcome.seconds:.1f} s")
    return measurement


EXPERIMENTS: dict[str, Callable[[FlatOptions, Report], Iterator[Finding]]] = {
    "growth": _growth,
    "growth-window": _growth_window,
    "hot-history": _hot_history,
    "groups": _groups,
    "hot-batch": _hot_batch,
}


def table(result: FlatResult) -> Table:
    """The result for a terminal."""
    rendered = Table(title="Cost follows the batch, not the history", caption=str(result.machine))
    rendered.add_column("experiment")
    rendered.add_column("compared")
    for heading in ("baseline", "measured", "ratio", "limit"):
        rendered.add_column(heading, justify="right")
    for finding in result.findings:
        rendered.add_row(
            finding.experiment,
            finding.compared,
            f"{finding.baseline:,.0f} {finding.unit}",
            f"{finding.measured:,.0f} {finding.unit}",
            f"{finding.ratio:.2f}",
            f"{finding.limit:.2f}" if finding.within_limit else f"[red]{finding.limit:.2f} exceeded",
        )
    return rendered
