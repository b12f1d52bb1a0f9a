"""A preview of a change says in words what it has in fields."""

from __future__ import annotations

from anabranch.plan.sharing.query_change import ChangePreview, Fate, StateChange, event_time


def test_a_preview_is_a_table_with_a_line_for_each_state() -> None:
    preview = ChangePreview(
        "alerts",
        "SELECT 1",
        "SELECT\n  2",
        (
            StateChange("A", Fate.KEPT, 12_000, gone_before=1_500_000),
            StateChange("B", Fate.SELECTED, 7, selected_by=("`v` > 1", "`w` = 2")),
            StateChange("D", Fate.EMPTY, 0),
            StateChange("A B", Fate.COMPUTED, 0),
        ),
        ("C",),
    )
    assert str(preview).splitlines() == [
        "alerts: SELECT 1",
        "        becomes SELECT 2",
        "  state of  is              rows",
        "  A         kept          12,000  rows before 1970-01-01 00:00:01.500 are gone, all others are there",
        "  B         selected           7  rows that meet `v` > 1 and `w` = 2",
        "  D         begins empty       0  no query has read this stream so far",
        "  A B       computed           0",
        "  C         forgotten",
    ]
    assert preview.is_possible
    assert not preview.is_complete
    assert not preview.lacks_rows


def test_what_cannot_be_done_stands_below_the_table() -> None:
    preview = ChangePreview("q", "a", "b", refused=("the new query groups",))
    assert str(preview).splitlines()[-1] == "It cannot be done: the new query groups."
    assert not preview.is_possible
    assert not preview.is_complete


def test_rows_that_a_condition_has_left_out_have_to_be_allowed() -> None:
    preview = ChangePreview("q", "a", "b", (StateChange("A", Fate.KEPT, 1, dropped=("`v` > 1",)),))
    assert preview.lacks_rows
    assert "missing='allow'" in str(preview)


def test_a_time_that_no_calendar_has_is_a_number() -> None:
    assert event_time(2**62) == f"{2**62:,} us"
    assert event_time(-1_000_000) == "1969-12-31 23:59:59.000"
