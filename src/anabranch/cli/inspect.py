"""`anabranch inspect CHECKPOINT`: show the contents of a checkpoint, and check it. Starts no Spark, writes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import anabranch
from anabranch.checkpoint.survey.survey import survey
from anabranch.cli.process.failures import FAILED, AsJson, Debug, reported
from anabranch.observe.inspection_tables import describe

PLAIN_WIDTH = 160


@reported
def inspect(
    checkpoint: Annotated[Path, typer.Argument(help="The checkpoint folder of a run.", metavar="CHECKPOINT")],
    groups: Annotated[bool, typer.Option("--groups", help="Add a line for every partition group.")] = False,
    quick: Annotated[
        bool,
        typer.Option("--quick/--verify", help="Compare sizes only; read no state file, count no groups."),
    ] = False,
    events: Annotated[int, typer.Option("--events", help="Add the newest events, so many.", metavar="N", min=0)] = 0,
    plans: Annotated[
        bool, typer.Option("--plans", help="Add what orders of joins cost when that was measured last.")
    ] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show what a checkpoint holds, and check it for damage.

    Tells what query it belongs to, its committed steps, watermarks and totals, the state of every processor and input
    (rows, bytes, sorted runs, merges under way), of every partition group with --groups, the newest events with
    --events, what orders of joins cost with --plans, and sizes on disk. Every file is verified; what is damaged
    or missing is named, and the exit code is 1. Needs no Spark and only reads, so it may look at the checkpoint of a
    run that goes on.
    """
    inspection = survey(checkpoint, anabranch.__version__, quick=quick, events=events)
    if as_json:
        print(json.dumps(inspection.document(), indent=2))
    else:
        console = Console()
        if not console.is_terminal:
            console = Console(width=PLAIN_WIDTH)
        for number, part in enumerate(describe(inspection, groups=groups, plans=plans)):
            if number:
                console.print()
            console.print(part, highlight=False, soft_wrap=False)
    if inspection.damage:
        raise typer.Exit(FAILED)
