"""`anabranch clean-up CHECKPOINT`: deliver the results that a stopped run still owes."""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from anabranch.api.stopped_run import clean_up_stopped
from anabranch.checkpoint.existing import existing_checkpoint
from anabranch.cli.process.embedded import embedded_spark
from anabranch.cli.process.failures import AsJson, Debug, reported
from anabranch.cli.wording import doing, say


@reported
def clean_up(
    checkpoint: Annotated[Path, typer.Argument(help="The checkpoint folder of a run.", metavar="CHECKPOINT")],
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing unless something goes wrong.")] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Deliver the results that a stopped run has postponed, to where its results go.

    When state does not fit into memory, groups of it are pushed to disk and some results are postponed. A run that ends
    by itself has delivered them; one that was stopped may not have. This command does it from what the checkpoint has
    on record. It may be interrupted and started again: nothing is lost or delivered twice. A run that hands its results
    to a function of a program has to be cleaned up by that program (`run.clean_up()`).
    """
    opened = existing_checkpoint(checkpoint)
    console = Console(quiet=quiet or as_json)
    columns = (TextColumn("cleaning up"), BarColumn(), MofNCompleteColumn(), TextColumn("groups"), TimeElapsedColumn())
    progress = Progress(*columns, console=console, transient=True)
    task = progress.add_task("", total=None)
    most = 0

    def show_owing(owing: int) -> None:
        nonlocal most
        most = max(most, owing)
        progress.update(task, total=most, completed=most - owing)

    with ExitStack() as stack:

        def start_spark() -> SparkSession:
            with doing(console, "starting Spark"):
                spark = stack.enter_context(embedded_spark(debug=debug))
            stack.enter_context(progress)
            return spark

        empty = stack.enter_context(tempfile.TemporaryDirectory(prefix="anabranch-clean-up-"))
        results = clean_up_stopped(opened, start_spark, Path(empty), show_owing)
    if as_json:
        print(json.dumps({"checkpoint": str(opened.path), "groups": most, "results": results}, indent=2))
    elif most or results:
        say(console, f"{results:,} postponed results{f' of {most} groups' if most else ''} are delivered")
    else:
        say(console, "nothing was owed")
