"""What all experiments have in common: variants of one run on one input, what is measured, and claims about it.

A variant is the same query on the same files with other settings. Every batch is one file per stream, so all variants
see the same batches; output is counted per batch, and what clean-up delivers by itself. The number of results of each
variant is compared with what the input must give: a faster wrong answer is no answer.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.console import Group
from rich.table import Table
from rich.text import Text

from anabranch.api.engine import Engine
from anabranch.bench.machine import Machine, this_machine
from anabranch.bench.recipe import FIRST_MODIFIED
from anabranch.errors import BenchmarkError
from anabranch.manager.snapshot import Policy
from anabranch.observe.numbers import format_bytes
from anabranch.sources.synthetic import Synthetic

STREAMS = "ABC"
QUERY = "SELECT A.number AS a, B.number AS b, C.number AS c FROM A, B, C WHERE A.key = B.key AND B.key = C.key"


@dataclass(frozen=True, slots=True)
class Workload:
    """The input of an experiment: three streams alike, `rows` each, in so many batches."""

    rows: int
    batches: int
    tuple_range: int
    ratios: tuple[int, ...]
    seed: int = 1
    shift_every: int | None = None

    def streams(self) -> list[Synthetic]:
        """The streams that are joined."""
        return [
            Synthetic(n, self.tuple_range, self.ratios, seed=self.seed, shift_every=self.shift_every)
            for n in range(len(STREAMS))
        ]

    def expected_results(self) -> int:
        """How many results there are: the sum over all join values of the product of their numbers in all streams."""
        counts = [np.bincount(stream.keys(0, self.rows)) for stream in self.streams()]
        most = max(map(len, counts))
        return int(np.prod([np.pad(count, (0, most - len(count))) for count in counts], axis=0).sum())

    def write(self, folder: Path) -> Path:
        """The input as files, one per stream and batch."""
        edges = np.linspace(0, self.rows, self.batches + 1).astype(int)
        for name, stream in zip(STREAMS, self.streams(), strict=True):
            (folder / name).mkdir(parents=True)
            for number, (start, stop) in enumerate(pairwise(edges.tolist())):
                path = folder / name / f"{number:05d}.parquet"
                pq.write_table(pa.Table.from_batches([stream.rows(start, stop)]), path)
                os.utime(path, (FIRST_MODIFIED + number, FIRST_MODIFIED + number))
        return folder


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to run it: a name for people, the memory of a processor in bytes, and policies."""

    name: str
    memory: int | None
    policies: tuple[Policy, ...] = ()


@dataclass(frozen=True, slots=True)
class Moment:
    """What was seen after a batch: results since the beginning, and bytes of all processors."""

    batch: int
    seconds: float
    results: int
    active_bytes: int
    spilled_bytes: int


@dataclass(frozen=True, slots=True)
class Trace:
    """What a variant did. `results` are those before clean-up."""

    name: str
    moments: tuple[Moment, ...]
    spills: int
    spilled_bytes: int
    results: int
    clean_up_results: int
    clean_up_seconds: float
    run_seconds: float

    @property
    def most_active_bytes(self) -> int:
        """The most active state after any batch."""
        return max(moment.active_bytes for moment in self.moments)


@dataclass(frozen=True, slots=True)
class Claim:
    """Something that has to hold, whether it does, and by which numbers."""

    text: str
    holds: bool
    measured: str


