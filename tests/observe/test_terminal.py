"""How a run looks: the story that progress tells, the panel, and the plain lines."""

from __future__ import annotations

import io
import os
import pty
import sys
import termios
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from anabranch.cli.wording import fold
from anabranch.observe.echo import no_echo
from anabranch.observe.events import Event, EventKind
from anabranch.observe.progress import (
    BatchProgress,
    InputProgress,
    OperatorProgress,
    ProcessorProgress,
    Progress,
    QueryProgress,
    Totals,
)
from anabranch.observe.story import BatchSummary, ProcessorSummary, Story, batch_summary, processor_summaries
from anabranch.observe.terminal import (
    SHOWN_BATCHES,
    LiveView,
    PlainView,
    bar,
    batch_line,
    panel,
    sparkline,
    summary_line,
)

EIGHT = datetime(2026, 1, 1, 8, tzinfo=UTC).timestamp()


def processor(number: int, spilled: int) -> ProcessorProgress:
    return ProcessorProgress(
        number=number,
        active_rows=10,
        active_bytes=2048,
        spilled_rows=spilled,
        spilled_bytes=10 * spilled,
        generations=0,
        unspillable_bytes=0,
        owing_groups=min(spilled, 3),
        owed=2 * spilled,
        owed_at_most=False,
        results=5,
        held_rows=0,
        busy_ms=12.5,
        cpu_ms=10.0,
        idle_ms=0.0,
    )


def progress(
    number: int, rows: int = 1_000, milliseconds: int = 500, results: int = 10, spilled: int = 0
) -> BatchProgress:
    """A batch that begins so many seconds after eight as its number is."""
    watermark = 1_767_254_400_000_000 + number * 1_000_000
    step = Progress(
        step=number + 1,
        queries=(QueryProgress("query", results, None),),
        inputs=(InputProgress("a", 7, 1, 0, watermark, watermark), InputProgress("b", 7, 2, 4, watermark, None)),
        late_joined=0,
        totals=Totals(0, {}, {}, {}, {}, 0),
        processors=(processor(0, spilled), processor(1, spilled)),
        operators=(),
    )
    return BatchProgress(number, rows, EIGHT + number, milliseconds / 1000, step)


def batch(number: int, **changes: Any) -> BatchSummary:
    return batch_summary(progress(number, **changes))


def wide(number: int, processors: int) -> BatchSummary:
    states = tuple(ProcessorSummary(p, 1_000_000 + p, (1 + p) << 24, 100_000, 0.25) for p in range(processors))
    return BatchSummary(number, 123_456_789, 987_654_321, 0, 0, 13.0 * number, 12.3, states, {"orders": 1, "paid": 2})


def drawn(story: Story, width: int, elapsed: float = 3.0, **changes: Any) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(panel(story, "a query", elapsed, **changes))
    return captured.get().splitlines()


def test_a_batch_is_read_from_progress() -> None:
    seen = batch(3)

    assert (seen.number, seen.rows, seen.results, seen.late, seen.rejected) == (3, 1_000, 10, 3, 4)
    assert (seen.started, seen.seconds, seen.ended) == (EIGHT + 3, 0.5, EIGHT + 3.5)
    assert (seen.state_rows, seen.state_bytes) == (20, 4096)


def test_combinations_that_a_residual_predicate_may_reject_are_never_called_results() -> None:
    counted, uncounted = batch(0, results=7), batch(1, results=-1)
    assert (counted.results, counted.combinations) == (7, 10)
    assert (uncounted.results, uncounted.combinations) == (None, 10)
    assert "7 results" in batch_line(counted, 1.0)
    assert "10 combinations before the residual predicate" in batch_line(uncounted, 1.0)

    story = Story()
    story.add(counted)
    assert any("results" in line and "7 in the last batch" in line for line in drawn(story, 80))
    story.add(uncounted)
    assert (story.results, story.combinations) == (None, 20)
    assert "20 combinations before the residual predicate" in summary_line(story, 1.0)
    assert any("combinations" in line and "20  10 in the last batch, before" in line for line in drawn(story, 80))


def test_a_story_counts_every_batch_once() -> None:
    story = Story()

    assert [story.add(batch(number)) for number in (0, 1, 1, 0, 2)] == [True, True, False, False, True]
    assert (story.count, story.rows, story.results, story.late, story.rejected) == (3, 3_000, 30, 9, 12)


