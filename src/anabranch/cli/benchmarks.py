"""The benchmarks of the engine itself, one command each; they are in `anabranch.bench`.

Options mirror the fields of the benchmarks' options. Without `--work` everything happens in a temporary folder that is
removed, all but the logs of a contender that failed; with it the generated input stays and is used again.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from anabranch.bench import changes as changes_benchmark
from anabranch.bench import diffusion as diffusion_benchmark
from anabranch.bench import flat as flat_benchmark
from anabranch.bench import migration as migration_benchmark
from anabranch.bench import orders as orders_benchmark
from anabranch.bench import relocation as relocation_benchmark
from anabranch.bench import skew as skew_benchmark
from anabranch.bench import throughput as throughput_benchmark
from anabranch.bench import tight as memory_benchmark
from anabranch.bench.changes import ChangesOptions
from anabranch.bench.contenders.job import (
    CHAIN,
    CONTENDERS,
    GROUPBY,
    GROUPBY_CONTENDERS,
    SHARED,
    SHARED_CONTENDERS,
    SINKS,
    TRANSFORM,
)
from anabranch.bench.diffusion import DiffusionOptions
from anabranch.bench.flat import EXPERIMENTS, FlatOptions
from anabranch.bench.inputs.skewed import INPUTS
from anabranch.bench.migration import MigrationOptions
from anabranch.bench.orders import OrdersOptions
from anabranch.bench.raw_results import Origin, Result, as_json
from anabranch.bench.relocation import RelocationOptions
from anabranch.bench.skew import SkewOptions
from anabranch.bench.throughput import ThroughputOptions
from anabranch.bench.tight import MemoryOptions
from anabranch.cli.bench_output import Save, begin, keep, report, require, show, working_folder
from anabranch.cli.process.embedded import embedded_spark
from anabranch.cli.process.failures import FAILED, AsJson, Debug, reported

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


Options = TypeVar(
    "Options",
    ThroughputOptions,
    FlatOptions,
    MemoryOptions,
    RelocationOptions,
    DiffusionOptions,
    ChangesOptions,
    MigrationOptions,
    OrdersOptions,
    SkewOptions,
)


def _defaults(options: type[Options]) -> dict[str, Any]:
    return {field.name: field.default for field in fields(options)}


def _chosen(options: type[Options], chosen: dict[str, Any], work: Path, **fixed: Any) -> Options:
    """The options of a benchmark, made from the arguments of its command, which have the same names."""
    names = {field.name for field in fields(options)} - {"work"}
    return options(work=work, **{name: value for name, value in chosen.items() if name in names}, **fixed)


_THROUGHPUT = _defaults(ThroughputOptions)
_FLAT = _defaults(FlatOptions)
_MEMORY = _defaults(MemoryOptions)
_RELOCATION = _defaults(RelocationOptions)
_DIFFUSION = _defaults(DiffusionOptions)
_CHANGES = _defaults(ChangesOptions)
_MIGRATION = _defaults(MigrationOptions)
_ORDERS = _defaults(OrdersOptions)
_SKEW = _defaults(SkewOptions)


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
    save: Save = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """One input through Anabranch and through Spark's own stream-stream joins.

    Prints total and steady-state rows/s, time per batch, peak memory of the process tree, and how many times better
    Anabranch is. A result only counts if all contenders find the same number of results, which is checked.
    """
    _compare("throughput", locals(), CONTENDERS)


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
    save: Save = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Four streams joined on three different keys, through Anabranch and through Spark's chained joins.

    Prints what `throughput` prints, and checks as it does that all contenders find the same number of results.
    """
    _compare("chain", locals(), CONTENDERS, streams=4, query=CHAIN)


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
    save: Save = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Two queries over one join in one engine, beside one of them alone.

    The second query has other names, another order and other columns; it shares the join. Beside them run two that do
    not, because they differ in a condition. Prints what `throughput` prints; "against" is what more queries cost.
    """
    _compare("shared", locals(), SHARED_CONTENDERS, query=SHARED)


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
    save: Save = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """COUNT, SUM and AVG over a window that ends at every row, through Anabranch and through transformWithState.

    Spark's built-in windows run beside them; their answer is another (a row per group and window, which slides by a
    tenth of its length), so only their time is compared. Prints what `throughput` prints.
    """
    chosen = locals()
    if TRANSFORM in (contender or GROUPBY_CONTENDERS):
        require("google.protobuf", "protobuf", "transformWithState in Python")
    _compare("groupby", chosen, GROUPBY_CONTENDERS, streams=1, query=GROUPBY)


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
    save: Save = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Does cost follow the work of a batch, and not the history behind it?

    Time per batch while state grows tenfold, with many groups against few, and the memory of a batch with a hot key;
    each as a ratio with a limit. The exit code is 1 if a limit is exceeded.
    """
    _measure("flat", FlatOptions, flat_benchmark, locals(), experiments=tuple(experiment or EXPERIMENTS))


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
    save: Save = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """State ten times as large as its memory, beside the same run with ample memory.

    Checks that all runs have all results, that the tight one is at least 0.7 times as fast before clean-up, and that
    the memory of its Python processes does not grow with the state. The exit code is 1 if a limit is exceeded.
    """
    _measure("memory", MemoryOptions, memory_benchmark, locals())