@dataclass(frozen=True, slots=True)
class Findings:
    """The outcome of an experiment."""

    experiment: str
    traces: tuple[Trace, ...]
    claims: tuple[Claim, ...]
    workload: Workload
    machine: Machine = field(default_factory=this_machine)

    @property
    def hold(self) -> bool:
        """Whether all claims hold."""
        return all(claim.holds for claim in self.claims)

    def document(self) -> dict[str, object]:
        """Everything, for `json.dumps`."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment: its name, what the paper claims, the input, the variants, what is checked, and what is drawn."""

    name: str
    claim: str
    workload: Workload
    variants: tuple[Variant, ...]
    check: Callable[[Sequence[Trace]], Iterable[Claim]]
    draws: tuple[str, ...] = ("results", "active_bytes")
    processors: int = 1

    def run(self, spark: SparkSession, work: Path, tell: Callable[[str], None]) -> Findings:
        """Run all variants and check the claims."""
        tell(f"generating 3 x {self.workload.rows:,} rows")
        expected = self.workload.expected_results()
        streams = self.workload.write(work / "input")
        traces = []
        for number, variant in enumerate(self.variants, start=1):
            tell(f"{variant.name}: run {number} of {len(self.variants)}")
            folder = work / f"run-{number}"
            trace = run_variant(spark, streams, folder, variant, self.processors)
            shutil.rmtree(folder)
            found = trace.results + trace.clean_up_results
            if found != expected:
                raise BenchmarkError(f"{self.name}, {variant.name}: {found:,} results instead of {expected:,}")
            traces.append(trace)
        return Findings(self.name, tuple(traces), tuple(self.check(traces)), self.workload)


def run_variant(spark: SparkSession, streams: Path, folder: Path, variant: Variant, processors: int) -> Trace:
    """Run the query once."""
    engine = Engine(spark, folder / "checkpoint", processors, memory=variant.memory, policies=list(variant.policies))
    for name in STREAMS:
        schema = spark.read.parquet(str(streams / name)).schema
        frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(streams / name))
        engine.register(name, frame)
    run = engine.sql(QUERY).writeStream.format("noop").trigger(availableNow=True).start()
    run.awaitTermination()
    ended = time.time()
    moments: list[Moment] = []
    for progress in run.recentProgress:
        if "anabranch" not in progress:
            continue
        seen = progress["anabranch"]["processors"]
        before = moments[-1] if moments else Moment(-1, 0.0, 0, 0, 0)
        moments.append(
            Moment(
                before.batch + 1,
                before.seconds + progress["durationMs"]["triggerExecution"] / 1000,
                before.results + progress["sink"]["numOutputRows"],
                sum(entry["activeBytes"] for entry in seen),
                sum(entry["spilledBytes"] for entry in seen),
            )
        )
    spills = [event for event in run.events if event.kind == "spill"]
    cleaned = [event for event in run.events if event.kind == "clean-up"]
    last = run.recentProgress[-1]
    begun = datetime.fromisoformat(last["timestamp"].replace("Z", "+00:00")).timestamp()
    last_batch = begun + last["durationMs"]["triggerExecution"] / 1000
    return Trace(
        variant.name,
        tuple(moments),
        len({event.time for event in spills}),
        sum(event.details["bytes"] for event in spills),
        moments[-1].results if moments else 0,
        sum(event.details["answered"] or 0 for event in cleaned),
        max(ended - last_batch, 0.0) if cleaned else 0.0,
        moments[-1].seconds if moments else 0.0,
    )


def table(findings: Findings) -> Group:
    """The findings for people."""
    shown = Table(title=findings.experiment, title_justify="left", box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in (
        "variant",
        "results",
        "cleaned up",
        "pushes",
        "pushed",
        "active",
        "run",
        "clean-up",
    ):
        shown.add_column(heading, justify="left" if heading == "variant" else "right", no_wrap=True)
    for trace in findings.traces:
        shown.add_row(
            trace.name,
            f"{trace.results:,}",
            f"{trace.clean_up_results:,}",
            str(trace.spills),
            format_bytes(trace.spilled_bytes),
            format_bytes(trace.most_active_bytes),
            f"{trace.run_seconds:.1f} s",
            f"{trace.clean_up_seconds:.1f} s",
        )
    verdicts = [_verdict(claim) for claim in findings.claims]
    return Group(shown, *verdicts)


def _verdict(claim: Claim) -> Text:
    verdict, style = ("holds", "green") if claim.holds else ("DOES NOT HOLD", "red")
    return Text(f"{verdict}: {claim.text} ({claim.measured})", style)


def write_findings(findings: Findings, folder: Path) -> Path:
    """The findings as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{findings.experiment}.json"
    path.write_text(json.dumps(findings.document(), indent=2))
    return path
