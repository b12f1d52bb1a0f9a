"""`anabranch demo`: three generated streams, a three-way join that adapts, watched live, and checked against DuckDB.

The demo writes its streams and a run file into a folder and runs that file as `anabranch run` would. The run starts
badly on purpose: most of the state on one processor, and less memory than the windows need. While Spark starts, a
thread generates the streams. At the end DuckDB answers the same question from the complete input, and both answers are
compared as multisets; a difference is a failure of the command.
"""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import anabranch
from anabranch.cli.demos import question as demo_query
from anabranch.cli.demos.migration import migration
from anabranch.cli.demos.plan import plan
from anabranch.cli.demos.shop import Shop, write_streams
from anabranch.cli.demos.stage import Processors, Seed, demo_folder, last_line, say_verdict, start_spark
from anabranch.cli.process.failures import EXIT_CODES, AsJson, Debug, reported
from anabranch.cli.run_files import launch
from anabranch.cli.run_files.run_file import RunFile, load
from anabranch.cli.watch import choose_view, silent_view, watch
from anabranch.cli.wording import doing, say, show_plan, show_query
from anabranch.observe.events import EventKind
from anabranch.observe.numbers import format_quantity
from anabranch.observe.story import Story, per_second
from anabranch.observe.terminal import summary_line

TITLE = "three-way join of orders, payments and shipments"


@dataclass(frozen=True, slots=True)
class _Outcome:
    story: Story
    seconds: float
    verdict: demo_query.Verdict


demos = typer.Typer(epilog=EXIT_CODES, rich_markup_mode="markdown", add_completion=False)
demos.command(epilog=EXIT_CODES)(plan)
demos.command(epilog=EXIT_CODES)(migration)


@demos.callback(invoke_without_command=True, epilog=EXIT_CODES)
@reported
def demo(
    context: typer.Context,
    rows: Annotated[int, typer.Option(help="Rows of each of the three streams.", min=1)] = 1_000_000,
    batches: Annotated[int, typer.Option(help="How many batches they arrive in.", min=1)] = 20,
    processors: Processors = demo_query.PROCESSORS,
    seed: Seed = 1,
    keep: Annotated[
        Path | None, typer.Option(help="Leave streams, results, checkpoint and orders.toml in this new folder.")
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """See it work: a three-way stream join on an embedded Spark, checked against DuckDB.

    Generates three streams (orders, payments, shipments), joins them in windows of minutes, shows the run while it
    goes on, and compares the results with those of DuckDB on the complete input, as exact multisets. Most state begins
    on one processor, and memory is short: watch state move until the bars are level, go to disk when memory is full,
    and what that postponed arrive in the end. Takes about half a minute and leaves nothing behind: no file, no process,
    also when interrupted.

    `demo plan` tells another story: a plan of several operators, minute by minute. `demo migration` shows joins that
    change their order while they run.
    """
    if context.invoked_subcommand is not None:
        return
    started = time.monotonic()
    shop = Shop(rows, batches, seed)
    console = Console(quiet=as_json)
    with demo_folder(keep) as folder:
        outcome = _play(console, shop, folder, processors, debug)
    seconds = time.monotonic() - started
    if as_json:
        print(json.dumps(_document(shop, processors, outcome, seconds), indent=2))
    else:
        say_verdict(console, outcome.verdict)
        say(console, last_line(seconds, keep, "orders.toml"), "dim")
    if not outcome.verdict.exact:
        raise typer.Exit(1)


def _play(console: Console, shop: Shop, folder: Path, processors: int, debug: bool) -> _Outcome:
    file = _write_run_file(folder, processors)
    say(console, f"Anabranch {anabranch.__version__}: a {TITLE}\n", "bold")
    show_query(console, file.query)
    say(console, f"\n{_premise(file)}\n")
    story = Story(expected_rows=shop.total_rows)
    view = silent_view(story) if console.quiet else choose_view(story, TITLE, file.memory)
    with ExitStack() as stack:
        with doing(console, f"starting Spark, generating 3 x {shop.rows:,} rows"):
            spark = start_spark(stack, lambda: write_streams(shop, folder), debug=debug)
        with doing(console, "letting Spark analyse the query"):
            query = launch.prepare(spark, file)
        show_plan(console, query)
        console.print()
        seconds = watch(launch.start(query, file), story, view)
    say(console, summary_line(story, seconds))
    say(console, _adaptations(story))
    with doing(console, "asking DuckDB the same question"):
        verdict = demo_query.compare(folder)
    return _Outcome(story, seconds, verdict)


def _premise(file: RunFile) -> str:
    shares = file.initial_placement or (1.0,)
    where = f"{shares[0] / sum(shares):.0%} of the state on one of {len(shares)} processors"
    return (
        f"A bad start, on purpose: {where}, and {file.memory} of memory for each, less than the windows need. The "
        "engine sees to that while the query runs, and gives a reason for everything it does."
    )


def _adaptations(story: Story) -> str:
    """A sentence that sums up the adaptations; without pushes to disk nothing was postponed either."""
    moves, pushes, cleaned = (story.events[kind] for kind in (EventKind.RELOCATE, EventKind.SPILL, EventKind.CLEAN_UP))
    text = f"adapted while it ran: {format_quantity(moves, 'relocation')} between processors"
    if not pushes:
        return f"{text}; nothing had to go to disk"
    return (
        f"{text}, {format_quantity(pushes, 'push', 'pushes')} to disk, and {format_quantity(cleaned, 'clean-up')}, "
        "which delivered what the pushes had postponed"
    )


def _write_run_file(folder: Path, processors: int) -> RunFile:
    path = folder / "orders.toml"
    path.write_text(demo_query.run_file(processors), encoding="utf-8")
    return load(path)


def _document(shop: Shop, processors: int, outcome: _Outcome, seconds: float) -> dict[str, Any]:
    story = outcome.story
    return {
        "version": anabranch.__version__,
        "shop": asdict(shop),
        "processors": processors,
        "exact": outcome.verdict.exact,
        "verdict": asdict(outcome.verdict),
        "rows": story.rows,
        "combinations": story.combinations,
        "results": story.results,
        "late": story.late,
        "run_seconds": round(outcome.seconds, 3),
        "total_seconds": round(seconds, 3),
        "rows_per_second": round(per_second(story.rows, outcome.seconds)),
        "batches": [asdict(batch) for batch in story.batches],
    }