def test_rows_per_second_are_those_of_the_clock_and_not_of_the_time_spent_on_batches() -> None:
    story = Story()
    for number in range(5):
        story.add(batch(number, milliseconds=100))

    assert story.recent_rate == pytest.approx(1_000), "1,000 rows come every second, and are done in a tenth"
    assert "500 rows/s" in summary_line(story, 10.0)
    assert any("500 overall" in line for line in drawn(story, 80, elapsed=10.0))


def test_a_run_that_found_nothing_new_says_so_instead_of_zeros() -> None:
    said = summary_line(Story(), 10.9)

    assert said.startswith("no rows had arrived in 10.90 s; what an earlier run has processed is in the checkpoint")


def test_what_happened_long_ago_does_not_count_as_of_late() -> None:
    story = Story()
    story.add(batch(0, rows=1_000_000))
    for number in range(40, 51):
        story.add(batch(number, rows=100))

    assert story.recent_rate == pytest.approx(100)


def test_a_slow_batch_after_a_pause_is_not_taken_for_fast() -> None:
    story = Story()
    story.add(batch(0))
    story.add(batch(20, rows=3_000, milliseconds=30_000))

    assert story.recent_rate == pytest.approx(3_000 / 30)


def test_what_clean_up_and_the_end_of_the_input_answer_is_in_the_story_and_the_panel() -> None:
    story = Story()
    story.add(batch(0, spilled=40))
    assert any("80" in line and "6 groups owe about 160 results" in line for line in drawn(story, 80))
    story.add_event(Event(1, 0.0, EventKind.CLEAN_UP, "some groups", {"answered": 7, "results": 9}))
    story.add_event(Event(2, 0.0, EventKind.CLEAN_UP, "in passing", {"answered": None, "results": 9}))
    story.add_event(Event(3, 0.0, EventKind.END, "the input has ended", {"results": 5}))
    assert not story.add(batch(0)), "it has been told"
    story.see(processor_summaries(progress(0).step))

    text = "\n".join(drawn(story, 80))
    assert story.results == 10 + 7 + 5
    assert "22  10 in the last batch" in text
    assert "nothing owed" in text
    story.add_event(Event(4, 0.0, EventKind.END, "nobody counted", {"results": -1}))
    assert story.results is None


def test_the_median_ignores_batches_without_input() -> None:
    story = Story()
    story.add(batch(0, milliseconds=800))
    story.add(batch(1, milliseconds=400))
    story.add(batch(2, milliseconds=600))
    story.add(batch(3, rows=0, milliseconds=10))

    assert story.median_seconds == 0.6


@pytest.mark.parametrize("width", [60, 80, 100, 160])
@pytest.mark.parametrize("processors", [1, 2, 12, 40])
def test_the_panel_fits_into_a_terminal(width: int, processors: int) -> None:
    story = Story(expected_rows=10**9)
    for number in range(30):
        story.add(wide(number, processors))

    lines = drawn(story, width)

    assert len(lines) <= 22
    assert all(len(line) <= width for line in lines)


def test_the_panel_tells_the_numbers() -> None:
    story = Story(expected_rows=4_000)
    story.add(batch(0))
    story.add(batch(1, milliseconds=250))

    text = "\n".join(drawn(story, 80))

    for expected in (
        "2,000",
        "50%",
        "1,333",
        "0.25 s",
        "median 0.38 s",
        "██",
        "2.0 KiB",
        "8 in quarantine",
        "08:00:01  UTC on 2026-01-01, of a",
    ):
        assert expected in text


def test_before_the_first_batch_the_panel_says_so() -> None:
    assert "waiting for the first batch" in "\n".join(drawn(Story(), 80))


def test_a_processor_over_its_budget_has_a_full_bar() -> None:
    story = Story()
    story.add(batch(0))

    assert "█" * 20 in "\n".join(drawn(story, 80, memory=1_000))


