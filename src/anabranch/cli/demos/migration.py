"""`anabranch demo migration`: joins that change their order while the query is answered, because the data have turned.

Four streams of a shop are joined in a tree. The order is good until bots come: then the pair that is joined first
matches a lot, for no more answers than before. The demo watches the progress of each operator, decides (`turn`), and
lets the run migrate in the background. DuckDB checks the answer.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

import anabranch
from anabranch.api.changes.migration import Migration, Phase
from anabranch.api.picture import outline
from anabranch.api.query import Query
from anabranch.api.run import Run
from anabranch.cli.demos.bots import BotShop, write_bot_shop
from anabranch.cli.demos.question import Question, compare
from anabranch.cli.demos.stage import Processors, Seed, demo_folder, last_line, say_verdict, start_spark
from anabranch.cli.demos.turn import Part, parts_of_run, reason_to_migrate
from anabranch.cli.process.failures import Debug, reported
from anabranch.cli.run_files import launch
from anabranch.cli.run_files.run_file import RunFile, load
from anabranch.cli.watch import choose_view, watch
from anabranch.cli.wording import doing, say, show_query, show_tree
from anabranch.observe.numbers import format_seconds
from anabranch.observe.story import Story
from anabranch.observe.terminal import View, summary_line

TITLE = "four-way join of visits, clicks, orders and payments"
BATCHES = 16
TURN = 5
BEFORE = "((v c) o) p"
AFTER = "((c o) p) v"
RUN_FILE = "bots.toml"
SCHEMAS = {
    "visits": "visitor BIGINT, ts TIMESTAMP, source STRING",
    "clicks": "click BIGINT, ts TIMESTAMP, visitor BIGINT, item BIGINT",
    "orders": "order_id BIGINT, ts TIMESTAMP, click BIGINT, amount DOUBLE",
    "payments": "order_id BIGINT, ts TIMESTAMP, method STRING",
}
QUERY = """
SELECT v.source, c.item, o.order_id, o.amount, p.method
FROM visits   [RANGE 1 MINUTE] AS v,
     clicks   [RANGE 1 MINUTE] AS c,
     orders   [RANGE 1 MINUTE] AS o,
     payments [RANGE 1 MINUTE] AS p
WHERE v.visitor = c.visitor AND c.click = o.click AND o.order_id = p.order_id
"""
QUESTION = Question(
    streams=tuple(SCHEMAS),
    expected="""
        SELECT v.source, c.item, o.order_id, o.amount, p.method
        FROM read_parquet($visits) v, read_parquet($clicks) c, read_parquet($orders) o, read_parquet($payments) p
        WHERE v.visitor = c.visitor AND c.click = o.click AND o.order_id = p.order_id
          AND epoch_us(least(v.ts, c.ts, o.ts, p.ts)) >= epoch_us(greatest(v.ts, c.ts, o.ts, p.ts)) - 60_000_000
    """,
    actual="SELECT source, item, order_id, amount, method FROM read_parquet($results)",
)


@reported
def migration(
    rows: Annotated[int, typer.Option(help="Rows of each of the four streams.", min=1)] = 192_000,
    processors: Processors = 2,
    seed: Seed = 1,
    keep: Annotated[
        Path | None, typer.Option(help=f"Leave streams, results, checkpoint and {RUN_FILE} in this new folder.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Joins that change their order while the query is answered, because the data have turned.

    A join of four streams begins in a good order. Then bots come, and the pair that is joined first matches a lot:
    intermediate rows and batch time rise, answers do not. The demo sees it in the run's progress and changes the order
    in the background; both fall, and the answer is compared with DuckDB's. Takes less than a minute.
    """
    started = time.monotonic()
    shop = BotShop(rows, BATCHES, TURN, seed)
    console = Console()
    with demo_folder(keep) as folder:
        file = _write_run_file(folder, processors)
        _say_premise(console, file)
        story = Story(expected_rows=len(SCHEMAS) * rows)
        with ExitStack() as stack:
            with doing(console, f"starting Spark, generating {len(SCHEMAS)} x {rows:,} rows"):
                spark = start_spark(stack, lambda: write_bot_shop(shop, folder), debug=debug)
            with doing(console, "letting Spark analyse the query"):
                query = launch.prepare(spark, file)
            _answer(console, stack, query, file, story)
        console.print(_table(parts_of_run(list(story.batches), TURN)))
        with doing(console, "asking DuckDB the same question"):
            verdict = compare(folder, QUESTION)
    say_verdict(console, verdict)
    say(console, last_line(time.monotonic() - started, keep, RUN_FILE), "dim")
    if not verdict.exact:
        raise typer.Exit(1)


