"""`anabranch run FILE`: a query described in one file, so that a first try needs no Python.

The file is checked before Spark is started. Spark then checks the streams' formats and the query's types, before any
row is read. A run that is stopped leaves its checkpoint, and the same command goes on from there: a batch that was
under way is computed again, and the output is as if nothing had happened.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import anabranch
from anabranch.cli.process.embedded import embedded_spark
from anabranch.cli.process.failures import AsJson, Debug, RunInterruptedError, reported
from anabranch.cli.process.signals import Interrupted
from anabranch.cli.run_files import launch
from anabranch.cli.run_files.run_file import RunFile, load
from anabranch.cli.watch import choose_view, silent_view, watch
from anabranch.cli.wording import doing, say, show_plan
from anabranch.observe.numbers import format_count
from anabranch.observe.story import Story, per_second
from anabranch.observe.terminal import result_count, summary_line


@reported
def run(
    file: Annotated[Path, typer.Argument(help="The TOML or YAML file that describes the query.", metavar="FILE")],
    check: Annotated[bool, typer.Option("--check", help="Only check the file and print the plan.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing unless something goes wrong.")] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Run a continuous query described in a TOML or YAML file.

    The file names the streams (any format that Spark can read), the query in CQL, the sink and the checkpoint;
    examples/orders.toml shows it. By default a run processes what is there and ends; with a processing time it goes on
    until Ctrl-C or a termination signal. Either way, the same command goes on where the last run ended.
    """
    described = load(file)
    launch.check_folders(described)
    console = Console(quiet=quiet or as_json)
    story = Story()
    view = silent_view(story) if console.quiet else choose_view(story, file.name, described.memory)
    with ExitStack() as stack:
        with doing(console, "starting Spark"):
            spark = stack.enter_context(embedded_spark(described.spark, debug=debug))
            query = launch.prepare(spark, described)
        show_plan(console, query)
        if check:
            launch.check_sink(query, described)
            say(console, f"{file}: nothing to object to")
            return
        console.print()
        try:
            seconds = watch(launch.start(query, described), story, view)
        except Interrupted:
            raise RunInterruptedError(_how_to_go_on(file, described, story)) from None
    say(console, summary_line(story, seconds))
    if as_json:
        print(json.dumps(_document(described, story, seconds), indent=2))


def _how_to_go_on(file: Path, described: RunFile, story: Story) -> str:
    return (
        f"{result_count(story)} from {format_count(story.rows)} rows are out; the checkpoint "
        f"{described.checkpoint} is kept. To go on from there: anabranch run {file}"
    )


def _document(described: RunFile, story: Story, seconds: float) -> dict[str, Any]:
    return {
        "version": anabranch.__version__,
        "file": str(described.source),
        "checkpoint": described.checkpoint,
        "rows": story.rows,
        "combinations": story.combinations,
        "results": story.results,
        "late": story.late,
        "quarantined": story.rejected,
        "seconds": round(seconds, 3),
        "batches": story.count,
        "rows_per_second": round(per_second(story.rows, seconds)),
        "median_batch_seconds": round(story.median_seconds, 3),
        "peak_state_bytes": story.peak_bytes,
    }
