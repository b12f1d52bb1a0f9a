"""A run in the terminal: a panel that is redrawn while the run goes on, or a line per batch for logs and pipes.

Events, such as adaptations with their reasons, are printed above the panel, each in full, and stay. The panel fits into
80 columns and, with up to eight processors, into 24 lines; of more processors the fullest are shown. Bars compare the
processors' state with the memory budget or, without one, with the largest state so far, so that growth and purging are
visible. Batch times are drawn from zero to the slowest but the run's first, so that equal times look equal.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from types import TracebackType
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from anabranch.observe.diffused import overhead
from anabranch.observe.echo import no_echo
from anabranch.observe.events import Event
from anabranch.observe.numbers import format_bytes, format_count, format_seconds
from anabranch.observe.story import BatchSummary, ProcessorSummary, Story, per_second

SHOWN_PROCESSORS = 8
SPARK_LEVELS = "▁▂▃▄▅▆▇█"
SHOWN_BATCHES = 22
BAR_WIDTH = 20
BLOCKS = " ▏▎▍▌▋▊▉"


class View(Protocol):
    """A view of a run while it goes on."""

    def __enter__(self) -> View:
        """Begin to show."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End, and leave the last picture on the screen."""

    def batch(self, batch: BatchSummary) -> None:
        """Show a batch that has ended and is in the story."""

    def event(self, event: Event) -> None:
        """Show an event."""

    def say(self, text: str) -> None:
        """Show a message of the command that follows the run."""

    def tick(self) -> None:
        """Show that time has passed."""


class LiveView:
    """A view that draws the panel."""

    def __init__(self, console: Console, story: Story, title: str, memory: int | None = None) -> None:
        """`memory` is the budget of one processor in bytes."""
        self._story = story
        self._title = title
        self._memory = memory
        self._started = time.monotonic()
        self._console = console
        self._live = Live(console=console, auto_refresh=False)
        self._leave = ExitStack()

    def __enter__(self) -> LiveView:
        """Draw the empty panel."""
        self._started = time.monotonic()
        self._leave.enter_context(no_echo())
        self._leave.callback(self._live.stop)
        self._live.start()
        self.tick()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Draw the last one and leave it."""
        with self._leave:
            self.tick()

    def batch(self, batch: BatchSummary) -> None:
        """Draw again."""
        self.tick()

    def event(self, event: Event) -> None:
        """Print the event above the panel, in full."""
        self._print(str(event), "yellow", " " * len("00:00:00 "))

    def say(self, text: str) -> None:
        """Print the message above the panel."""
        self._print(text, "bold", "")

    def tick(self) -> None:
        """Draw again with the time that has passed."""
        elapsed = time.monotonic() - self._started
        picture = panel(self._story, self._title, elapsed, memory=self._memory)
        self._live.update(picture, refresh=True)

    def _print(self, text: str, style: str, indent: str) -> None:
        lines = textwrap.wrap(text, self._console.width, subsequent_indent=indent)
        self._console.print(Text("\n".join(lines), style=style))


class PlainView:
    """A view that writes one line per batch and event, for logs and pipes."""

    def __init__(self, write: Callable[[str], None], story: Story) -> None:
        """Write lines with `write`."""
        self._write = write
        self._story = story

    def __enter__(self) -> PlainView:
        """Begin without a line."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End without a line."""

    def batch(self, batch: BatchSummary) -> None:
        """Write the line of a batch."""
        self._write(batch_line(batch, self._story.recent_rate))

    def event(self, event: Event) -> None:
        """Write the line of an event."""
        self._write(str(event))

    def say(self, text: str) -> None:
        """Write the message as a line."""
        self._write(text)

    def tick(self) -> None:
        """Write nothing: a log needs no lines between batches."""


def batch_line(batch: BatchSummary, rate: float) -> str:
    """A batch in one line, with the recent rows per second."""
    parts = [
        f"batch {batch.number}: {format_count(batch.rows)} rows in, {result_count(batch)}",
        f"{format_seconds(batch.seconds)}, {rate:,.0f} rows/s",
        f"state {format_count(batch.state_rows)} rows, {format_bytes(batch.state_bytes)}",
    ]
    if batch.intermediate:
        parts.insert(1, f"{format_count(batch.intermediate)} intermediate rows")
    if any(entry.spilled_rows or entry.owing_groups for entry in batch.processors):
        parts.append(f"on disk {format_count(_spilled_rows(batch.processors))} rows, {_debt(batch.processors)}")
    if batch.diffused:
        groups = sum(len(entry.groups) for entry in batch.diffused)
        parts.append(f"{groups} diffused group{'s' if groups > 1 else ''}, {overhead(batch.diffused, batch.copied)}")
    if batch.late or batch.rejected:
        parts.append(f"{format_count(batch.late)} late, {format_count(batch.rejected)} in quarantine")
    return "; ".join(parts)


