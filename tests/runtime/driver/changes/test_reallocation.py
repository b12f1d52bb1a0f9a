"""Operators that go on at other processors, between two batches: with their state, with crashes, in other rounds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.errors import ConfigError
from anabranch.manager.actions import Action, ReallocateOperator, RelocateGroups
from anabranch.manager.snapshot import Snapshot
from anabranch.observe.events import Event
from anabranch.state.failpoints import VARIABLE
from tests.oracle.referee import assert_same_rows, query
from tests.oracle.steps import Kind, Steps

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int32()), ("j", pa.int32()), ("v", pa.int32()), ("ts", pa.int64())])
KINDS = {name: Kind(SCHEMA, "ts", 60_000_000) for name in "ABCD"}
ONE_KEY = "SELECT A.v AS a, B.v AS b, C.v AS c FROM A, B, C WHERE A.k = B.k AND B.k = C.k"
TWO_KEYS = "SELECT A.v AS a, B.v AS b, C.v AS c FROM A, B, C WHERE A.k = B.k AND B.j = C.j"
LOWER, UPPER = "join of A, B", "join of C, A, B"


@dataclass(frozen=True)
class Script:
    """Decides after a batch what was written down for it."""

    actions: dict[int, tuple[Action, ...]]

    def decide(self, snapshot: Snapshot) -> Iterator[Action]:
        yield from self.actions.get(snapshot.step - 1, ())


def rows(seed: int, count: int = 30) -> pa.Table:
    chance = random.Random(seed)
    numbers = [[chance.randrange(5) for _ in range(count)] for _ in range(2)]
    return pa.table([*numbers, range(count), [chance.randrange(1000) for _ in range(count)]], schema=SCHEMA)


def batches(count: int, names: str = "ABC") -> list[dict[str, pa.Table]]:
    return [{name: rows(n * 10 + k) for k, name in enumerate(names)} for n in range(count)]


def everything(fed: list[dict[str, pa.Table]]) -> dict[str, pa.Table]:
    return {name: pa.concat_tables([batch[name] for batch in fed]) for name in fed[0]}


def reallocations(steps: Steps) -> list[Event]:
    return [event for event in steps.events.since() if event.kind == "reallocate"]


def homes(steps: Steps) -> list[set[int]]:
    return [set(placement) for placement in steps.runner.status.placements]


def feed(steps: Steps, *fed: dict[str, pa.Table]) -> None:
    for batch in fed:
        steps.feed(batch)
        steps.check_owners()


def test_an_operator_leaves_its_family_and_comes_back_with_its_state(spark: SparkSession, tmp_path: Path) -> None:
    fed = batches(4)
    with Steps(spark, tmp_path / "c", ONE_KEY, KINDS, processors=3, joins="(A B) C") as steps:
        feed(steps, fed[0])
        assert steps.runner.context.shape.families == (0, 0)
        files = {path.name for path in steps.taken.state.iterdir()}
        steps.public.reallocate(UPPER, to=2)
        steps.check_owners()
        assert homes(steps) == [{0, 1, 2}, {2}]
        assert {path.name for path in steps.taken.state.iterdir()} == files, "nothing is copied"
        feed(steps, fed[1])
        assert steps.plan.layout.rounds == (0, 1), "it costs a round"
        steps.public.reallocate([LOWER, UPPER], to=1)
        feed(steps, fed[2])
        assert (homes(steps), steps.plan.layout.rounds) == ([{1}, {1}], (0, 0)), "fused where they are placed alike"
        steps.public.reallocate(LOWER, to=None)
        steps.public.reallocate(UPPER, to="spread")
        feed(steps, fed[3])
        assert (homes(steps), steps.plan.layout.rounds) == ([{0, 1, 2}, {0, 1, 2}], (0, 0))
        steps.public.reallocate(UPPER, to=None)
        told = reallocations(steps)
        assert [event.details["rounds"] for event in told] == [2, 1, 2, 1], "what is there already is no event"
        assert [step for step, _ in told[0].details["steps"]] == [
            "notify",
            "connect parents",
            "connect children",
            "deactivate",
            "send state",
            "activate",
        ]
        assert "2 rounds instead of 1, since it was asked for" in told[0].reason
        assert told[0].details["bytes"] > 0
        assert_same_rows(steps.answer, query(ONE_KEY, everything(fed)))


def test_a_sub_plan_goes_along_with_its_operator(spark: SparkSession, tmp_path: Path) -> None:
    fed = batches(3)
    with Steps(spark, tmp_path / "c", TWO_KEYS, KINDS, processors=3, joins="(A B) C") as steps:
        feed(steps, fed[0])
        steps.public.reallocate(UPPER, to=1, subplan=True)
        assert homes(steps) == [{1}, {1}]
        feed(steps, fed[1])
        steps.public.reallocate(UPPER, to=2)
        feed(steps, fed[2])
        assert homes(steps) == [{1}, {2}]
        assert_same_rows(steps.answer, query(TWO_KEYS, everything(fed)))


def test_operators_stay_where_they_are_when_the_program_is_started_again(spark: SparkSession, tmp_path: Path) -> None:
    fed, found = batches(4), []
    with Steps(spark, tmp_path / "c", ONE_KEY, KINDS, joins="(A B) C", answers=found) as steps:
        feed(steps, fed[0])
        steps.public.reallocate(UPPER, to=1)
        steps.public.reallocate(LOWER, to="stay", apart=True)
    with Steps(spark, tmp_path / "c", ONE_KEY, KINDS, joins="(A B) C", answers=found) as steps:
        assert homes(steps) == [{0, 1}, {1}]
        feed(steps, fed[1])
        steps.public.reallocate(UPPER, to=None)
        assert steps.plan.layout.rounds == (0, 1), "the lower one is set apart"
    other = "SELECT A.v AS a, B.v AS b, D.v AS d FROM A, B, D WHERE A.k = B.k AND B.k = D.k"
    with Steps(spark, tmp_path / "c", ONE_KEY, KINDS, joins="(A B) C", answers=found, others={"d": other}) as steps:
        assert steps.plan.layout.families[:2] == (0, 1)
        assert homes(steps)[:2] == [{0, 1}, {0, 1}]
        feed(steps, {**fed[2], "D": rows(99)})
    with Steps(spark, tmp_path / "c", ONE_KEY, KINDS, processors=3, joins="(A B) C", answers=found) as steps:
        assert homes(steps) == [{0, 1, 2}, {0, 1, 2}], "unless the program wants them elsewhere"
        assert steps.plan.layout.rounds == (0, 0)
        feed(steps, fed[3])
    assert_same_rows(pa.concat_tables(found), query(ONE_KEY, everything(fed)))


@pytest.mark.parametrize("place", ["sent", "committed", "activated"])
def test_a_crash_at_any_point_leaves_the_old_place_or_the_new_one(
    place: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed, found = batches(3), []
    with Steps(spark, tmp_path / "c", ONE_KEY, KINDS, joins="(A B) C", answers=found) as steps:
        feed(steps, fed[0])
        monkeypatch.setenv(VARIABLE, f"reallocation.{place}=raise@once:{tmp_path / 'crash'}")
        with pytest.raises(Exception, match=f"failpoint reallocation.{place}"):
            steps.public.reallocate(UPPER, to=1)
        monkeypatch.delenv(VARIABLE)
        if place == "sent":
            feed(steps, fed[1])  # nothing has happened
    with Steps(spark, tmp_path / "c", ONE_KEY, KINDS, joins="(A B) C", answers=found) as steps:
        assert homes(steps)[1] == ({0, 1} if place == "sent" else {1})
        feed(steps, *(fed[2:] if place == "sent" else fed[1:]))
    assert_same_rows(pa.concat_tables(found), query(ONE_KEY, everything(fed)))


def test_what_policies_decide_on_is_done_after_the_step_and_what_cannot_be_is_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    fed = batches(3)
    policy = Script({1: (ReallocateOperator(1, UPPER, 1, "it costs less there"),)})
    settings = {"policies": [policy]}
    with Steps(spark, tmp_path / "c", TWO_KEYS, KINDS, joins="(A B) C", settings=settings) as steps:
        feed(steps, *fed)
        assert homes(steps) == [{0, 1}, {1}]
        assert "since it costs less there" in reallocations(steps)[0].reason
        steps.runner.context.run.reallocations.append(ReallocateOperator(7, "join of X, Y", 0, "gone"))
        steps.public._run.reallocator.go_on()
        assert "no reallocation, since there is no operator" in steps.events.since()[-1].reason
        assert_same_rows(steps.answer, query(TWO_KEYS, everything(fed)))


def test_an_error_after_the_commit_of_what_a_policy_decided_on_ends_the_run_at_the_new_place(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not be told that nothing was reallocated, and nothing may go on by the plan of before."""
    fed, found = batches(2), []
    settings = {"policies": [Script({1: (ReallocateOperator(1, UPPER, 1, "it costs less there"),)})]}
    with Steps(spark, tmp_path / "c", ONE_KEY, KINDS, joins="(A B) C", settings=settings, answers=found) as steps:
        monkeypatch.setenv(VARIABLE, f"reallocation.activated=raise@once:{tmp_path / 'marker'}")
        feed(steps, fed[0])
        monkeypatch.delenv(VARIABLE)
        assert not [event for event in steps.events.since() if event.kind == "warning"]
        with pytest.raises(Exception, match=r"failpoint reallocation\.activated"):
            steps.feed(fed[1])
    with Steps(spark, tmp_path / "c", ONE_KEY, KINDS, joins="(A B) C", answers=found) as steps:
        assert homes(steps) == [{0, 1}, {1}]
        feed(steps, fed[1])
    assert_same_rows(pa.concat_tables(found), query(ONE_KEY, everything(fed)))