@reported
def relocation(
    state: Annotated[str, typer.Option(help="State that is there before anything moves.")] = _RELOCATION["state"],
    batches: Annotated[int, typer.Option(help="Batches in which it gets there.", min=2)] = _RELOCATION["batches"],
    turns: Annotated[int, typer.Option(help="How often all of it moves.", min=1)] = _RELOCATION["turns"],
    processors: Annotated[int, typer.Option(help="Query processors.", min=2)] = _RELOCATION["processors"],
    work: Work = None,
    save: Save = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """State of a running query that moves from one processor to another.

    Checks that each move takes less time than a batch and copies nothing; shows what the batch after a move costs. The
    exit code is 1 if a move takes longer, or copies.
    """
    _measure_here("relocation", RelocationOptions, relocation_benchmark, locals())


@reported
def diffusion(
    state: Annotated[str, typer.Option(help="State that is there before anything is diffused.")] = _DIFFUSION["state"],
    batches: Annotated[int, typer.Option(help="Batches in which it gets there.", min=2)] = _DIFFUSION["batches"],
    turns: Annotated[int, typer.Option(help="How often it is diffused and gathered.", min=1)] = _DIFFUSION["turns"],
    processors: Annotated[int, typer.Option(help="Query processors.", min=2)] = _DIFFUSION["processors"],
    groups: Annotated[int, typer.Option(help="Partition groups that have the state.", min=1)] = _DIFFUSION["groups"],
    work: Work = None,
    save: Save = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Hot partition groups that are spread over processors, switch roles and come back, while the query runs.

    Checks that each of these takes less time than a batch and writes no file; shows what the batch after it costs. The
    exit code is 1 if one takes longer, or writes.
    """
    _measure_here("diffusion", DiffusionOptions, diffusion_benchmark, locals())


@reported
def changes(
    rows: Annotated[int, typer.Option(help="Rows per stream and batch.", min=1)] = _CHANGES["rows"],
    turns: Annotated[int, typer.Option(help="How often queries come and go.", min=1)] = _CHANGES["turns"],
    processors: Processors = _CHANGES["processors"],
    work: Work = None,
    save: Save = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Queries that are added to a run and removed from it, beside one that must not wait for that.

    Shows the longest time between two answers of that query during a change, beside the usual one. Checks that Spark's
    query is only started anew for what it does not read yet; the exit code is 1 if it is otherwise.
    """
    _measure_here("changes", ChangesOptions, changes_benchmark, locals())


@reported
def migration(
    state: Annotated[int, typer.Option(help="Rows of state, all streams together.", min=1)] = _MIGRATION["state"],
    rows: Annotated[int, typer.Option(help="Rows per stream and batch.", min=1)] = _MIGRATION["rows"],
    turns: Annotated[int, typer.Option(help="How often it migrates by each strategy.", min=1)] = _MIGRATION["turns"],
    processors: Processors = _MIGRATION["processors"],
    work: Work = None,
    save: Save = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """A query with much state that migrates to another order of its joins, to and fro.

    Shows the batches of each migration beside those without one, and the longest time between two answers. Checks the
    number of answers; the exit code is 1 if it is wrong.
    """
    _measure_here("migration", MigrationOptions, migration_benchmark, locals())


@reported
def orders(
    rows: Annotated[int, typer.Option(help="Rows per stream and batch.", min=1)] = _ORDERS["rows"],
    batches: Annotated[int, typer.Option(help="Batches of each run.", min=1, max=100)] = _ORDERS["batches"],
    window: Annotated[int, typer.Option(help="Batches in a window.", min=1)] = _ORDERS["window"],
    last: Annotated[int, typer.Option(help="Batches that count in the end.", min=1)] = _ORDERS["last"],
    processors: Processors = _ORDERS["processors"],
    work: Work = None,
    save: Save = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Four streams on three keys, started in their worst order and in their best, both with AutoMigrate, in turn.

    Checks the answers, and that both come to as many intermediate rows; the exit code is 1 if not. Throughput is
    reported beside it.
    """
    _measure_here("orders", OrdersOptions, orders_benchmark, locals())


@reported
def skew(
    only: Annotated[
        list[str] | None, typer.Option("--input", help=f"Repeat to choose some of {', '.join(INPUTS)}; else all.")
    ] = None,
    rows: Annotated[int, typer.Option(help="Rows of both streams per batch.", min=3)] = _SKEW["rows"],
    batches: Annotated[int, typer.Option(help="Batches of each.", min=1, max=100)] = _SKEW["batches"],
    window: Annotated[int, typer.Option(help="Batches in a window.", min=1)] = _SKEW["window"],
    last: Annotated[int, typer.Option(help="Batches that count in the end.", min=1)] = _SKEW["last"],
    processors: Annotated[
        int, typer.Option(help="Query processors; for Spark's join, shuffle partitions.", min=2)
    ] = _SKEW["processors"],
    seed: Seed = _SKEW["seed"],
    work: Work = None,
    save: Save = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """A join with a hot key: hash partitioned, with the policy Diffusion, and by Spark itself, batch by batch in turn.

    Half of both streams is on one key; and Nexmark's bids and auctions, hot bidders a thousand times hotter. Checks the
    answers, and by count that the busiest processor has at most 1.3 times the mean work with diffusion, and over twice
    without; the exit code is 1 if not. Throughput is reported beside it.
    """
    _measure_here("skew", SkewOptions, skew_benchmark, locals() | {"inputs": tuple(only or INPUTS)})


def _compare(bench: str, chosen: dict[str, Any], contenders: tuple[str, ...], **fixed: Any) -> None:
    """Run a benchmark of several contenders with the options of its command."""
    named = tuple(chosen["contender"] or contenders)
    _measure(bench, ThroughputOptions, throughput_benchmark, chosen, contenders=named, **fixed)


def _measure(bench: str, options: type[Any], benchmark: Any, chosen: dict[str, Any], **fixed: Any) -> None:
    """Run a benchmark, a module with `run` and `table`, whose contenders are processes of their own."""
    origin = begin(bench, chosen["save"])
    with working_folder(chosen["work"]) as folder:
        result = benchmark.run(_chosen(options, chosen, folder, **fixed), report)
    _finish(origin, result, benchmark, chosen)


def _measure_here(bench: str, options: type[Any], benchmark: Any, chosen: dict[str, Any]) -> None:
    """Run a benchmark that has its Spark in this process."""
    origin = begin(bench, chosen["save"])
    with working_folder(chosen["work"]) as folder, embedded_spark(debug=chosen["debug"]) as spark:
        result = benchmark.run(spark, _chosen(options, chosen, folder), report)
    _finish(origin, result, benchmark, chosen)


def _finish(origin: Origin, result: Result, benchmark: Any, chosen: dict[str, Any]) -> None:
    """Show and keep a result; the exit code is 1 if it does not hold."""
    show(as_json(result) if chosen["as_json"] else benchmark.table(result))
    keep(origin, result, chosen["save"])
    if not result.hold:
        raise typer.Exit(FAILED)
