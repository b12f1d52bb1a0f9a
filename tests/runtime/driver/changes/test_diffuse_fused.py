"""Joins that run fused part from the others while groups of them are diffused, and join them again afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.api.picture import diffusion_lines
from anabranch.checkpoint.survey.survey import survey
from anabranch.errors import ConfigError
from anabranch.manager.actions import Action
from anabranch.manager.snapshot import Snapshot
from anabranch.state.failpoints import VARIABLE
from tests.oracle.referee import Stream, assert_same_rows, join, query
from tests.oracle.steps import Kind, Steps
from tests.runtime.driver.changes.test_diffusion_policy import SCHEMA, ByCount, busiest, rows
from tests.runtime.driver.changes.test_reallocation import KINDS, LOWER, ONE_KEY, UPPER, batches, everything, feed

pytestmark = pytest.mark.spark

HOT = 2
WINDOWED = (
    "SELECT A.v AS a, B.v AS b, C.v AS c FROM A [RANGE 1 SECOND], B [RANGE 1 SECOND], C [RANGE 1 SECOND] "
    "WHERE A.k = B.k AND B.k = C.k"
)


def opened(spark: SparkSession, folder: Path, **fields: object) -> Steps:
    return Steps(spark, folder / "c", ONE_KEY, KINDS, **{"processors": 3, "joins": "(A B) C", **fields})


def rounds(steps: Steps) -> tuple[int, ...]:
    return steps.plan.layout.rounds


def placements(steps: Steps) -> list[tuple[int, ...]]:
    return list(steps.runner.status.placements)


def told(steps: Steps) -> list[str]:
    """The kinds of events so far, and what follows them is what reasons begin with."""
    return [event.kind for event in steps.events.since() if event.kind in ("reallocate", "diffuse", "gather")]


def diffuse(steps: Steps, operator: str = UPPER, master: str = "C", over: tuple[int, ...] = (1, 2)) -> list[int]:
    """Diffuse the group of the hot key; its home is no host unless chance has it."""
    groups = steps.public.groups_of(operator, key=HOT)
    steps.public.diffuse(groups, master=master, over=over, operator=operator)
    steps.check_owners()
    return groups


def test_a_fused_join_parts_in_the_step_in_which_it_is_diffused_and_joins_again_with_the_last_group(
    spark: SparkSession, tmp_path: Path
) -> None:
    fed = batches(5)
    with opened(spark, tmp_path) as steps:
        feed(steps, fed[0])
        files = {path.name for path in steps.taken.state.iterdir()}
        number = steps.runner.status.last_number
        hot = diffuse(steps)
        assert steps.taken.last_step().number == number + 1, "one step"
        assert {path.name for path in steps.taken.state.iterdir()} == files, "nothing is copied"
        assert (rounds(steps), told(steps)) == ((0, 1), ["reallocate", "diffuse"])
        parted = next(event for event in steps.events.since() if event.kind == "reallocate")
        assert f"{UPPER}: set apart from the {LOWER} while groups of it are diffused" in parted.reason
        assert "2 rounds instead of 1, which is estimated to cost 0.10 s a batch" in parted.reason
        feed(steps, fed[1])
        [entry] = steps.results[-1].diffused
        assert entry.apart_from == (LOWER,)
        [line, *_] = diffusion_lines(steps.results[-1])
        assert f"in a round of its own, apart from the {LOWER}, about 0." in line
        inspected = survey(tmp_path / "c", ab.__version__)
        assert [one.apart_from for one in inspected.diffused] == [(LOWER,)]
        other = (hot[0] + 1) % 16
        steps.public.diffuse(other, master="A B", over=[0, 2], operator=UPPER)
        steps.public.diffuse(hot, master="A", over=[2, 1], operator=LOWER)
        feed(steps, fed[2])
        steps.public.undiffuse([*hot, other], operator=UPPER)
        assert rounds(steps) == (0, 1), "what it would join is diffused itself now"
        feed(steps, fed[3])
        steps.public.undiffuse(hot, to=0)
        steps.check_owners()
        assert rounds(steps) == (0, 0)
        first, second = placements(steps)
        assert first == second
        assert first[hot[0]] == 0
        joined = [event for event in steps.events.since() if event.kind == "reallocate"][-1]
        assert f"{UPPER}: fused with the {LOWER} again" in joined.reason
        assert "1 round instead of 2, since no group of it is diffused any more" in joined.reason
        feed(steps, fed[4])
        assert_same_rows(steps.answer, query(ONE_KEY, everything(fed)))


def test_who_was_set_apart_by_a_user_stays_apart(spark: SparkSession, tmp_path: Path) -> None:
    fed = batches(3)
    with opened(spark, tmp_path) as steps:
        steps.public.reallocate(UPPER, to="stay", apart=True)
        feed(steps, fed[0])
        steps.public.undiffuse(diffuse(steps))
        assert rounds(steps) == (0, 1)
        steps.public.reallocate(UPPER, to=None)
        hot = diffuse(steps)
        feed(steps, fed[1])
        steps.public.reallocate(UPPER, to="stay", apart=True)
        steps.public.undiffuse(hot)
        assert rounds(steps) == (0, 1), "the user's word counts more"
        feed(steps, fed[2])
        assert_same_rows(steps.answer, query(ONE_KEY, everything(fed)))


@pytest.mark.parametrize("place", ["reallocation.sent", "reallocation.committed"])
def test_after_a_crash_it_is_set_apart_and_diffused_or_neither(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    fed, found = batches(3), []
    with opened(spark, tmp_path, answers=found) as steps:
        feed(steps, fed[0])
        monkeypatch.setenv(VARIABLE, f"{place}=raise@once:{tmp_path / 'crash'}")
        with pytest.raises(Exception, match=place):
            diffuse(steps)
    monkeypatch.delenv(VARIABLE)
    with opened(spark, tmp_path, answers=found) as steps:
        done = place == "reallocation.committed"
        diffused = [len(routing.diffused) for routing in steps.runner.context.in_force.distribution.routings]
        assert (rounds(steps), diffused) == (((0, 1), [0, 1]) if done else ((0, 0), [0, 0]))
        feed(steps, fed[1])
        hot = diffuse(steps, over=(0, 1))
        # Only the gathering is committed before the next crash; then the next program lets it join.
        monkeypatch.setenv(VARIABLE, f"reallocation.sent=raise@once:{tmp_path / 'again'}")
        with pytest.raises(Exception, match="reallocation.sent"):
            steps.public.undiffuse(hot)
    monkeypatch.delenv(VARIABLE)
    with opened(spark, tmp_path, answers=found) as steps:
        assert rounds(steps) == (0, 1)
        feed(steps, fed[2])
        assert rounds(steps) == (0, 0)
    assert_same_rows(pa.concat_tables(found), query(ONE_KEY, everything(fed)))


def rescaled(steps: Steps) -> None:
    steps.public.rescale(2)


def with_another_query(steps: Steps) -> None:
    other = "SELECT A.v AS a, B.v AS b, D.v AS d FROM A, B, D WHERE A.k = B.k AND B.k = D.k"
    steps.public.query(other, name="other", sink=lambda results, _: results.collect())


@pytest.mark.parametrize("change", [rescaled, with_another_query])
def test_another_number_of_processors_and_other_queries_gather_it_and_let_it_join(
    spark: SparkSession, tmp_path: Path, change: Callable[[Steps], None]
) -> None:
    fed, found = batches(4), []
    with opened(spark, tmp_path, answers=found) as steps:
        feed(steps, fed[0])
        diffuse(steps)
    with opened(spark, tmp_path, answers=found) as steps:
        assert rounds(steps) == (0, 1), "it is apart after a restart, too"
        feed(steps, fed[1])
        change(steps)
        feed(steps, fed[2])
        assert rounds(steps)[:2] == (0, 0)
        diffuse(steps, over=(0, 1))
        feed(steps, fed[3])
    assert_same_rows(pa.concat_tables(found), query(ONE_KEY, everything(fed)))


def test_what_cannot_be_set_apart_now_is_refused_with_the_reason(spark: SparkSession, tmp_path: Path) -> None:
    with opened(spark, tmp_path) as steps:
        feed(steps, *batches(1))
        (group,) = steps.public.groups_of(UPPER, key=HOT)
        with pytest.raises(ConfigError, match="there are several operators; name one with operator"):
            steps.public.diffuse(group, master="A", over=[0, 1])
        with pytest.raises(ConfigError, match="'D' is none"):
            diffuse(steps, master="D")
        steps.public.spill(group, operator=UPPER)
        with pytest.raises(ConfigError, match=f"group {group} has state on disk; clean up first"):
            diffuse(steps)
        steps.public.clean_up()
        migration = steps.public.migrate("A (B C)", "background", "query", pace=1)
        with pytest.raises(
            ConfigError, match="fused with to be diffused while 'query' migrates; wait for it, or cancel"
        ):
            diffuse(steps)
        migration.cancel()
        (home,) = {placement[group] for placement in placements(steps)}
        steps.public.relocate(group, to=(home + 1) % 3, pace=1)
        with pytest.raises(
            ConfigError, match=f"{UPPER} are on their way to another processor, and of what it is fused"
        ):
            diffuse(steps)
        assert (rounds(steps), told(steps)) == ((0, 0), []), "nothing was done"


@dataclass
class FreeRounds:
    """The policy by counts (`ByCount`), where rounds cost nothing; what it has decided on is kept in `decided`."""

    policy: ByCount = field(default_factory=ByCount)
    decided: list[Action] = field(default_factory=list)

    def decide(self, snapshot: Snapshot) -> list[Action]:
        actions = list(self.policy.decide(replace(snapshot, round_seconds=0.0)))
        self.decided += actions
        return actions


def test_work_of_a_fused_join_that_was_at_one_processor_is_even_by_count_once_the_policy_has_set_it_apart(
    spark: SparkSession, tmp_path: Path
) -> None:
    fed: dict[str, list[pa.Table]] = {"A": [], "B": [], "C": []}
    skew = []
    settings = {"policies": [FreeRounds()]}
    kinds = dict.fromkeys("ABC", Kind(SCHEMA, "t", 0))
    with Steps(
        spark, tmp_path / "c", WINDOWED, kinds, processors=4, groups=64, joins="(A B) C", settings=settings
    ) as steps:
        for number in range(1, 8):
            batch = {"A": rows(number, 30, 30, 0), "B": rows(number, 20, 20, 200), "C": rows(number, 25, 25, 100)}
            for name, table in batch.items():
                fed[name].append(table)
            feed(steps, batch)
            skew.append(busiest(steps))
        assert told(steps)[:2] == ["reallocate", "diffuse"]
        parted = next(event for event in steps.events.since() if event.kind == "reallocate")
        assert "times a processor's fair share" in parted.reason
        assert f"ms for being apart from the {LOWER}" in parted.reason
        streams = {name: Stream(pa.concat_tables(tables), ["k"], "t", 1_000) for name, tables in fed.items()}
        assert_same_rows(steps.answer, join(streams, ["A.v AS a", "B.v AS b", "C.v AS c"]))
    assert min(skew[:3]) > 2, "one processor has nearly all of the work"
    assert max(skew[4:]) <= 1.3
