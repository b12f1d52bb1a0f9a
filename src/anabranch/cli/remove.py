"""`anabranch remove CHECKPOINT NAME`: remove a query from a stopped run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import anabranch
from anabranch.checkpoint.existing import existing_checkpoint
from anabranch.checkpoint.queries import remove_query
from anabranch.checkpoint.settings import describe_engine
from anabranch.cli.process.failures import AsJson, Debug, reported
from anabranch.cli.wording import say


@reported
def remove(
    checkpoint: Annotated[Path, typer.Argument(help="The checkpoint folder of a run.", metavar="CHECKPOINT")],
    name: Annotated[str, typer.Argument(help="The query's name; `anabranch inspect` lists them.", metavar="NAME")],
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing unless something goes wrong.")] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Remove a query from what a stopped run answers, so that its program can go on without it.

    A checkpoint is resumed with the queries that it answers, those included that `run.add` has added. After this, the
    named one is not among them. What it wrote stays. State that no other query needs is deleted when the run is started
    again. No Spark is needed, and a run that is going on is refused: it has `run.remove`.
    """
    opened = existing_checkpoint(checkpoint)
    version = describe_engine(anabranch.__version__, 1, None)["engine version"]
    left = remove_query(opened, name, version)
    if as_json:
        print(json.dumps({"checkpoint": str(opened.path), "removed": name, "queries": left}, indent=2))
    else:
        console = Console(quiet=quiet)
        say(console, f"{name!r} is answered no longer; what is left: {', '.join(map(repr, left))}")
