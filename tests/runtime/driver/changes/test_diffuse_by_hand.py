"""Diffusing and gathering partition groups by hand: what is done and told, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from anabranch.errors import ConfigError
from anabranch.observe.events import EventKind
from anabranch.testing import Steps

pytestmark = pytest.mark.spark

JOIN = "SELECT A.v AS a, B.v AS b FROM A, B WHERE A.k = B.k"
HOT = 7
ROWS = [(HOT, n) for n in range(8)] + [(n, n) for n in range(4)]


@pytest.fixture
def steps(spark: SparkSession, tmp_path: Path) -> Iterator[Steps]:
    with Steps(spark, tmp_path / "state", processors=3, groups=16) as steps:
        for name in "ABC":
            steps.stream(name, "k INT, v INT")
        yield steps


def rows_of(steps: Steps, group: int) -> dict[int, int]:
    """The rows of a group, by processor."""
    return {entry["processor"]: entry["activeRows"] for entry in steps.state() if entry["group"] == group}


def test_the_masters_rows_are_divided_and_the_home_keeps_those_of_the_other(steps: Steps) -> None:
    steps.query(JOIN)
    steps.feed(A=ROWS, B=ROWS)
    (group,) = steps.groups_of(key=HOT)
    (before,) = rows_of(steps, group).values()
    own = sum(group in steps.groups_of(key=key) for key, _ in ROWS)
    steps.diffuse(group, master="B", over=[2, 0])
    after = rows_of(steps, group)
    assert sum(after.values()) == before == 2 * own
    assert sorted(after.values()) == [own // 2, own + own // 2]
    event = steps.events[-1]
    assert event.kind == EventKind.DIFFUSE
    assert event.details["master"] == "B"
    assert event.details["hosts"] == [2, 0]
    steps.undiffuse(group, to=1)
    assert rows_of(steps, group) == {1: before}
    assert EventKind.GATHER in [event.kind for event in steps.events]


def test_groups_that_are_diffused_are_gathered_whichever_join_they_are_of(steps: Steps) -> None:
    steps.query(JOIN)
    steps.feed(A=ROWS, B=ROWS)
    steps.diffuse([3, 4], master="A", over=[0, 1, 2])
    with pytest.raises(ConfigError, match="group 5 cannot be gathered: nothing of it is diffused"):
        steps.undiffuse([3, 5], operator="join of A, B")
    steps.undiffuse([3, 5])
    with pytest.raises(ConfigError, match="group 3 cannot be gathered: nothing of it is diffused"):
        steps.undiffuse(3)
    steps.undiffuse(4)


def test_rescaling_gathers_what_is_diffused_and_says_so(steps: Steps) -> None:
    steps.query(JOIN)
    steps.feed(A=ROWS, B=ROWS)
    steps.diffuse([3, 4], master="A", over=[0, 1, 2])
    steps.rescale(2)
    assert steps.events[-1].reason.endswith("2 diffused groups gathered by that")
    with pytest.raises(ConfigError, match="nothing of it is diffused"):
        steps.undiffuse([3, 4])


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda s: s.diffuse(3, master="C", over=[0, 1]), "master is an input of the join of A, B, and 'C' is none"),
        (lambda s: s.diffuse(3, master="A", over=[0]), "name two or more processors, each once, not \\[0\\]"),
        (lambda s: s.diffuse(3, master="A", over=[0, 0]), "name two or more processors, each once"),
        (lambda s: s.diffuse(3, master="A", over=[0, 3]), "processors are numbers from 0 to 2, not 3"),
        (lambda s: s.diffuse(16, master="A", over=[0, 1]), "partition groups are numbers from 0 to 15, not 16"),
        (lambda s: s.diffuse([], master="A", over=[0, 1]), "no group was given"),
        (
            lambda s: s.diffuse(3, master="A", over=[0, 1], operator="join of A, C"),
            "there is no operator 'join of A, C'; did you mean 'join of A, B'",
        ),
        (lambda s: s.undiffuse(3, to=7), "processors are numbers from 0 to 2, not 7"),
        (lambda s: s.undiffuse(3), "group 3 cannot be gathered: nothing of it is diffused"),
    ],
)
def test_what_makes_no_sense_is_refused(steps: Steps, ask: Callable[[Steps], None], told: str) -> None:
    steps.query(JOIN)
    with pytest.raises(ConfigError, match=told):
        ask(steps)


def test_groups_that_are_diffused_neither_move_nor_spill(steps: Steps) -> None:
    steps.query(JOIN)
    steps.feed(A=ROWS, B=ROWS)
    (group,) = steps.groups_of(key=HOT)
    steps.diffuse(group, master="A", over=[0, 1])
    with pytest.raises(ConfigError, match=f"group {group} is diffused over processors 0, 1; gather it first"):
        steps.relocate(group, to=2)
    with pytest.raises(ConfigError, match=f"group {group} of the join of A, B cannot be spilled while diffused"):
        steps.spill(group)
    steps.spill()
    assert sum(entry["activeRows"] for entry in steps.state()) == sum(rows_of(steps, group).values())


def test_what_is_spilled_or_held_back_is_not_diffused(steps: Steps) -> None:
    steps.query(JOIN)
    steps.feed(A=ROWS, B=ROWS)
    (group,) = steps.groups_of(key=HOT)
    steps.spill(group)
    with pytest.raises(ConfigError, match=f"cannot be diffused now: group {group} has state on disk; clean up first"):
        steps.diffuse(group, master="A", over=[0, 1])
    steps.clean_up()
    (home,) = rows_of(steps, group)
    steps.relocate(group, to=(home + 1) % 3, pace=1)
    with pytest.raises(ConfigError, match=f"group {group} is on its way to another processor"):
        steps.diffuse(group, master="A", over=[0, 1])


def test_rows_that_come_joined_are_named_by_all_their_aliases(steps: Steps) -> None:
    steps.stream("D", "v INT, w INT")
    steps.query("SELECT A.v AS a FROM A, B, D WHERE A.k = B.k AND B.v = D.v", joins="(A B) D")
    with pytest.raises(ConfigError, match="come to the join of D, A, B joined with others; write master='A B'"):
        steps.diffuse(3, master="A", over=[0, 1], operator="join of D, A, B")
    steps.diffuse(3, master="A B", over=[0, 1], operator="join of D, A, B")
    assert steps.events[-1].details["master"] == "A B joined"


def test_a_grouping_is_not_diffused(spark: SparkSession, tmp_path: Path) -> None:
    with Steps(spark, tmp_path / "state") as steps:
        steps.stream("A", "k INT, t BIGINT", time="t", lateness="0 seconds")
        steps.query("SELECT k, count(*) AS n FROM A [RANGE 5 SECONDS] GROUP BY k")
        with pytest.raises(ConfigError, match="only joins can be"):
            steps.diffuse(3, master="A", over=[0, 1])


def test_no_result_is_lost_or_there_twice_while_a_group_is_diffused_switched_and_gathered(steps: Steps) -> None:
    steps.query(JOIN)
    (group,) = steps.groups_of(key=HOT)
    changes: list[Callable[[], None]] = [
        lambda: steps.diffuse(group, master="A", over=[0, 1, 2]),
        lambda: steps.diffuse(group, master="B", over=[1, 2]),
        lambda: steps.diffuse(group, master="B", over=[2, 0, 1]),
        lambda: steps.undiffuse(group, to=1),
        lambda: None,
    ]
    sent = []
    for number, change in enumerate(changes):
        sent += [(key, 100 * number + value) for key, value in ROWS]
        steps.feed(A=sent[-len(ROWS) :], B=sent[-len(ROWS) :])
        change()
    expected = sorted((a, b) for key, a in sent for other, b in sent if key == other)
    answer = steps.answer().to_pydict()
    assert sorted(zip(answer["a"], answer["b"], strict=True)) == expected
