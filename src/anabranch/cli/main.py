"""`anabranch`: the commands, wired. Each is in a file of its own, which is imported when it is used."""

from __future__ import annotations

from typing import Annotated

import typer

import anabranch
from anabranch.cli.process.deferred import Deferred, command_in, deferred_group, group_in
from anabranch.cli.process.failures import EXIT_CODES

COMMANDS = (
    Deferred(
        "demo",
        "See it work: a three-way stream join on an embedded Spark, checked against DuckDB.",
        group_in("anabranch.cli.demo", "demos"),
    ),
    Deferred(
        "run",
        "Run a continuous query described in a TOML or YAML file.",
        command_in("anabranch.cli.run", "run"),
    ),
    Deferred(
        "inspect",
        "Show what a checkpoint holds, and check it for damage.",
        command_in("anabranch.cli.inspect", "inspect"),
    ),
    Deferred(
        "clean-up",
        "Deliver the results that a stopped run has postponed, to where its results go.",
        command_in("anabranch.cli.clean_up", "clean_up"),
    ),
    Deferred(
        "remove",
        "Remove a query from what a stopped run answers, so that its program can go on without it.",
        command_in("anabranch.cli.remove", "remove"),
    ),
    Deferred(
        "bench",
        "Measure Anabranch, beside Spark's own joins, against its own promises and against the papers' figures.",
        group_in("anabranch.cli.bench", "bench"),
    ),
)

app = typer.Typer(
    cls=deferred_group(*COMMANDS),
    name="anabranch",
    help="Adaptive continuous queries on Apache Spark: exact multi-way stream joins, fast.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(is_chosen: bool) -> None:
    if is_chosen:
        print(f"anabranch {anabranch.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Read the options before a command; the help text is the app's own."""


if __name__ == "__main__":
    app()
