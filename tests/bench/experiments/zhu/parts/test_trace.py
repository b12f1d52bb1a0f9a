"""What a migration did, as counts, and what a machine of some speed makes of them."""

from __future__ import annotations

import pytest

from anabranch.bench.experiments.zhu.fig_12 import crossings
from anabranch.bench.experiments.zhu.fig_13 import as_new_from
from anabranch.bench.experiments.zhu.parts.configurations import LOW, cases, steady_work
from anabranch.bench.experiments.zhu.parts.pictures import by_batch, delays_on
from anabranch.bench.experiments.zhu.parts.setting import Setting
from anabranch.bench.experiments.zhu.parts.trace import JoinCounts, MigrationTrace, StepCounts, step_counts
from anabranch.bench.experiments.zhu.parts.work_clock import WorkClock

SETTING = Setting(200, (10, 10, 10, 10), (0.5, 0.5, 0.5), scale=1, batch=100, lateness=0)


def join(streams: str, worked: int, produced: int, *, shadow: bool = False) -> JoinCounts:
    return JoinCounts(tuple(streams), shadow, worked, produced)


def moving_state() -> MigrationTrace:
    """Three batches, and a step of moving state after the second."""
    batch = (join("AB", 10, 5), join("ABC", 10, 5), join("ABCD", 10, 60))
    replay = (join("AB", 0, 0), join("BC", 20, 40, shadow=True), join("BCD", 40, 10, shadow=True))
    last = (*replay[1:], join("ABCD", 10, 0, shadow=True))
    return MigrationTrace(
        "moving state",
        SETTING,
        (
            StepCounts(100, 60, batch, 30),
            StepCounts(200, 60, batch, 60),
            StepCounts(None, 0, (replay[0], *last), 100),
            StepCounts(300, 60, batch, 60),
        ),
        "moving-state",
        began=200,
        ended=200,
        rehashed_rows=20,
    )


def test_the_work_of_a_migration_is_that_of_the_shadow_and_what_is_hashed_anew() -> None:
    trace = moving_state()

    assert trace.migration_work == 20 + (20 + 40) + (40 + 10) + 10
    assert (trace.made("B", "C"), trace.made("B", "C", "D"), trace.made("A", "B")) == (40, 10, 0)
    assert trace.length == 0
    assert [step.answers for step in trace.silent_steps] == [0]
    assert trace.meanwhile == []


def test_the_last_join_makes_answers_and_the_others_intermediate_rows() -> None:
    assert [step.intermediate for step in moving_state().steps] == [10, 10, 50, 10]
    assert by_batch(moving_state(), lambda step: step.intermediate) == [10, 10, 60]


def test_joins_are_told_from_those_of_a_shadow_by_the_names_of_their_inputs() -> None:
    counts = step_counts(
        {
            "queries": {"query": {"numOutputRows": 7, "results": 70}},
            "operators": [
                {"operator": "join of A, B", "rows": 1, "results": 2, "cpuMs": 0.1},
                {"operator": "join of :A, :B, :C, :D", "rows": 3, "results": 4, "cpuMs": 0.1},
            ],
            "processors": [{"activeRows": 5}, {"activeRows": 6}],
        },
        100,
    )

    assert counts == StepCounts(100, 7, (join("AB", 1, 2), join("ABCD", 3, 4, shadow=True)), 11)
    assert [one.last for one in counts.joins] == [False, True]
    assert (counts.work, counts.shadow_work, counts.intermediate) == (10, 7, 2)


def test_a_machine_that_keeps_up_answers_a_batch_soon_after_it_has_come() -> None:
    # 100 rows of work per batch; 140 are moved: 20 hashed anew, 120 in joins.
    assert [end for _, end in WorkClock(10_000).ends(moving_state())] == pytest.approx([110, 210, 224, 310])


def test_a_machine_that_is_too_slow_falls_behind() -> None:
    assert [end for _, end in WorkClock(500).ends(moving_state())] == pytest.approx([300, 500, 780, 980])


def test_a_batch_waits_for_what_was_begun_before_it() -> None:
    assert WorkClock(10_000).delays(moving_state()) == pytest.approx({100: 10, 200: 10, 300: 10})
    assert WorkClock(500).delays(moving_state()) == pytest.approx({100: 200, 200: 300, 300: 680})


def test_curves_of_delays_leave_out_the_first_long_batch() -> None:
    curves = delays_on(lambda traces: WorkClock(10_000))([moving_state()])
    assert curves == {"moving state": {300: pytest.approx(10)}}


def test_steady_work_is_that_of_the_last_batches_per_second() -> None:
    assert steady_work(moving_state()) == 1_000


def test_a_run_is_as_the_new_order_from_the_batch_on_after_which_they_never_differ() -> None:
    def made(*rows: int) -> MigrationTrace:
        steps = (StepCounts(100 * n, 0, (join("AB", 0, many),), 0) for n, many in enumerate(rows, start=1))
        return MigrationTrace("made", SETTING, tuple(steps))

    assert as_new_from(made(1, 5, 3, 2), made(1, 2, 3, 2)) == 3
    assert as_new_from(made(1, 2), made(1, 2)) == 1


def test_two_curves_cross_where_the_lower_one_changes() -> None:
    assert crossings({1: 1.0, 2: 2.0, 4: 8.0}, {1: 2.0, 2: 3.0, 4: 5.0}) == [(2, 4)]
    assert crossings({1: 1.0, 2: 2.0}, {1: 2.0, 2: 3.0}) == []


def test_all_ways_of_a_configuration_have_the_same_batches() -> None:
    edges = {tuple(case.edges()) for case in cases(LOW)}

    assert len(edges) == 1
    (those,) = edges
    assert those[:3] == (0, 1_000, 1_250)
    assert cases(LOW)[0].begins in those
