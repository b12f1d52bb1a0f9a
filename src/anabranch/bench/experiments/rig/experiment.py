"""Experiments: variants of one run on one input, their measurements, and claims about these.

A variant is the same query on the same files with other settings. Every batch is one file per stream, so all variants
see the same batches. The number of results of each variant is compared with the number that follows from the input: a
faster wrong answer is no answer.

Where time is measured, `warm_up` gives the first variant a run that does not count, and `repeats` run all variants
several times, there and back, so that other load on the machine meets them alike. Where small differences count they
run `abreast` instead, once, batch by batch in turn.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import SparkSession

from anabranch.bench.experiments.rig.abreast import run_abreast
from anabranch.bench.experiments.rig.trace import Trace, read_trace
from anabranch.bench.experiments.rig.variant import CutMemory, Variant, cut_memory
from anabranch.bench.experiments.rig.workload import Workload
from anabranch.bench.inputs.recipe import Input, materialise
from anabranch.bench.machine import Machine, this_machine
from anabranch.errors import BenchmarkError

if TYPE_CHECKING:
    from anabranch.bench.experiments.rig.draw import Curves


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim: its text, whether it holds, and the measured numbers as text."""

    text: str
    holds: bool
    measured: str


class AnyTrace(Protocol):
    """The trace of a run in any kind of experiment: a dataclass that can be a row of a table."""

    @property
    def name(self) -> str:
        """The name of its variant."""

    @property
    def repeat(self) -> int:
        """The number of the run among those of its variant, from 0 on."""

    def cells(self) -> dict[str, str]:
        """The cells of its row, by column; the first is "variant"."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The outcome of an experiment. Its traces and its workload are of the experiment's own kind."""

    experiment: str
    traces: tuple[AnyTrace, ...]
    claims: tuple[Claim, ...]
    workload: object
    machine: Machine = field(default_factory=this_machine)

    @property
    def hold(self) -> bool:
        """Whether all claims hold."""
        return all(claim.holds for claim in self.claims)

    def document(self) -> dict[str, object]:
        """All values, for `json.dumps`."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment: its name, the paper's claim, the input, the variants, the check, and the quantities to draw.

    `threads` is the number of processors that work at the same time; by default the number of cores.
    """

    name: str
    claim: str
    workload: Workload
    variants: tuple[Variant, ...]
    check: Callable[[Sequence[Trace]], Iterable[Claim]]
    draws: tuple[str | Curves, ...] = ("results", "active_bytes")
    repeats: int = 1
    warm_up: bool = False
    abreast: bool = False
    threads: int | None = None

    @property
    def session(self) -> dict[str, str]:
        """The settings of Spark for it."""
        if self.threads is None:
            return {}
        return {"spark.master": f"local[{self.threads}]", "spark.sql.shuffle.partitions": str(self.threads)}

    @property
    def short(self) -> bool:
        """False: time is measured, so Spark must compile well rather than quickly."""
        return False

    def run(self, spark: SparkSession, work: Path, tell: Callable[[str], None]) -> Findings:
        """Run all variants and check the claims."""
        tell("generating the input")
        source = materialise(self.workload, work)
        if self.warm_up:
            tell("warming up")
            self._run_one(spark, source, work, self.variants[0], 0)
        traces = list((self._run_abreast if self.abreast else self._run_in_turn)(spark, source, work, tell))
        return Findings(self.name, tuple(traces), tuple(self.check(traces)), self.workload)

    def _run_abreast(
        self, spark: SparkSession, source: Input, work: Path, tell: Callable[[str], None]
    ) -> Iterator[Trace]:
        tell("all variants, batch by batch in turn")
        with _folder(work) as folder:
            for trace in run_abreast(spark, self.workload, source.path, folder, self.variants):
                yield self._checked(trace, source)

    def _run_in_turn(
        self, spark: SparkSession, source: Input, work: Path, tell: Callable[[str], None]
    ) -> Iterator[Trace]:
        for repeat in range(self.repeats):
            for variant in self.variants if repeat % 2 == 0 else reversed(self.variants):
                tell(f"{variant.name}: run {repeat + 1} of {self.repeats}")
                yield self._run_one(spark, source, work, variant, repeat)

    def _run_one(self, spark: SparkSession, source: Input, work: Path, variant: Variant, repeat: int) -> Trace:
        with _folder(work) as folder:
            return self._checked(run_variant(spark, self.workload, source.path, folder, variant, repeat), source)

    def _checked(self, trace: Trace, source: Input) -> Trace:
        if trace.all_results != source.expected_results:
            mismatch = f"{trace.all_results:,} results instead of {source.expected_results:,}"
            raise BenchmarkError(f"{self.name}, {trace.name}: {mismatch}")
        return trace


@contextmanager
def _folder(work: Path) -> Iterator[Path]:
    """A folder for runs, removed afterwards."""
    folder = work / "run"
    yield folder
    shutil.rmtree(folder)


def run_variant(
    spark: SparkSession, workload: Workload, source: Path, folder: Path, variant: Variant, repeat: int = 0
) -> Trace:
    """Run the query once on the files in `source`."""
    run = variant.writer(spark, workload, source, folder).format("noop").start()
    cut_memory(run, [one for one in variant.perturbations if isinstance(one, CutMemory)])
    run.awaitTermination()
    return read_trace(variant.name, run, time.time(), repeat)
