"""What a state has that another port needs: columns, conditions, keys and times."""

from __future__ import annotations

from dataclasses import replace

from anabranch.plan.sharing.leaf_state import LeafState, best_fit, columns_of, fit

STATE = LeafState(
    port=0,
    alias="A",
    origin="a stream",
    since=1,
    conditions=frozenset({"`v` > 1", "`k` IS NOT NULL"}),
    columns=frozenset({"v", "w"}),
    window=10,
    timed=True,
    late=True,
    hashed=(("`k`", "bigint"),),
)
NEEDED = replace(STATE, port=7)


def test_a_state_with_the_same_conditions_and_more_columns_is_listed_whatever_the_window() -> None:
    found = fit(replace(NEEDED, columns=frozenset({"v"}), window=20), STATE)
    assert found.is_listed
    assert not found.dropped


def test_rows_are_selected_by_the_conditions_that_they_have_not_met() -> None:
    found = fit(replace(NEEDED, conditions=STATE.conditions | {"`w` < 5"}), STATE)
    assert found.is_usable
    assert not found.is_listed
    assert found.conditions == ("`w` < 5",)


def test_a_condition_that_reads_what_is_not_kept_cannot_be_met() -> None:
    found = fit(replace(NEEDED, conditions=STATE.conditions | {"`x` < `v`"}), STATE)
    assert found.lacking == ("x",)
    assert not found.is_usable


def test_rows_that_did_not_meet_a_condition_of_the_state_are_dropped() -> None:
    found = fit(replace(NEEDED, conditions=frozenset({"`k` IS NOT NULL"})), STATE)
    assert found.is_listed
    assert found.dropped == ("`v` > 1",)


def test_another_key_or_type_of_key_is_hashed_anew_from_the_columns_that_it_reads() -> None:
    assert fit(replace(NEEDED, hashed=(("`w`", "bigint"),)), STATE).is_usable
    assert fit(replace(NEEDED, hashed=(("`k`", "decimal(20,0)"),)), STATE).lacking == ("k",)


def test_a_state_without_event_times_cannot_serve_windows_but_the_other_way_round() -> None:
    assert not fit(NEEDED, replace(STATE, timed=False)).is_usable
    assert fit(replace(NEEDED, timed=False), STATE).is_listed


def test_the_best_state_is_taken_of_those_with_rows_of_the_stream_since_the_same_time() -> None:
    there = [
        replace(STATE, port=1, columns=frozenset()),
        replace(STATE, port=2, conditions=STATE.conditions | {"`w` = 1"}),
        replace(STATE, port=3, alias="B"),
        STATE,
    ]
    found = best_fit(NEEDED, there, 1)
    assert found is not None
    assert found.of is STATE
    assert best_fit(NEEDED, there, 2) is None
    assert best_fit(replace(NEEDED, origin="another"), there, 1) is None


def test_columns_are_names_as_they_are_spelt() -> None:
    assert columns_of("`A b` + transform(`xs`, `x` -> `x` + 1) > 'k'") == {"A b", "xs"}