def _answer(console: Console, stack: ExitStack, query: Query, file: RunFile, story: Story) -> None:
    """Run the query to the end of its input, and show the plans that it begins and ends with."""
    say(console, f"The plan in the beginning, {BEFORE}:", "bold")
    show_tree(console, outline(query))
    console.print()
    view = choose_view(story, TITLE)
    run = launch.start(query, file)
    watcher = _Watcher(run, story, view, stack.enter_context(ThreadPoolExecutor(1)))
    seconds = watch(run, story, view, watcher.look)
    say(console, summary_line(story, seconds))
    say(console, f"\n{watcher.outcome()}", "bold")
    show_tree(console, outline(run))
    console.print()


class _Watcher:
    """Looks at a run after each batch, and lets it migrate once there is a reason.

    A thread calls `migrate`, which waits for the batch under way; the terminal should not stand still meanwhile.
    """

    def __init__(self, run: Run, story: Story, view: View, background: ThreadPoolExecutor) -> None:
        self._run = run
        self._story = story
        self._view = view
        self._background = background
        self._migration: Future[Migration] | None = None

    def look(self) -> None:
        """Decide after a batch."""
        if self._migration is not None:
            return
        reason = reason_to_migrate(list(self._story.batches))
        if reason is not None:
            self._view.say(f"The demo decides: {reason}; so visits are joined last from now on, {AFTER}.")
            self._migration = self._background.submit(self._run.migrate, AFTER, "background")

    def outcome(self) -> str:
        """A sentence on the outcome, after the run; an error of the migration is raised."""
        if self._migration is None:
            return f"There was no reason to change the plan, {BEFORE}:"
        migration = self._migration.result()
        if migration.phase is not Phase.DONE:
            return f"The input ended before the migration did, so the plan is still {migration.before}:"
        return f"The plan in the end, {migration.after}:"


def _write_run_file(folder: Path, processors: int) -> RunFile:
    path = folder / RUN_FILE
    streams = "".join(
        f"""
[streams.{name}]
format = "parquet"
path = "{name}"
schema = "{schema}"
time = "ts"
lateness = "5 seconds"
options = {{ maxFilesPerTrigger = 1 }}
"""
        for name, schema in SCHEMAS.items()
    )
    path.write_text(
        f"""\
# A four-way join in a given order, as `anabranch run` reads it. A checkpoint that has come to another order keeps that.

query = \"\"\"{QUERY}\"\"\"
joins = "{BEFORE}"
checkpoint = "checkpoint"
processors = {processors}
{streams}
[sink]
path = "results"
""",
        encoding="utf-8",
    )
    return load(path)


def _say_premise(console: Console, file: RunFile) -> None:
    say(console, f"Anabranch {anabranch.__version__}: a {TITLE}\n", "bold")
    show_query(console, file.query)
    say(
        console,
        f"\nThe first {TURN} batches are as usual: few visits lead to a click, so visits and clicks are joined first. "
        "Then bots come, which visit and click all the time and never order anything.\n",
    )


def _table(parts: tuple[Part, ...]) -> Table:
    table = Table("median per batch")
    for heading in ("batches", "intermediate rows", "answers", "batch time"):
        table.add_column(heading, justify="right")
    for part in parts:
        intermediate, answers = (
            "-" if count is None else f"{count:,.0f}" for count in (part.intermediate, part.answers)
        )
        seconds = "-" if part.seconds is None else format_seconds(part.seconds)
        table.add_row(part.name, str(part.batches), intermediate, answers, seconds)
    return table