def summary_line(story: Story, elapsed: float) -> str:
    """A run in one line."""
    if not story.count and not story.results:
        return (
            f"no rows had arrived in {format_seconds(elapsed)}; what an earlier run has processed is in the checkpoint "
            "and is not read again"
        )
    rate = per_second(story.rows, elapsed)
    return (
        f"{format_count(story.rows)} rows in, {result_count(story)} in {format_seconds(elapsed)} "
        f"and {_batches(story.count)}; {rate:,.0f} rows/s, median batch {format_seconds(story.median_seconds)}, "
        f"state at most {format_bytes(story.peak_bytes)}"
    )


def result_count(counted: BatchSummary | Story) -> str:
    """The number of results as text; if they were not counted, the number of combinations that they are among."""
    if counted.results is not None:
        return f"{format_count(counted.results)} results"
    return f"{format_count(counted.combinations)} combinations before the residual predicate"


def panel(story: Story, title: str, elapsed: float, *, memory: int | None = None) -> RenderableType:
    """The picture of a run."""
    body = Group(_numbers(story, elapsed), Text(), _processors(story, memory))
    clock = f"{elapsed:.0f} s"
    return Panel(
        body, title=f"[bold]{title}", title_align="left", subtitle=clock, subtitle_align="right", padding=(0, 1)
    )


def _numbers(story: Story, elapsed: float) -> Table:
    last = story.last
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(justify="right", no_wrap=True, min_width=11)
    grid.add_column(no_wrap=True, overflow="ellipsis")
    waiting = Text("waiting for the first batch", style="dim")
    grid.add_row("rows in", format_count(story.rows), _share(story) if last else waiting)
    grid.add_row(*_results(story))
    overall = Text(f"{per_second(story.rows, elapsed):,.0f} overall", style="dim")
    grid.add_row("rows/s", f"{story.recent_rate:,.0f}" if last else "-", overall)
    if last and any(batch.intermediate for batch in story.batches):
        rows = [batch.intermediate for batch in story.batches]
        grid.add_row("intermediate", format_count(last.intermediate), _history(rows, "rows in the last batch"))
    seconds = [batch.seconds for batch in story.batches]
    times = _history(seconds, f"median {format_seconds(story.median_seconds)}", max(seconds[1:], default=None))
    grid.add_row("batch time", format_seconds(last.seconds) if last else "-", times)
    if last and any(time is not None for time in last.watermarks.values()):
        grid.add_row("watermark", *_watermark(last))
    if story.spills:
        beside = f"{format_bytes(sum(entry.spilled_bytes for entry in story.processors))}, {_debt(story.processors)}"
        grid.add_row("on disk", format_count(_spilled_rows(story.processors)), Text(beside, style="dim"))
    if last and any(batch.diffused for batch in story.batches):
        grid.add_row("diffused", *_diffused(last))
    if story.late or story.rejected:
        rejected = Text(f"{format_count(story.rejected)} in quarantine", style="yellow")
        grid.add_row("late rows", format_count(story.late), rejected)
    return grid


def _diffused(last: BatchSummary) -> tuple[str, Text]:
    """The number of diffused groups, and of rows that were received more than once."""
    groups = sum(len(entry.groups) for entry in last.diffused)
    masters = ", ".join(dict.fromkeys(entry.master for entry in last.diffused))
    spread = f"groups, {masters} spread; " if groups else "groups; "
    return format_count(groups), Text(spread + overhead(last.diffused, last.copied), style="dim")


def _results(story: Story) -> tuple[str, Text, Text]:
    last = story.last
    if story.results is None:
        total, newest, note = story.combinations, last.combinations if last else 0, ", before the residual"
    else:
        total, newest, note = story.results, (last.results or 0) if last else 0, ""
    label = "results" if story.results is not None else "combinations"
    beside = Text(f"{newest:,} in the last batch{note}" if last else "", style="dim")
    if story.results is not None and any(batch.intermediate for batch in story.batches):
        beside = _history([batch.results or 0 for batch in story.batches], beside.plain)
    return label, Text(format_count(total), style="bold green"), beside


