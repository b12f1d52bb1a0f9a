"""`anabranch bench`: the benchmarks, one command each; what they measure is in `anabranch.bench`.

Options mirror the fields of the benchmarks' options. Without `--work` everything happens in a temporary folder that is
removed, all but the logs of a contender that failed; with it the generated input stays and is used again.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console, RenderableType

from anabranch.bench import flat as flat_benchmark
from anabranch.bench import relocation as relocation_benchmark
from anabranch.bench import throughput as throughput_benchmark
from anabranch.bench import tight as memory_benchmark
from anabranch.bench.experiments import EXPERIMENTS as PAPERS
from anabranch.bench.experiments.draw import draw
from anabranch.bench.experiments.experiment import Experiment
from anabranch.bench.experiments.report import table as findings_table
from anabranch.bench.experiments.report import write_findings
from anabranch.bench.flat import EXPERIMENTS, FlatOptions
from anabranch.bench.job import CHAIN, CONTENDERS, GROUPBY, GROUPBY_CONTENDERS, SHARED, SHARED_CONTENDERS, SINKS
from anabranch.bench.relocation import RelocationOptions
from anabranch.bench.throughput import ThroughputOptions
from anabranch.bench.tight import MemoryOptions
from anabranch.cli.embedded import embedded_spark
from anabranch.cli.failures import EXIT_CODES, FAILED, AsJson, Debug, reported
from anabranch.errors import BenchmarkError, ConfigError, did_you_mean

bench = typer.Typer(
    rich_markup_mode="markdown",
    help="Measure Anabranch, beside Spark's own joins, against its own promises and against the papers' figures.",
)

BENCHMARKS = {
    "throughput": "rows/s, batch time and memory, beside Spark's own stream-stream joins on the same input",
    "chain": "the same for four streams that are joined on three different keys",
    "shared": "two queries over one join beside one of them, and beside two that cannot share it",
    "groupby": "the same for aggregates over a window, beside transformWithState in Python",
    "memory": "state ten times as large as its memory: throughput, and memory of the Python processes",
    "flat": "batch time and memory while state grows tenfold, with many groups, and under a hot key",
    "relocation": "a gigabyte of state that moves between processors of a running query: time, and bytes copied",
    **{experiment.name: experiment.claim for experiment in PAPERS},
}

PLAIN_WIDTH = 120

Work = Annotated[
    Path | None, typer.Option(help="Folder for input and scratch files, kept for the next time; else a temporary one.")
]
Processors = Annotated[int, typer.Option(help="Query processors; for Spark's joins, shuffle partitions.", min=1)]
Cores = Annotated[int, typer.Option(help="Cores that Spark may use.", min=1)]
DriverMemory = Annotated[str, typer.Option(help="Heap of each JVM.")]

Repeats = Annotated[int, typer.Option(help="Runs of each; the median counts.", min=1)]
Rows = Annotated[int, typer.Option(help="Rows per stream.")]
RowsPerBatch = Annotated[int, typer.Option(help="Rows per batch, all streams together.")]
Sink = Annotated[str, typer.Option(help=f"Where results go: {' or '.join(SINKS)}.")]
Contender = Annotated[
    list[str] | None, typer.Option(help=f"Repeat to choose some of {', '.join(CONTENDERS)}; else all.")
]
Seed = Annotated[int, typer.Option(help="The same seed generates the same input.")]


Options = TypeVar("Options", ThroughputOptions, FlatOptions, MemoryOptions, RelocationOptions)


def _defaults(options: type[Options]) -> dict[str, Any]:
    return {field.name: field.default for field in fields(options)}


def _chosen(options: type[Options], chosen: dict[str, Any], work: Path, **fixed: Any) -> Options:
    """A benchmark's options from those of its command, which have the same names."""
    names = {field.name for field in fields(options)} - {"work"}
    return options(work=work, **{name: value for name, value in chosen.items() if name in names}, **fixed)


_THROUGHPUT = _defaults(ThroughputOptions)
_FLAT = _defaults(FlatOptions)
_MEMORY = _defaults(MemoryOptions)
_RELOCATION = _defaults(RelocationOptions)


