"""Events are kept in the checkpoint: under numbers that are given once, within a bound, whatever happens to files."""

from __future__ import annotations

import errno
import json
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anabranch.checkpoint import journal
from anabranch.checkpoint.folder.directory import Checkpoint
from anabranch.checkpoint.journal import FULL, open_log, read_events
from anabranch.observe.events import KEPT, EventKind, EventLog

IDENTITY = {"groups": 16}


def taken(path: Path) -> Checkpoint:
    """The checkpoint, taken by a new run; the one before has died or lost its lock."""
    checkpoint = Checkpoint(path)
    checkpoint.take(IDENTITY)
    checkpoint.release()
    return checkpoint


def begin(path: Path) -> EventLog:
    return open_log(taken(path))


def add(events: EventLog, *reasons: str) -> None:
    for reason in reasons:
        events.add(EventKind.SKIP, reason)


def numbered(path: Path) -> list[tuple[int, str]]:
    return [(event.number, event.reason) for event in read_events(path)]


def files(path: Path) -> list[str]:
    return sorted(file.name for file in (path / "events").iterdir())


def only_file(path: Path) -> Path:
    (name,) = files(path)
    return path / "events" / name


def test_numbers_go_on_over_restarts(tmp_path: Path) -> None:
    for reason in "abc":
        add(begin(tmp_path), reason, reason.upper())

    events = begin(tmp_path)
    assert numbered(tmp_path) == [(1, "a"), (2, "A"), (3, "b"), (4, "B"), (5, "c"), (6, "C")]
    assert events.all() == read_events(tmp_path)
    assert events.since() == [], "this run has told nothing yet"
    add(events, "d")
    assert [event.number for event in events.since(4)] == [5, 6, 7]
    assert [event.number for event in events.since()] == [7]
    assert files(tmp_path) == ["0000000004-0000000001.jsonl"]


def test_a_run_that_tells_nothing_writes_nothing(tmp_path: Path) -> None:
    add(begin(tmp_path), "a")
    before = only_file(tmp_path).read_bytes()

    begin(tmp_path)

    assert only_file(tmp_path).read_bytes() == before


def test_an_event_is_the_same_after_a_restart_whatever_its_details_are(tmp_path: Path) -> None:
    details: dict[str, Any] = {
        "groups": (np.int64(1), 2),
        "share": np.float32(0.5),
        "moved": np.bool_(True),
        "like": EventKind.SPILL,
        "names": {"b", "a"},
        "by group": {7: np.int8(1)},
        "ratio": float("nan"),
        "where": tmp_path,
        "none": None,
        "text": "\N{SNOWMAN} \n \u2028",
    }
    event = begin(tmp_path).add(EventKind.SPILL, "pushed", **details)

    assert event.details == {
        "groups": [1, 2],
        "share": 0.5,
        "moved": True,
        "like": "spill",
        "names": ["a", "b"],
        "by group": {"7": 1},
        "ratio": None,
        "where": str(tmp_path),
        "none": None,
        "text": details["text"],
    }
    assert begin(tmp_path).all() == [event]


def test_the_newest_events_are_kept_within_a_bound(tmp_path: Path) -> None:
    events = begin(tmp_path)
    for number in range(FULL + KEPT):
        add(events, str(number + 1))
        assert len(only_file(tmp_path).read_bytes().splitlines()) <= FULL if number % 100 == 0 else True
    numbers = list(range(FULL + 1, FULL + KEPT + 1))

    assert [event.number for event in events.all()] == numbers
    assert numbered(tmp_path) == [(number, str(number)) for number in numbers]
    assert only_file(tmp_path).read_bytes().count(b"\n") <= FULL
    events = begin(tmp_path)
    add(events, "after a restart")
    assert [event.number for event in events.all()] == [*numbers[1:], FULL + KEPT + 1]
    assert events.all() == read_events(tmp_path)


@pytest.mark.parametrize("cut", [1, 2, 40])
def test_a_last_line_that_is_not_complete_is_left_out_and_its_number_not_given_again(tmp_path: Path, cut: int) -> None:
    add(begin(tmp_path), "a", "b", "torn")
    file = only_file(tmp_path)
    os.truncate(file, file.stat().st_size - cut)

    events = begin(tmp_path)

    assert [event.reason for event in events.all()] == ["a", "b"]
    add(events, "c")
    assert numbered(tmp_path) == [(1, "a"), (2, "b"), (4, "c")]


def test_any_flipped_bit_costs_no_more_than_the_lines_it_is_in(tmp_path: Path) -> None:
    add(begin(tmp_path), *"abcde")
    file = only_file(tmp_path)
    sound = file.read_bytes()
    for place in range(0, len(sound), 3):
        damaged = bytearray(sound)
        damaged[place] ^= 1 << place % 8
        file.write_bytes(damaged)

        reasons = [event.reason for event in read_events(tmp_path)]

        assert len(reasons) >= 3  # a newline that is lost makes one of two lines
        assert reasons == [reason for reason in "abcde" if reason in reasons]


def test_rubbish_is_no_reason_to_stop(tmp_path: Path) -> None:
    add(begin(tmp_path), "a")
    file = only_file(tmp_path)
    file.write_bytes(b"\xff\x00\n[]\n{}\n\n")
    (file.parent / "0000000009-copy.jsonl").write_text("made by hand")
    assert numbered(tmp_path) == []
    assert begin(tmp_path).all() == []
    file.unlink()
    file.mkdir()
    assert numbered(tmp_path) == []
    assert numbered(tmp_path / "elsewhere") == []


def test_an_event_of_a_kind_that_this_version_lacks_is_left_out(tmp_path: Path) -> None:
    add(begin(tmp_path), "a")
    later = {"number": 2, "time": 0.0, "kind": "from later", "reason": "b", "details": {}}
    with only_file(tmp_path).open("ab") as file:
        file.write(journal.encode_document(later))

    events = begin(tmp_path)
    add(events, "c")

    assert numbered(tmp_path) == [(1, "a"), (3, "c")]


def test_an_older_driver_does_no_harm_to_the_events_of_a_newer_one(tmp_path: Path) -> None:
    old = begin(tmp_path)
    add(old, "a")
    new = begin(tmp_path)
    add(old, "b, not read any more")
    add(new, "b")
    for number in range(FULL):  # it begins files of its own, too
        add(old, str(number))
    add(new, "c")

    assert numbered(tmp_path) == [(1, "a"), (2, "b"), (3, "c")]
    newest = begin(tmp_path)
    add(newest, "d")
    assert numbered(tmp_path) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert len(files(tmp_path)) == 1


def test_what_cannot_be_written_stays_in_memory_and_is_written_with_the_next_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    events = begin(tmp_path)
    add(events, "a")

    def full(path: Path, data: bytes) -> None:
        path.write_bytes(path.read_bytes() + data[:20])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, logger="anabranch"):
        patched.setattr(journal, "append", full)
        add(events, "b")
    assert "event 2 could not be written" in caplog.text
    assert [event.reason for event in events.all()] == ["a", "b"]
    assert numbered(tmp_path) == [(1, "a")]
    add(events, "c")
    assert numbered(tmp_path) == [(1, "a"), (2, "b"), (3, "c")]


def test_a_line_is_a_document(tmp_path: Path) -> None:
    event = begin(tmp_path).add(EventKind.MEMORY, "too little", processor=1)

    (line,) = only_file(tmp_path).read_text().splitlines()

    assert json.loads(line)["body"] == {
        "number": 1,
        "time": event.time,
        "kind": "memory",
        "reason": "too little",
        "details": {"processor": 1},
    }