def _history(values: Sequence[float], note: str, greatest: float | None = None) -> Text:
    """A sparkline and what it means; before the first batch nothing."""
    drawn = Text(sparkline(values, greatest), style="cyan")
    return drawn.append(f"  {note}", style="dim") if values else drawn


def _watermark(batch: BatchSummary) -> tuple[str, Text]:
    """The oldest of the watermarks: rows older than it have come from all inputs."""
    times = {alias: time for alias, time in batch.watermarks.items() if time is not None}
    slowest = min(times, key=lambda alias: times[alias])
    moment = datetime.fromtimestamp(times[slowest] // 1_000_000, UTC)
    which = f", of {slowest}, the slowest of {len(times)}" if len(times) > 1 else f", of {slowest}"
    return f"{moment:%H:%M:%S}", Text(f"UTC on {moment:%Y-%m-%d}{which}", style="dim")


def _spilled_rows(processors: Iterable[ProcessorSummary]) -> int:
    return sum(entry.spilled_rows for entry in processors)


def _debt(processors: Iterable[ProcessorSummary]) -> str:
    """The number of results that spilling has postponed, as far as it can be estimated."""
    owing = [entry for entry in processors if entry.owing_groups]
    if not owing:
        return "nothing owed"
    groups = sum(entry.owing_groups for entry in owing)
    counts = [entry.owed for entry in owing if entry.owed is not None]
    results = f"about {format_count(sum(counts))} results" if len(counts) == len(owing) else "results"
    return f"{format_count(groups)} groups owe {results}"


def _share(story: Story) -> RenderableType:
    batches = Text(_batches(story.count), style="dim")
    if not story.expected_rows:
        return batches
    share = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=story.expected_rows, completed=min(story.rows, story.expected_rows), width=24)
    share.add_row(bar, f"{story.rows / story.expected_rows:4.0%}", batches)
    return share


def _batches(count: int) -> str:
    return "1 batch" if count == 1 else f"{count} batches"


def _processors(story: Story, memory: int | None) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("processor", no_wrap=True)
    table.add_column("state rows", justify="right", no_wrap=True, min_width=11)
    table.add_column("bytes", justify="right", no_wrap=True, min_width=9)
    table.add_column("of its budget" if memory else "of the largest", no_wrap=True, min_width=BAR_WIDTH)
    table.add_column("on disk", justify="right", no_wrap=True, min_width=8)
    table.add_column("busy", justify="right", no_wrap=True, min_width=6)
    shown = sorted(story.processors, key=lambda entry: -entry.bytes)[:SHOWN_PROCESSORS]
    largest = memory or max((entry.bytes for batch in story.batches for entry in batch.processors), default=1)
    for entry in sorted(shown, key=lambda entry: entry.number):
        table.add_row(*_processor_row(entry, largest, memory))
    if len(story.processors) > len(shown):
        table.add_row(f"and {len(story.processors) - len(shown)} more")
    return table


def _processor_row(entry: ProcessorSummary, largest: int, memory: int | None) -> tuple[str | Text, ...]:
    style = "red" if memory and entry.bytes > memory else "blue"
    return (
        str(entry.number),
        format_count(entry.rows),
        format_bytes(entry.bytes),
        Text(bar(entry.bytes / max(largest, 1), BAR_WIDTH), style=style),
        format_bytes(entry.spilled_bytes) if entry.spilled_bytes else "-",
        format_seconds(entry.busy_seconds),
    )


def bar(share: float, width: int) -> str:
    """A horizontal bar, exact to an eighth of a character."""
    eighths = round(max(0.0, min(share, 1.0)) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (BLOCKS[rest] if rest else "")).ljust(width)


def sparkline(values: Iterable[float], greatest: float | None = None) -> str:
    """The last values as a row of blocks, from zero to the greatest value; greater values than `greatest` are cut
    off."""
    shown = list(values)[-SHOWN_BATCHES:]
    greatest = max(shown, default=0.0) if greatest is None else greatest
    if greatest <= 0:
        return SPARK_LEVELS[0] * len(shown)
    top = len(SPARK_LEVELS) - 1
    return "".join(SPARK_LEVELS[round(min(value / greatest, 1.0) * top)] for value in shown)
