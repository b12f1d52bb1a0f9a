"""Follow a run to its end: poll its progress a few times a second, and show it in a view.

It polls because a signal has to reach the main thread: while that sleeps, and not inside a call to the JVM.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from rich.console import Console

from anabranch.api.run import Run
from anabranch.observe.numbers import parse_bytes
from anabranch.observe.story import Story, batch_summary, processor_summaries
from anabranch.observe.terminal import LiveView, PlainView, View

POLL_SECONDS = 0.2


def choose_view(story: Story, title: str, memory: str | int | None = None) -> View:
    """The panel if stdout is a terminal, otherwise a line per batch on stdout."""
    console = Console()
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveView(console, story, title, None if memory is None else parse_bytes(memory))
    return PlainView(_print_line, story)


def silent_view(story: Story) -> View:
    """A view that shows nothing."""
    return PlainView(lambda line: None, story)


def watch(run: Run, story: Story, view: View, after_batch: Callable[[], None] | None = None) -> float:
    """Follow a run to its end; return the seconds it took. An error of the run is raised here.

    `after_batch` is called after each batch, once the story has it; it must not take long.
    """
    started = time.monotonic()
    try:
        _follow(run, story, view, after_batch)
    except BaseException:
        run.leave_open()
        raise
    run.awaitTermination()
    return time.monotonic() - started


def _follow(run: Run, story: Story, view: View, after_batch: Callable[[], None] | None) -> None:
    last_event: int | None = None
    with view:
        active = True
        while active:
            # Read before the events and batches, so that later ones are shown in a last round.
            active = run.isActive
            for event in run.events_since(last_event):
                story.add_event(event)
                view.event(event)
                last_event = event.number
            for batch in run.batches_since(-1 if story.last is None else story.last.number):
                summary = batch_summary(batch)
                if story.add(summary):
                    view.batch(summary)
                    if after_batch is not None:
                        after_batch()
            if story.last is not None and run.progress is not None:
                story.see(processor_summaries(run.progress))
            view.tick()
            if active:
                time.sleep(POLL_SECONDS)


def _print_line(line: str) -> None:
    print(line, file=sys.stdout, flush=True)