def test_relocations_held_rows_spilled_state_and_diffused_groups_are_settled_or_go_along(
    spark: SparkSession, tmp_path: Path
) -> None:
    fed = batches(5)
    moving = RelocateGroups(0, (0, 1), 0, 1, 3_000, "the script says so", pace=1_000)
    with Steps(
        spark, tmp_path / "c", ONE_KEY, KINDS, joins="(A B) C", settings={"policies": [Script({1: (moving,)})]}
    ) as steps:
        feed(steps, fed[0])
        assert steps.runner.context.in_force.distribution.moving
        steps.public.reallocate(UPPER, to=1)
        assert not steps.runner.context.in_force.distribution.moving
        assert "1 relocation under way came to nothing" in reallocations(steps)[-1].reason
        steps.public.spill([3, 4, 5])
        feed(steps, fed[1])
        steps.public.reallocate(LOWER, to=0)
        feed(steps, fed[2])
        steps.public.diffuse([6, 7], master="A", over=[0, 1], operator=LOWER)
        steps.public.reallocate(UPPER, to=0)
        assert steps.runner.context.in_force.distribution.diffusions, "what it is not about stays"
        assert steps.plan.layout.rounds == (0, 1), "a diffused operator runs by itself"
        feed(steps, fed[3])
        steps.public.reallocate(LOWER, to=1)
        assert "2 diffused groups gathered" in reallocations(steps)[-1].reason
        feed(steps, fed[4])
        steps.end()
        assert_same_rows(steps.answer, query(ONE_KEY, everything(fed)))


