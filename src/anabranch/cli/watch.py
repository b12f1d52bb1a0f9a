"""A run, followed to its end: progress is polled a few times a second and shown by a view.

Polled, because the main thread has to be where a signal can reach it: asleep, and not inside a call to the JVM.
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
    """The panel if somebody watches, else a line per batch on stdout."""
    console = Console()
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveView(console, story, title, None if memory is None else parse_bytes(memory))
    return PlainView(_print_line, story)


def silent_view(story: Story) -> View:
    """Nothing is shown."""
    return PlainView(lambda line: None, story)


def watch(run: Run, story: Story, view: View, after_batch: Callable[[], None] | None = None) -> float:
    """Wait for the end of the run; its error is raised here. Returns the seconds it took.

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
            # Asked before the look, so that what happens between the two is seen in a last look.
            active = run.isActive
            for event in run.events_since(last_event):
                story.add_event(event)
                view.event(event)
                last_event = event.number
            for batch in run.batches_since(-1 if story.last is None else story.last.number):
                seen = batch_summary(batch)
                if story.add(seen):
                    view.batch(seen)
                    if after_batch is not None:
                        after_batch()
            if story.last is not None and run.progress is not None:
                story.see(processor_summaries(run.progress))
            view.tick()
            if active:
                time.sleep(POLL_SECONDS)


def _print_line(line: str) -> None:
    print(line, file=sys.stdout, flush=True)
