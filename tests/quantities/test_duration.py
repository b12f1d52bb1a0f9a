"""Lengths of time, as written and as microseconds."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import QueryError
from anabranch.language import parse_duration
from anabranch.quantities.duration import MICROSECONDS


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("10 seconds", 10_000_000),
        ("1 MINUTE", 60_000_000),
        ("  2   hours ", 7_200_000_000),
        ("1.5 milliseconds", 1_500),
        (".5 seconds", 500_000),
        ("1 hour 30 minutes", 5_400_000_000),
        ("0 seconds", 0),
        ("1 week", 7 * 86_400_000_000),
        (timedelta(days=1, microseconds=3), 86_400_000_003),
    ],
)
def test_a_length_is_read_to_the_microsecond(text: str | timedelta, microseconds: int) -> None:
    assert parse_duration(text) == microseconds


@given(st.integers(0, 10**6), st.sampled_from(sorted(MICROSECONDS)), st.booleans())
def test_every_unit_reads_back_what_was_written(count: int, unit: str, plural: bool) -> None:
    assert parse_duration(f"{count} {unit}{'s' if plural else ''}") == count * MICROSECONDS[unit]


@given(st.timedeltas(timedelta(0), timedelta(days=100_000_000)))
def test_a_timedelta_and_its_parts_in_words_agree(length: timedelta) -> None:
    words = f"{length.days} days {length.seconds} seconds {length.microseconds} microseconds"
    assert parse_duration(length) == parse_duration(words)


@given(st.text(max_size=20))
def test_any_text_is_a_length_or_a_query_error(text: str) -> None:
    with suppress(QueryError):
        assert parse_duration(text) >= 0


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "write a number and a unit"),
        ("10", "write a number and a unit"),
        ("seconds", "write a number and a unit"),
        ("-5 seconds", "write a number and a unit"),
        ("10 secnds", "did you mean 'seconds'"),
        ("1 month", "unknown unit of time 'month'"),
        ("1.5 microseconds", "not a whole number of microseconds"),
        (timedelta(seconds=-1), "negative"),
        ("99999999999999 weeks", "too long"),
    ],
)
def test_what_is_no_length_is_refused_with_a_hint(text: str | timedelta, complaint: str) -> None:
    with pytest.raises(QueryError, match=complaint):
        parse_duration(text)