@bench.callback(invoke_without_command=True)
def _bench(
    context: typer.Context,
    list_them: Annotated[bool, typer.Option("--list", help="List the benchmarks, one line each.")] = False,
) -> None:
    if list_them:
        width = max(map(len, BENCHMARKS))
        for name, what in BENCHMARKS.items():
            print(f"{name.ljust(width)}  {what}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


@bench.command(epilog=EXIT_CODES)
@reported
def throughput(
    rows: Rows = _THROUGHPUT["rows"],
    streams: Annotated[int, typer.Option(help="How many streams are joined, 2 to 8.")] = _THROUGHPUT["streams"],
    keys: Annotated[int, typer.Option(help="Distinct join keys.")] = _THROUGHPUT["keys"],
    rows_per_batch: RowsPerBatch = _THROUGHPUT["rows_per_batch"],
    window: Annotated[int | None, typer.Option(help="Window in seconds; unbounded without.")] = None,
    window_rows: Annotated[int, typer.Option(help="Rows of one stream that a window covers.")] = _THROUGHPUT[
        "window_rows"
    ],
    processors: Processors = _THROUGHPUT["processors"],
    cores: Cores = _THROUGHPUT["cores"],
    sink: Sink = _THROUGHPUT["sink"],
    contender: Contender = None,
    repeats: Repeats = _THROUGHPUT["repeats"],
    seed: Seed = _THROUGHPUT["seed"],
    driver_memory: DriverMemory = _THROUGHPUT["driver_memory"],
    tuned: Annotated[
        bool, typer.Option("--tuned", help="Give Spark's joins a checkpoint file manager that starts fewer processes.")
    ] = False,
    work: Work = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """One input through Anabranch and through Spark's own stream-stream joins.

    Prints total and steady-state rows/s, time per batch, peak memory of the process tree, and how many times better
    Anabranch is. A result only counts if all contenders find the same number of results, which is checked.
    """
    _compare(locals(), CONTENDERS)


@bench.command(epilog=EXIT_CODES)
@reported
def chain(
    rows: Rows = 750_000,
    keys: Annotated[int, typer.Option(help="Distinct values of each join key.")] = 375_000,
    rows_per_batch: RowsPerBatch = _THROUGHPUT["rows_per_batch"],
    processors: Processors = _THROUGHPUT["processors"],
    cores: Cores = _THROUGHPUT["cores"],
    sink: Sink = _THROUGHPUT["sink"],
    contender: Contender = None,
    repeats: Repeats = _THROUGHPUT["repeats"],
    seed: Seed = _THROUGHPUT["seed"],
    driver_memory: DriverMemory = _THROUGHPUT["driver_memory"],
    work: Work = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Four streams joined on three different keys, through Anabranch and through Spark's chained joins.

    Prints what `throughput` prints, and checks as it does that all contenders find the same number of results.
    """
    _compare(locals(), CONTENDERS, streams=4, query=CHAIN)


@bench.command(epilog=EXIT_CODES)
@reported
def shared(
    rows: Rows = _THROUGHPUT["rows"],
    keys: Annotated[int, typer.Option(help="Distinct join keys.")] = _THROUGHPUT["keys"],
    rows_per_batch: RowsPerBatch = _THROUGHPUT["rows_per_batch"],
    processors: Processors = _THROUGHPUT["processors"],
    cores: Cores = _THROUGHPUT["cores"],
    sink: Sink = "parquet",
    contender: Annotated[
        list[str] | None, typer.Option(help=f"Repeat to choose some of {', '.join(SHARED_CONTENDERS)}; else all.")
    ] = None,
    repeats: Repeats = _THROUGHPUT["repeats"],
    seed: Seed = _THROUGHPUT["seed"],
    driver_memory: DriverMemory = _THROUGHPUT["driver_memory"],
    work: Work = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Two queries over one join in one engine, beside one of them alone.

    The second query has other names, another order and other columns; it shares the join. Beside them run two that do
    not, because they differ in a condition. Prints what `throughput` prints; "against" is what more queries cost.
    """
    _compare(locals(), SHARED_CONTENDERS, query=SHARED)


@bench.command(epilog=EXIT_CODES)
@reported
def groupby(
    rows: Rows = 3_000_000,
    keys: Annotated[int, typer.Option(help="Distinct groups.")] = 10_000,
    rows_per_batch: RowsPerBatch = _THROUGHPUT["rows_per_batch"],
    window: Annotated[int, typer.Option(help="Window in seconds.", min=1)] = 60,
    window_rows: Annotated[int, typer.Option(help="Rows that a window covers.")] = 600_000,
    processors: Processors = _THROUGHPUT["processors"],
    cores: Cores = _THROUGHPUT["cores"],
    sink: Sink = _THROUGHPUT["sink"],
    contender: Annotated[
        list[str] | None, typer.Option(help=f"Repeat to choose some of {', '.join(GROUPBY_CONTENDERS)}; else all.")
    ] = None,
    repeats: Repeats = _THROUGHPUT["repeats"],
    seed: Seed = _THROUGHPUT["seed"],
    driver_memory: DriverMemory = _THROUGHPUT["driver_memory"],
    work: Work = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """COUNT, SUM and AVG over a window that ends at every row, through Anabranch and through transformWithState.

    Spark's built-in windows run beside them; their answer is another (a row per group and window, which slides by a
    tenth of its length), so only their time is compared. Prints what `throughput` prints.
    """
    _compare(locals(), GROUPBY_CONTENDERS, streams=1, query=GROUPBY)


@bench.command(epilog=EXIT_CODES)
@reported
def flat(
    experiment: Annotated[
        list[str] | None, typer.Option(help=f"Repeat to choose some of {', '.join(EXPERIMENTS)}; else all.")
    ] = None,
    unit: Annotated[int, typer.Option(help="Rows per stream in a measured batch.")] = _FLAT["unit"],
    asked: Annotated[int, typer.Option(help="Results of each batch in the growth experiments.")] = _FLAT["asked"],
    hot_unit: Annotated[int, typer.Option(help="Rows per stream and batch of the hot key.")] = _FLAT["hot_unit"],
    few_results: Annotated[int, typer.Option(help="Results of the usual batch.")] = _FLAT["few_results"],
    many_results: Annotated[int, typer.Option(help="Results of the hot batch.")] = _FLAT["many_results"],
    few_groups: Annotated[int, typer.Option(help="Partition groups to compare with.")] = _FLAT["few_groups"],
    many_groups: Annotated[int, typer.Option(help="Partition groups to compare.")] = _FLAT["many_groups"],
    repeats: Repeats = _FLAT["repeats"],
    processors: Processors = _FLAT["processors"],
    cores: Cores = _FLAT["cores"],
    driver_memory: DriverMemory = _FLAT["driver_memory"],
    hot_batch_driver_memory: Annotated[str, typer.Option(help="Heap in the hot batch experiment.")] = _FLAT[
        "hot_batch_driver_memory"
    ],
    work: Work = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Does cost follow the work of a batch, and not the history behind it?

    Time per batch while state grows tenfold, with many groups against few, and the memory of a batch with a hot key;
    each as a ratio with a limit. The exit code is 1 if a limit is exceeded.
    """
    chosen = locals()
    with _folder(work) as folder:
        options = _chosen(FlatOptions, chosen, folder, experiments=tuple(experiment or EXPERIMENTS))
        result = flat_benchmark.run(options, _report)
    _show(result.to_json() if as_json else flat_benchmark.table(result))
    if not all(finding.within_limit for finding in result.findings):
        raise typer.Exit(FAILED)


@bench.command(epilog=EXIT_CODES)
@reported
def memory(
    rows: Rows = _MEMORY["rows"],
    keys: Annotated[int, typer.Option(help="Distinct join keys.")] = _MEMORY["keys"],
    rows_per_batch: RowsPerBatch = _MEMORY["rows_per_batch"],
    memory: Annotated[str, typer.Option(help="Memory of each processor.")] = _MEMORY["memory"],
    processors: Processors = _MEMORY["processors"],
    cores: Cores = _MEMORY["cores"],
    repeats: Repeats = _MEMORY["repeats"],
    driver_memory: DriverMemory = _MEMORY["driver_memory"],
    work: Work = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """State ten times as large as its memory, beside the same run with ample memory.

    Checks that all runs have all results, that the tight one is at least 0.7 times as fast before clean-up, and that
    the memory of its Python processes does not grow with the state. The exit code is 1 if a limit is exceeded.
    """
    chosen = locals()
    with _folder(work) as folder:
        options = _chosen(MemoryOptions, chosen, folder)
        result = memory_benchmark.run(options, _report)
    _show(result.to_json() if as_json else memory_benchmark.table(result))
    if not result.hold:
        raise typer.Exit(FAILED)


@bench.command(epilog=EXIT_CODES)
@reported
def relocation(
    state: Annotated[str, typer.Option(help="State that is there before anything moves.")] = _RELOCATION["state"],
    batches: Annotated[int, typer.Option(help="Batches in which it gets there.", min=2)] = _RELOCATION["batches"],
    turns: Annotated[int, typer.Option(help="How often all of it moves.", min=1)] = _RELOCATION["turns"],
    processors: Annotated[int, typer.Option(help="Query processors.", min=2)] = _RELOCATION["processors"],
    work: Work = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """State of a running query that moves from one processor to another.

    Checks that each move takes less time than a batch and copies nothing; shows what the batch after a move costs. The
    exit code is 1 if a move takes longer, or copies.
    """
    chosen = locals()
    with _folder(work) as folder, embedded_spark(debug=debug) as spark:
        result = relocation_benchmark.run(spark, _chosen(RelocationOptions, chosen, folder), _report)
    _show(result.to_json() if as_json else relocation_benchmark.table(result))
    if not result.hold:
        raise typer.Exit(FAILED)


def _add_experiment(experiment: Experiment) -> None:
    """A command for an experiment of a paper."""

    @reported
    def command(
        further: Annotated[
            list[str] | None,
            typer.Argument(help="Further experiments to run after this one.", metavar="[EXPERIMENT]..."),
        ] = None,
        out: Annotated[Path, typer.Option(help="Folder for the numbers (JSON) and the picture (PNG).")] = Path(
            "bench-results"
        ),
        as_json: AsJson = False,
        debug: Debug = False,
    ) -> None:
        chosen = [experiment, *(_named(name) for name in further or ())]
        _check_writable(out)
        all_hold = True
        for one in chosen:
            with _folder(None) as folder, embedded_spark(one.session, debug=debug) as spark:
                findings = one.run(spark, folder, _report)
            written = [write_findings(findings, out), draw(findings, one.draws, out)]
            _show(json.dumps(findings.document(), indent=2) if as_json else findings_table(findings))
            _report(f"written: {', '.join(map(str, written))}")
            all_hold &= findings.hold
        if not all_hold:
            raise typer.Exit(FAILED)

    command.__doc__ = f"""Claim: {experiment.claim}.

    Runs the variants of the experiment on one input, checks that each has all results, writes numbers and a picture,
    and says whether the claim holds; the exit code is 1 if it does not. Several experiments may be named.
    """
    bench.command(experiment.name, epilog=EXIT_CODES)(command)


def _check_writable(out: Path) -> None:
    """Refuse a folder that cannot be written to before minutes were spent."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise ConfigError(f"--out {out}: {error.strerror or error}; name a folder that can be written to") from None


def _named(name: str) -> Experiment:
    known = {experiment.name: experiment for experiment in PAPERS}
    if name not in known:
        raise ConfigError(f"there is no experiment {name!r}; {did_you_mean(name, known)}")
    return known[name]


for _experiment in PAPERS:
    _add_experiment(_experiment)


def _compare(chosen: dict[str, Any], contenders: tuple[str, ...], **fixed: Any) -> None:
    """Run a benchmark of several contenders with the options of its command."""
    with _folder(chosen["work"]) as folder:
        named = tuple(chosen["contender"] or contenders)
        options = _chosen(ThroughputOptions, chosen, folder, contenders=named, **fixed)
        result = throughput_benchmark.run(options, _report)
    _show(result.to_json() if chosen["as_json"] else throughput_benchmark.table(result))


@contextmanager
def _folder(work: Path | None) -> Iterator[Path]:
    """Where to work. A temporary folder is removed, except for the logs that the error of a contender names."""
    if work is not None:
        work.mkdir(parents=True, exist_ok=True)
        yield work
        return
    folder = Path(tempfile.mkdtemp(prefix="anabranch-bench-"))
    logs: dict[Path, bytes] = {}
    try:
        yield folder
    except BenchmarkError:
        logs = {path: path.read_bytes() for path in folder.glob("scratch-*/*.log")}
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for path, content in logs.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _show(result: str | RenderableType) -> None:
    if isinstance(result, str):
        print(result)
    else:
        console = Console()
        (console if console.is_terminal else Console(width=PLAIN_WIDTH)).print(result)
