"""Events: kept, and logged."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from anabranch.observe.events import Event, EventKind, EventLog


def test_every_event_is_logged_and_a_lack_of_memory_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    events = EventLog(clock=lambda: 5.0)
    with caplog.at_level(logging.INFO, logger="anabranch"):
        events.add(EventKind.SPILL, "3 groups pushed", bytes=7)
        events.add(EventKind.MEMORY, "too little")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "spill: 3 groups pushed"),
        ("WARNING", "memory: too little"),
    ]
    assert caplog.records[0].event.details == {"bytes": 7}


def test_the_library_leaves_it_to_the_program_where_its_log_goes() -> None:
    assert [type(handler) for handler in logging.getLogger("anabranch").handlers] == [logging.NullHandler]


def test_a_kind_equals_its_text() -> None:
    event = EventLog(clock=lambda: 5.0).add(EventKind.CLEAN_UP, "3 results")

    assert event.kind == "clean-up"
    assert str(event) == "00:00:05 clean-up: 3 results"


def test_events_are_numbered_and_read_from_a_number_on() -> None:
    events = EventLog(clock=lambda: 5.0)
    for reason in "abc":
        events.add(EventKind.SKIP, reason)

    assert [event.number for event in events.all()] == [1, 2, 3]
    assert [event.reason for event in events.since(1)] == ["b", "c"]
    assert events.since(3) == events.since(99) == []
    assert events.since() == events.since(0) == events.all()


def test_a_log_goes_on_after_earlier_events_and_hands_new_ones_on() -> None:
    kept: list[Event] = []
    events = EventLog(earlier=[Event(7, 1.0, EventKind.SKIP, "before")], number=8, keep=kept.append)

    event = events.add(EventKind.SKIP, "now")

    assert kept == [event]
    assert [event.number for event in events.all()] == [7, 9]
    assert events.since() == [event]


def test_the_documentation_lists_every_kind_and_no_other() -> None:
    page = (Path(__file__).parents[2] / "docs" / "usage.md").read_text()
    (table,) = re.findall(r"\| kind \| when \|\n.*?\n\n", page, re.DOTALL)
    listed = [kind for row in table.strip().splitlines()[2:] for kind in re.findall("`(.*?)`", row.split("|")[1])]

    assert sorted(listed) == sorted(EventKind)
