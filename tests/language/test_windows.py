"""Windows in brackets, where they may stand and what they may say."""

from __future__ import annotations

import pytest

from anabranch.errors import QueryError, UnsupportedError


@pytest.mark.parametrize(
    ("window", "length"),
    [
        ("", None),
        ("[RANGE 10 SECONDS]", 10_000_000),
        ("[range 1 minute]", 60_000_000),
        ("[RANGE '10 seconds']", 10_000_000),
        ("[RANGE INTERVAL 10 SECONDS]", 10_000_000),
        ("[RANGE INTERVAL '1' HOUR]", 3_600_000_000),
        ("[RANGE 1 HOUR 30 MINUTES]", 5_400_000_000),
        ("[RANGE 0.5 SECONDS /* half */]", 500_000),
        ("[RANGE 0 SECONDS]", 0),
        ("[NOW]", 0),
        ("[RANGE UNBOUNDED]", None),
        ("[UNBOUNDED]", None),
    ],
)
@pytest.mark.parametrize("place", ["s {} AS A", "s {} A", "s AS A {}", "s A {}"])
def test_a_window_stands_before_or_after_the_alias(bind, window: str, length: int | None, place: str) -> None:
    query = bind(f"SELECT A.v FROM {place.format(window)}, t WHERE A.k = t.k")
    assert [(part.alias, part.window) for part in query.inputs] == [("A", length), ("t", None)]


def test_each_stream_in_a_list_or_a_join_has_its_own_window(bind) -> None:
    query = bind(
        "SELECT a.v FROM s [RANGE 10 SECONDS] AS a, t [RANGE 1 MINUTE] b "
        "JOIN u [RANGE UNBOUNDED] ON b.k = u.k WHERE a.k = b.k"
    )
    assert [part.window for part in query.inputs] == [10_000_000, 60_000_000, None]


def test_a_bracket_after_a_column_stays_an_index(bind) -> None:
    query = bind("SELECT A.arr[0] AS first FROM s [NOW] A, t WHERE A.k = t.k AND A.m['[RANGE 1]'] = t.arr[A.x]")
    assert query.outputs[0].expression == "`A.arr`[0]"
    assert query.residual == "`A.m`['[RANGE 1]'] = `t.arr`[`A.x`]"


@pytest.mark.parametrize(
    ("window", "construct"),
    [
        ("[ROWS 5]", "ROWS"),
        ("[RANGE 10 SECONDS SLIDE 5 SECONDS]", "SLIDE"),
    ],
)
def test_other_windows_of_cql_are_refused_by_name(bind, window: str, construct: str) -> None:
    with pytest.raises(UnsupportedError, match=f"^{construct} in a window"):
        bind(f"SELECT A.v FROM s {window} A, t WHERE A.k = t.k")


@pytest.mark.parametrize(
    ("window", "complaint"),
    [
        ("[]", "not a window"),
        ("[RANGE]", "not a window"),
        ("[RANGE 10]", "write a number and a unit"),
        ("[RANGE 10 SECNDS]", "did you mean 'seconds'"),
        ("[RANGE 10S]", "unknown unit of time 'S'"),
        ("[RANGE 10 SECONDS", "not closed"),
    ],
)
def test_a_wrong_window_is_shown_where_it_stands(bind, window: str, complaint: str) -> None:
    with pytest.raises(QueryError, match=complaint) as caught:
        bind(f"SELECT A.v FROM s {window}")
    assert "line 1, column 19" in str(caught.value)


def test_two_windows_on_one_stream_are_refused(bind) -> None:
    with pytest.raises(QueryError, match="two windows"):
        bind("SELECT A.v FROM s [NOW] A [NOW], t WHERE A.k = t.k")


def test_a_window_needs_an_event_time(bind) -> None:
    with pytest.raises(QueryError, match="'timeless' has no event time for a window; register it with time="):
        bind("SELECT A.v FROM s A, timeless [RANGE 1 DAY] B WHERE A.k = B.k")
    assert bind("SELECT A.v FROM s A, timeless [UNBOUNDED] B WHERE A.k = B.k").inputs[1].window is None