def test_what_cannot_be_reallocated_is_refused_with_the_reason(spark: SparkSession, tmp_path: Path) -> None:
    with Steps(spark, tmp_path / "c", TWO_KEYS, KINDS, joins="(A B) C") as steps:
        feed(steps, batches(1)[0])
        for operators, to, told in (
            ("join of A, D", 1, "there is no operator 'join of A, D'; did you mean 'join of A, B'"),
            ([], 1, "no operator was given"),
            (LOWER, 2, "from 0 to 1, or to all of them"),
            (LOWER, "everywhere", "not to 'everywhere'"),
        ):
            with pytest.raises(ConfigError, match=told):
                steps.public.reallocate(operators, to=to)
        steps.public.migrate("(B C) A", "background", pace=1)
        with pytest.raises(ConfigError, match="no operator can be reallocated while 'query' migrates"):
            steps.public.reallocate(LOWER, to=1)


def test_moving_an_operator_every_third_batch_adds_no_row_to_any_exchange(spark: SparkSession, tmp_path: Path) -> None:
    """By count: the rows that come out of the exchanges of each batch, with an operator that moves and without."""
    fed, counts, answers = batches(7), {}, {}
    for moving in (False, True):
        folder = tmp_path / str(moving)
        with Steps(spark, folder, TWO_KEYS, KINDS, processors=3, joins="(A B) C") as steps:
            for n, batch in enumerate(fed):
                if n % 3 == 0:
                    steps.public.reallocate(UPPER, to=1 + (n // 3) % 2 if moving else 1)
                feed(steps, batch)
            assert len(reallocations(steps)) == (3 if moving else 1)
            counts[moving] = [sum(report.arrived for report in result.reports) for result in steps.results]
            answers[moving] = steps.answer
    assert counts[True] == counts[False]
    assert_same_rows(answers[True], answers[False])
    assert_same_rows(answers[True], query(TWO_KEYS, everything(fed)))


def test_parting_from_a_family_costs_one_round_with_what_the_lower_operator_gives(
    spark: SparkSession, tmp_path: Path
) -> None:
    fed = batches(2)
    with Steps(spark, tmp_path / "c", ONE_KEY, KINDS, joins="(A B) C") as steps:
        feed(steps, fed[0])
        streams = sum(len(table) for table in fed[1].values())
        assert sum(report.arrived for report in steps.results[-1].reports) == streams
        steps.public.reallocate(UPPER, to=1)
        feed(steps, fed[1])
        result = steps.results[-1]
        given = sum(report.produced[result.operators.index(LOWER)] for report in result.reports)
        assert sum(report.arrived for report in result.reports) == streams + given


def test_the_distribution_table_tells_where_operators_are_and_what_they_do(spark: SparkSession, tmp_path: Path) -> None:
    with Steps(spark, tmp_path / "c", ONE_KEY, KINDS, processors=2, joins="(A B) C") as steps:
        feed(steps, batches(1)[0])
        steps.public.reallocate(UPPER, to=1)
        table = steps.public.distribution(ab.MemoryShare())
        lower, upper = table[LOWER], table[UPPER]
        assert (lower.processors, upper.processors, upper.where) == ((0, 1), (1,), "whole on processor 1")
        assert (lower.round, upper.round, upper.fused_with) == (1, 2, ())
        assert (lower.rows, lower.rows_in) == (60, 60)
        assert upper.rows_in == 30 + lower.rows_out
        assert sum(table.costs.values()) == pytest.approx(1.0, abs=0.01), "all state there is"
        assert f"{UPPER}  whole on processor 1" in str(table)
        assert "processor 1 " in str(table).splitlines()[-1]
        assert len(table) == 2
