"""Events: kept, and logged."""

from __future__ import annotations

import logging

import pytest

from anabranch.observe.events import EventLog


def test_every_event_is_logged_and_a_lack_of_memory_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    events = EventLog(clock=lambda: 5.0)
    with caplog.at_level(logging.INFO, logger="anabranch"):
        events.add("spill", "3 groups pushed", bytes=7)
        events.add("memory", "too little")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "spill: 3 groups pushed"),
        ("WARNING", "memory: too little"),
    ]
    assert caplog.records[0].event.details == {"bytes": 7}


def test_the_library_leaves_it_to_the_program_where_its_log_goes() -> None:
    assert [type(handler) for handler in logging.getLogger("anabranch").handlers] == [logging.NullHandler]
