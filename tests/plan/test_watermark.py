"""Late rows and dead rows: the arithmetic of event time, against the definition of a result."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.plan.watermark import (
    BlockTime,
    InputTime,
    PortTime,
    SourceTime,
    Thresholds,
    can_be_late,
    can_expire,
    frontier,
    retention,
    thresholds,
)

times = st.integers(-50, 50)
inputs = st.lists(
    st.builds(InputTime, st.none() | st.integers(0, 20), st.none() | st.integers(0, 20)), min_size=2, max_size=4
)


def sources(entries: list[InputTime]) -> tuple[SourceTime, ...]:
    """One source per input, late if its rows can be."""
    return tuple(SourceTime(j, entry.lateness if can_be_late(entries, j) else None) for j, entry in enumerate(entries))


def multiway_ports(entries: list[InputTime]) -> tuple[PortTime, ...]:
    """The ports of one operator that joins all inputs."""
    return tuple(
        PortTime((i,), tuple(j for j in range(len(entries)) if j != i), entry.window) for i, entry in enumerate(entries)
    )


def at_once(entries: list[InputTime], newest: list[int | None]) -> Thresholds:
    """The thresholds of one operator that joins all inputs."""
    return thresholds(sources(entries), multiway_ports(entries), newest)


def is_result(entries: list[InputTime], ts: list[int]) -> bool:
    newest = max(ts)
    return all(entry.window is None or t >= newest - entry.window for entry, t in zip(entries, ts, strict=True))


@given(inputs, st.data())
def test_a_purged_row_is_in_no_result_with_any_row_that_may_still_arrive(
    entries: list[InputTime], data: st.DataObject
) -> None:
    newest = [data.draw(st.none() | times) for _ in entries]
    limits = at_once(entries, newest)
    for i, threshold in enumerate(limits.purge):
        if threshold is None:
            continue
        combination = [data.draw(times) for _ in entries]
        arriving = data.draw(st.sampled_from([j for j in range(len(entries)) if j != i]))
        late = limits.late[arriving]
        if combination[i] < threshold and (late is None or combination[arriving] >= late):
            assert not is_result(entries, combination)


@given(inputs, st.data())
def test_a_row_one_tick_younger_than_the_threshold_can_still_meet_a_row_on_time(
    entries: list[InputTime], data: st.DataObject
) -> None:
    newest: list[int | None] = [data.draw(times) for _ in entries]
    limits = at_once(entries, newest)
    for i, threshold in enumerate(limits.purge):
        if threshold is None:
            continue
        others = [j for j in range(len(entries)) if j != i]
        marks = {j: limits.late[j] for j in others}
        slowest = min((mark, j) for j, mark in marks.items() if mark is not None)[1]
        mark, window = marks[slowest], entries[i].window
        assert mark is not None
        assert window is not None
        assert mark - window == threshold, "the slowest watermark decides"


@given(inputs)
def test_nothing_is_late_where_no_window_can_expire(entries: list[InputTime]) -> None:
    limits = at_once(entries, [100] * len(entries))
    if not any(can_expire(entries, i) for i in range(len(entries))):
        assert set(limits.late) == {None}
        assert set(limits.purge) == {None}


def test_an_unbounded_stream_keeps_its_partners_for_ever() -> None:
    entries = [InputTime(10, 5), InputTime(None, 5)]
    assert at_once(entries, [1000, 1000]).purge == (None, None)
    assert at_once(entries, [1000, 1000]).late == (None, None)
    assert retention(sources(entries), multiway_ports(entries)[0]) is None


def test_a_stream_that_is_never_late_is_purged_itself_but_keeps_its_partner() -> None:
    entries = [InputTime(10, None), InputTime(20, 5)]
    limits = at_once(entries, [1000, 900])
    assert limits.purge == (900 - 5 - 10, None)
    assert limits.late == (None, 900 - 5)


def test_a_stream_that_has_delivered_nothing_yet_holds_everything() -> None:
    entries = [InputTime(10, 1), InputTime(10, 1), InputTime(10, 1)]
    limits = at_once(entries, [1000, 1000, None])
    assert limits.purge == (None, None, 1000 - 1 - 10)


def test_rows_are_kept_about_a_window_and_the_partners_lateness() -> None:
    entries = [InputTime(10, 1), InputTime(20, 7)]
    assert retention(sources(entries), multiway_ports(entries)[0]) == 17


@given(inputs, st.data())
def test_a_joined_row_is_purged_by_its_newest_time_only_when_it_is_dead(
    entries: list[InputTime], data: st.DataObject
) -> None:
    newest = [data.draw(st.none() | times) for _ in entries]
    inside = data.draw(st.sets(st.sampled_from(range(len(entries))), min_size=1, max_size=len(entries) - 1))
    outside = tuple(j for j in range(len(entries)) if j not in inside)
    windows = [window for i in inside if (window := entries[i].window) is not None]
    port = PortTime(tuple(sorted(inside)), outside, min(windows, default=None))
    limits = thresholds(sources(entries), [port], newest)
    combination = [data.draw(times) for _ in entries]
    arriving = data.draw(st.sampled_from(outside))
    late, (purge,) = limits.late[arriving], limits.purge
    stored = max(combination[i] for i in inside)
    if purge is not None and stored < purge and (late is None or combination[arriving] >= late):
        assert not is_result(entries, combination)


def test_what_an_operator_owes_holds_back_what_dies_and_what_is_settled_above_it() -> None:
    """(A B) C, grouped: operator 0 joins A and B, operator 1 their results with C, operator 2 groups."""
    ports = (
        PortTime((0,), (1,), 10),
        PortTime((1,), (0,), 10),
        PortTime((0, 1), (2,), 10),
        PortTime((2,), (0, 1), 10, debtors=(0,)),
        PortTime((0, 1, 2), (), 10, grouping=0, debtors=(0, 1)),
    )
    streams = tuple(SourceTime(i, 5) for i in range(3))
    newest = [105, 105, 105]
    free = thresholds(streams, ports, newest, [50])
    assert free.purge == (90, 90, 90, 90, 40)
    assert free.settled == (100,)
    owing = thresholds(streams, ports, newest, [50], frontiers={0: 70})
    assert owing.purge == (90, 90, 90, 60, 40), "rows of C may meet what A and B owe"
    assert owing.settled == (70,)
    assert owing.late == free.late, "what is late does not depend on what is spilled"
    assert thresholds(streams, ports, newest, [80], frontiers={0: 70}).settled == (80,), "nothing is taken back"
    unknown = thresholds(streams, ports, newest, [50], frontiers={1: None})
    assert unknown.settled == (50,)
    assert unknown.purge[3] == 90, "what stands beside or below owes nothing to it"


def test_a_block_that_owes_results_holds_back_the_input_that_it_feeds() -> None:
    streams = (SourceTime(0, 5), SourceTime(1, 5))
    ports = (PortTime((0,), (), 10, grouping=0), PortTime((2,), (1,), 10), PortTime((1,), (2,), 10))
    blocks = (BlockTime(2, (0,), grouping=0, debtors=(0,)),)
    assert thresholds(streams, ports, [105, 105], [95], blocks).purge[2] == 85
    assert thresholds(streams, ports, [105, 105], [95], blocks, {0: 60}).purge[2] == 50


def test_the_frontier_of_a_new_debt_is_where_the_slowest_input_or_an_older_debt_below_is() -> None:
    marks = {0: 90, 1: 80, 2: None}
    assert frontier((0, 1), (), marks, {}) == 80
    assert frontier((0, 1), (3,), marks, {3: 40, 4: 10}) == 40
    assert frontier((0, 2), (), marks, {}) is None