def test_where_nobody_watches_there_is_a_line_per_batch_and_event() -> None:
    lines: list[str] = []
    story = Story()
    with PlainView(lines.append, story) as view:
        story.add(batch(7, spilled=5))
        view.batch(batch(7, spilled=5))
        view.event(Event(5, 0.0, EventKind.RESUME, "continuing"))
        view.tick()

    assert lines == [
        "batch 7: 1,000 rows in, 10 results; 0.50 s, 2,000 rows/s; state 20 rows, 4.0 KiB; on disk 10 rows, 6 groups "
        "owe about 20 results; 3 late, 4 in quarantine",
        "00:00:00 resume: continuing",
    ]


def test_the_live_view_leaves_the_last_picture_standing() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    story = Story()
    with LiveView(console, story, "a query") as view:
        story.add(batch(0))
        view.batch(batch(0))

    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text.rindex("10 in the last batch") > text.index("waiting for the first batch")


def test_the_live_view_shows_the_whole_reason_of_every_adaptation() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    reason = "groups move, since " + " ".join(f"reason {number}" for number in range(40))
    with LiveView(console, Story(), "a query") as view:
        view.event(Event(6, 0.0, EventKind.RELOCATE, reason))
        view.event(Event(7, 1.0, EventKind.RELOCATE, reason))

    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    text = " ".join(" ".join(lines).split())
    assert text.count(reason) == 2
    assert text.count("00:00:00 relocate: ") == text.count("00:00:01 relocate: ") == 1
    assert len([line for line in lines if "reason" in line]) > 10, "in lines that fit"


def test_keys_are_not_echoed_into_the_panel_and_the_terminal_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as keyboard:
        monkeypatch.setattr(sys, "stdin", keyboard)
        monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp())
        before = termios.tcgetattr(keyboard)
        with no_echo():
            assert not termios.tcgetattr(keyboard)[3] & termios.ECHO
        assert termios.tcgetattr(keyboard) == before
        monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp() + 1)
        with no_echo():
            assert termios.tcgetattr(keyboard) == before, "somebody else has the terminal"
    os.close(ours)


def test_a_batch_without_late_rows_does_not_mention_them() -> None:
    assert "late" not in batch_line(wide(0, 1), 1.0)


def test_a_run_is_told_in_one_line() -> None:
    story = Story()
    story.add(batch(0))

    assert summary_line(story, 0.5) == (
        "1,000 rows in, 10 results in 0.50 s and 1 batch; 2,000 rows/s, median batch 0.50 s, state at most 4.0 KiB"
    )


def test_a_bar_is_exact_to_an_eighth() -> None:
    assert [bar(share, 2) for share in (0.0, 1 / 16, 0.5, 0.75, 1.0, 7.0)] == ["  ", "▏ ", "█ ", "█▌", "██", "██"]


def test_a_sparkline_goes_from_zero_to_the_greatest() -> None:
    assert sparkline([0, 1, 2]) == "▁▅█"
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "▁▁"


def test_a_sparkline_cuts_off_what_is_above_its_greatest_value() -> None:
    assert sparkline([9, 1, 2], 2) == "█▅█"


def test_intermediate_rows_are_those_that_operators_made_for_others() -> None:
    below, root = OperatorProgress("join of a, b", 50, 123_456, 1.0), OperatorProgress("join of a, b, c", 9, 10, 1.0)
    seen = replace(batch(0), operators=(below, root))
    story = Story()
    for number in range(SHOWN_BATCHES):
        story.add(replace(seen, number=number))

    assert seen.intermediate == 123_456
    assert batch(0).intermediate == 0
    assert "123,456 intermediate rows" in batch_line(seen, 1.0)
    lines = drawn(story, 80)
    assert any("intermediate" in line and "123,456  ████" in line for line in lines)
    assert any("results" in line and "10 in the last batch" in line for line in lines)
    assert not any("…" in line for line in lines)
    assert not any("intermediate" in line for line in drawn(Story(), 80))


def test_the_first_batch_of_a_run_does_not_flatten_the_others() -> None:
    story = Story()
    for number, milliseconds in enumerate([60_000, 500, 1_000]):
        story.add(batch(number, milliseconds=milliseconds))

    assert any("batch time" in line and "█▅█" in line for line in drawn(story, 80))


def test_a_long_line_of_a_plan_is_continued_below_its_own_beginning() -> None:
    assert fold("Project [a]\n   +- Stream orders AS o, keeps [a, b]", 26) == [
        "Project [a]",
        "   +- Stream orders AS o,",
        "        keeps [a, b]",
    ]
