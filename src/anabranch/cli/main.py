"""`anabranch`: the commands, wired. Each is in a file of its own; see the package's docstring."""

from __future__ import annotations

from typing import Annotated

import typer

import anabranch
from anabranch.cli.bench import bench
from anabranch.cli.clean_up import clean_up
from anabranch.cli.demo import demos
from anabranch.cli.failures import EXIT_CODES
from anabranch.cli.inspect import inspect
from anabranch.cli.remove import remove
from anabranch.cli.run import run

app = typer.Typer(
    name="anabranch",
    help="Adaptive continuous queries on Apache Spark: exact multi-way stream joins, fast.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(demos, name="demo")
app.command(epilog=EXIT_CODES)(run)
app.command(epilog=EXIT_CODES)(inspect)
app.command("clean-up", epilog=EXIT_CODES)(clean_up)
app.command(epilog=EXIT_CODES)(remove)
app.add_typer(bench, name="bench")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"anabranch {anabranch.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """The options that stand before a command; the help text is the app's own."""


if __name__ == "__main__":
    app()
