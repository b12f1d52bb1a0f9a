# ruff: noqa: N802, a run's names are spelt as in PySpark
"""Following a run: every batch and every event is told once, however seldom we look."""

from __future__ import annotations

import pytest

from anabranch.api.run import Run
from anabranch.cli import watch as watching
from anabranch.cli.watch import watch
from anabranch.errors import BadRowError
from anabranch.observe.events import Event, EventKind
from anabranch.observe.progress import BatchProgress, Progress, Totals
from anabranch.observe.story import Story
from anabranch.observe.terminal import PlainView

EARLIER = 5  # events of the runs before
STEP = Progress(1, (), (), 0, Totals(0, {}, {}, {}, {}, 0), (), ())


class ScriptedRun(Run):
    """A run that has got further whenever somebody looks; `looks` are (batches so far, events so far)."""

    def __init__(self, looks: list[tuple[int, list[Event]]], error: Exception | None = None) -> None:
        self._looks = looks
        self._error = error
        self._now: tuple[int, list[Event]] = (0, [])

    @property
    def isActive(self) -> bool:
        self._now = self._looks.pop(0)
        return bool(self._looks)

    def events_since(self, number: int | None = None) -> list[Event]:
        return [event for event in self._now[1] if event.number > (EARLIER if number is None else number)]

    @property
    def progress(self) -> Progress | None:
        return STEP if self._now[0] else None

    def batches_since(self, number: int = -1) -> list[BatchProgress]:
        return [BatchProgress(n, 10, 0.0, 0.005, STEP) for n in range(number + 1, self._now[0])]

    def awaitTermination(self, timeout: int | None = None) -> bool | None:
        if self._error is not None:
            raise self._error
        return None


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.0)


def told(looks: list[tuple[int, list[Event]]]) -> list[str]:
    lines: list[str] = []
    story = Story()
    watch(ScriptedRun(looks), story, PlainView(lines.append, story))
    return [line.split(":")[0] if line.startswith("batch") else line.split()[-1] for line in lines]


def test_batches_are_told_once_also_if_several_pass_between_two_looks() -> None:
    looks: list[tuple[int, list[Event]]] = [(0, []), (1, []), (1, []), (4, []), (5, [])]

    assert told(looks) == ["batch 0", "batch 1", "batch 2", "batch 3", "batch 4"]


def test_whoever_asks_is_told_after_each_batch_that_the_story_has() -> None:
    story, counts = Story(), list[int]()

    run = ScriptedRun([(0, []), (1, []), (3, [])])
    watch(run, story, PlainView(lambda line: None, story), lambda: counts.append(story.count))

    assert counts == [1, 2, 3]


def test_events_are_told_once_also_if_old_ones_are_forgotten() -> None:
    a, b, c, d = (Event(number, 0.0, EventKind.SKIP, reason) for number, reason in enumerate("abcd", EARLIER + 1))

    assert told([(0, [a]), (0, [a, b]), (0, [b, c]), (0, [c, d]), (0, [c, d])]) == ["a", "b", "c", "d"]


def test_events_of_an_earlier_run_are_not_told_again() -> None:
    before, now = Event(EARLIER, 0.0, EventKind.SPILL, "before"), Event(EARLIER + 1, 0.0, EventKind.RESUME, "now")

    assert told([(0, [before]), (0, [before]), (0, [before, now])]) == ["now"]


def test_the_error_of_a_run_is_raised_after_its_last_batch_is_told() -> None:
    lines: list[str] = []
    story = Story()

    with pytest.raises(BadRowError):
        watch(ScriptedRun([(0, []), (1, [])], BadRowError("a null")), story, PlainView(lines.append, story))

    assert story.count == 1


def test_what_the_end_of_the_input_and_clean_up_answer_is_counted_before_the_last_picture() -> None:
    cleaned = Event(6, 0.0, EventKind.CLEAN_UP, "the input has ended", {"answered": 7})
    ended = Event(7, 0.0, EventKind.END, "the input has ended", {"results": 5})
    story, last_picture = Story(), list[int | None]()

    class Watched(PlainView):
        def __exit__(self, *_: object) -> None:
            last_picture.append(story.results)

    watch(ScriptedRun([(0, []), (1, []), (1, [cleaned, ended])]), story, Watched(lambda line: None, story))

    assert last_picture == [12]
    assert (story.events["clean-up"], story.events["end"]) == (1, 1)
