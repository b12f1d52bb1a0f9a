"""State that moves, step by step: by hand and by policies, at once and by and by, with crashes in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.errors import AnabranchError, ConfigError
from anabranch.manager.actions import Action, HoldGroups, RelocateGroups, SpillGroups
from anabranch.manager.policies import clean_up
from anabranch.manager.snapshot import Snapshot
from anabranch.state import failpoints
from anabranch.state.runs import run as run_module
from anabranch.state.runs.run import RunFile, Segment, map_run
from tests.oracle import referee
from tests.oracle.steps import Kind, Steps

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.int64())])
KINDS = {name: Kind(SCHEMA, "t", 1_000_000) for name in "AB"}
JOIN = "SELECT A.v AS a, B.v AS b FROM A, B WHERE A.k = B.k"
WINDOWED = "SELECT A.v AS a, B.v AS b FROM A [RANGE 3 SECONDS], B [RANGE 3 SECONDS] WHERE A.k = B.k"
GROUPED = "SELECT k, count(*) AS n, max(v) AS m FROM A [PARTITION BY k ROWS 3] GROUP BY k"
GROUPS = 16
# Batches in which each group that was pushed to disk has its turn.
ROTATION = 8


@dataclass(frozen=True)
class Script:
    """Decides after a step what was written down for it; the first is number 1, after the claim of the run."""

    actions: dict[int, tuple[Action, ...]]

    def decide(self, snapshot: Snapshot) -> Iterator[Action]:
        yield from self.actions.get(snapshot.step - 1, ())


def rows(count: int, number: int, keys: int = 40) -> pa.Table:
    """So many rows of batch `number`, a second each."""
    values = [number * 1_000 + n for n in range(count)]
    times = [number * 1_000 + n % 1_000 for n in range(count)]
    return pa.table({"k": [v % keys for v in values], "t": times, "v": values}, schema=SCHEMA)


def expected(batches: list[pa.Table], window: int | None = None) -> pa.Table:
    everything = pa.concat_tables(batches)
    streams = {name: referee.Stream(everything, ["k"], "t", window) for name in "AB"}
    return referee.join(streams, ["A.v AS a", "B.v AS b"])


def feed(steps: Steps, batches: list[pa.Table]) -> None:
    for batch in batches:
        steps.feed({"A": batch, "B": batch})
        steps.check_owners()


def relocations(steps: Steps) -> list[ab.api.run.Event]:
    return [event for event in steps.events.since() if event.kind == "relocate"]


def files(steps: Steps) -> set[str]:
    return {path.name for path in steps.taken.state.iterdir()}


def test_groups_move_between_two_batches_and_nothing_is_copied(spark: SparkSession, tmp_path: Path) -> None:
    fed = [rows(100, n) for n in range(4)]
    with Steps(spark, tmp_path / "c", JOIN, KINDS, processors=3) as steps:
        feed(steps, fed[:2])
        held = [manifest.bytes for manifest in steps.runner.context.manifests]
        before = files(steps)
        steps.runner.manual.relocate(range(8), 2, None, None)
        steps.check_owners()
        assert files(steps) == before, "what moves is listed elsewhere"
        now = [manifest.bytes for manifest in steps.runner.context.manifests]
        assert now[2] > held[2]
        assert sum(now) == pytest.approx(sum(held), abs=100), "rounded per slice"
        events = relocations(steps)
        assert {event.details["sender"] for event in events} == {0, 1}
        messages = [message for message, _ in events[0].details["steps"]]
        assert len(messages) == 8
        assert messages[0] == "compute partitions to move"
        assert messages[-1] == "reactivate partitions"
        feed(steps, fed[2:])
        placement = steps.runner.status.placements[0]
        assert set(placement[:8]) == {2}
        referee.assert_same_rows(steps.answer, expected(fed))
    with Steps(spark, tmp_path / "c", JOIN, KINDS, processors=3) as steps:
        assert steps.runner.status.placements[0] == placement, "what has moved stays where it is"
    with Steps(spark, tmp_path / "c", JOIN, KINDS, processors=2) as steps:
        assert set(steps.runner.status.placements[0]) == {0, 1}, "unless the program wants something else"


def test_the_driver_looks_into_no_file_to_move_groups_unless_it_has_just_started(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = [rows(100, n) for n in range(3)]
    looked: list[str] = []

    def look(directory: Path, file: RunFile) -> Segment:
        looked.append(file.name)
        return map_run(directory, file)

    monkeypatch.setattr(run_module, "map_run", look)
    with Steps(spark, tmp_path / "c", JOIN, KINDS, processors=2) as steps:
        for batch in fed[:2]:
            steps.feed({"A": batch, "B": batch})
        steps.runner.manual.relocate([2, 5], 1, None, None)
        assert not looked
        found = steps.answers
    with Steps(spark, tmp_path / "c", JOIN, KINDS, processors=2, answers=found) as steps:
        steps.runner.manual.relocate([12], 0, None, None)
        assert looked, "files of an earlier run are not known"
        steps.feed({"A": fed[2], "B": fed[2]})
        referee.assert_same_rows(steps.answer, expected(fed))


def test_a_run_is_rescaled_while_it_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    fed = [rows(60, n) for n in range(6)]
    with Steps(spark, tmp_path / "c", WINDOWED, KINDS, processors=3) as steps:
        for n, batch in enumerate(fed):
            if n in (2, 4):
                steps.runner.manual.rescale({2: 5, 4: 1}[n])
                steps.check_owners()
            feed(steps, [batch])
            assert len(steps.results[-1].reports) == (3, 3, 5, 5, 1, 1)[n]
        referee.assert_same_rows(steps.answer, expected(fed, 3_000))
    with Steps(spark, tmp_path / "c", WINDOWED, KINDS, processors=3) as steps:
        assert steps.runner.status.processors == 1, "it stays rescaled"
        with pytest.raises(ConfigError, match="positive whole number"):
            steps.runner.manual.rescale(0)
        with pytest.raises(ConfigError, match="at least as many partition groups"):
            steps.runner.manual.rescale(GROUPS + 1)


def paced(sender: int, receiver: int, groups: tuple[int, ...]) -> RelocateGroups:
    return RelocateGroups(0, groups, sender, receiver, 3_000, "the script says so", pace=1_000)


def test_rows_of_groups_on_their_way_are_held_back_and_drained_at_the_new_place(
    spark: SparkSession, tmp_path: Path
) -> None:
    fed = [rows(100, n) for n in range(7)]
    policy = Script({2: (paced(0, 1, tuple(range(8))),)})
    with Steps(spark, tmp_path / "c", WINDOWED, KINDS, settings={"policies": [policy]}) as steps:
        feed(steps, fed[:2])
        assert [event.kind for event in steps.events.since()] == ["relocating"]
        for n, batch in enumerate(fed[2:5]):
            feed(steps, [batch])
            waiting = sum(report.held_rows for report in steps.results[-1].reports)
            assert waiting > 0, "they wait for three steps"
            assert steps.runner.status.placements[0][0] == (0 if n < 2 else 1), "with one owner at any time"
            assert steps.results[-1].reports[1].received[0] > 0, "while others go on"
        assert len(steps.answer) < len(expected(fed[:5], 3_000))
        feed(steps, [fed[5]])
        assert sum(report.held_rows for report in steps.results[-1].reports) == 0
        referee.assert_same_rows(steps.answer, expected(fed[:6], 3_000))
        (event,) = relocations(steps)
        assert event.details["seconds"] > 0
        feed(steps, [fed[6]])
        referee.assert_same_rows(steps.answer, expected(fed, 3_000))


@pytest.mark.parametrize("text", [WINDOWED, GROUPED])
def test_rows_that_wait_are_not_forgotten_when_the_input_ends(spark: SparkSession, tmp_path: Path, text: str) -> None:
    fed = [rows(60, n) for n in range(4)]
    everything = tuple(range(GROUPS))
    policy = Script({n: (HoldGroups(0, 0, everything, "the script says so"),) for n in (1, 2, 3)})
    kinds = KINDS if text == WINDOWED else {"A": KINDS["A"]}
    with Steps(spark, tmp_path / "c", text, kinds, settings={"policies": [policy]}) as steps:
        for batch in fed:
            steps.feed(dict.fromkeys(kinds, batch))
        assert sum(report.held_rows for report in steps.results[-1].reports) == 180 * len(kinds)
        steps.end()
        if text == WINDOWED:
            referee.assert_same_rows(steps.answer, expected(fed, 3_000))
        else:
            assert len(steps.answer) == 240


RANGED = "SELECT k, count(*) AS n, max(v) AS m FROM A [RANGE 3 SECONDS] GROUP BY k"


@pytest.mark.parametrize("text", [GROUPED, RANGED])
def test_groups_whose_rows_wait_do_not_keep_the_answers_of_others_waiting(
    spark: SparkSession, tmp_path: Path, text: str
) -> None:
    fed = [rows(60, n) for n in range(9)]
    slow = HoldGroups(0, 0, (0, 1, 2), "the script says so")
    policy = Script(dict.fromkeys((2, 3, 4, 5, 6), (slow,)))
    kinds = {"A": KINDS["A"]}
    with (
        Steps(spark, tmp_path / "plain", text, kinds) as plain,
        Steps(spark, tmp_path / "held", text, kinds, settings={"policies": [policy]}) as held,
    ):
        missing: list[set[int]] = []
        for batch in fed:
            for steps in (plain, held):
                steps.feed({"A": batch})
            there, here = ({tuple(row.values()) for row in steps.answer.to_pylist()} for steps in (plain, held))
            assert here <= there
            missing.append({row[0] for row in there - here})
        assert missing[1] == set(), "nothing waits yet"
        assert missing[2] != set(), "whose rows begin to wait rests at once"
        assert 0 < len(missing[6]) < 20, "they are those of three groups of sixteen"
        assert all(keys <= missing[6] for keys in missing)
        assert missing[8] == set(), "once rows need not wait any more, they are answered"
        for steps in (plain, held):
            steps.end()
        referee.assert_same_rows(held.answer, plain.answer)


def test_rows_that_have_waited_to_be_grouped_are_not_written_with_those_that_are_new(
    spark: SparkSession, tmp_path: Path
) -> None:
    """So that runs follow each other in time, and of older ones little has to be read."""
    policy = Script(dict.fromkeys((2, 3, 4), (HoldGroups(0, 0, (0, 1, 2), "the script says so"),)))
    with Steps(
        spark, tmp_path / "c", GROUPED, {"A": KINDS["A"]}, processors=1, settings={"policies": [policy]}
    ) as steps:
        for n in range(5):
            steps.feed({"A": rows(60, n)})
        known = {piece.file for piece in steps.runner.context.manifests[0].active()}
        newest = steps.runner.context.in_force.last.newest[0]
        steps.feed({"A": rows(60, 5)})
        added = {piece.file for piece in steps.runner.context.manifests[0].active()} - known
        assert sorted(file.min_ts > newest for file in added) == [False, True]
        assert sum(file.rows for file in added) > 60


@pytest.mark.parametrize("name", ["step.before_sink", "step.after_sink", "step.before_commit", "step.after_commit"])
def test_after_a_crash_in_any_step_of_a_move_there_is_one_owner_and_nothing_is_lost(
    spark: SparkSession, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = [rows(60, n) for n in range(6)]
    given: dict[int, pa.Table] = {}

    def keep(results: object, batch_id: int) -> None:
        given[batch_id] = results.toArrow()

    policy = Script({2: (paced(0, 1, (0, 1, 2)),), 4: (RelocateGroups(0, (12, 13), 1, 0, 10, "the script says so"),)})
    batch, crashed = 0, set()
    while batch < len(fed):
        with Steps(spark, tmp_path / "c", WINDOWED, KINDS, settings={"policies": [policy]}, sink=keep) as steps:
            steps.check_owners()
            batch = steps.next_batch
            if batch == len(fed):
                break
            if batch not in crashed:
                crashed.add(batch)
                monkeypatch.setenv(failpoints.VARIABLE, f"{name}=raise@once:{tmp_path / str(batch)}")
                with pytest.raises(failpoints.FailpointError):
                    steps.feed({"A": fed[batch], "B": fed[batch]})
                monkeypatch.delenv(failpoints.VARIABLE)
            else:
                steps.feed({"A": fed[batch], "B": fed[batch]})
                batch += 1
            if batch == len(fed):
                steps.end()
    referee.assert_same_rows(pa.concat_tables(given.values()), expected(fed, 3_000))


def test_spilled_generations_move_along(spark: SparkSession, tmp_path: Path) -> None:
    fed = [rows(100, n) for n in range(5)]
    policy = Script({n: (SpillGroups(0, 0, tuple(range(8)), 0, "the script says so"),) for n in (1, 2)})
    with Steps(spark, tmp_path / "c", JOIN, KINDS, settings={"policies": [policy]}) as steps:
        feed(steps, fed[:3])
        before = steps.runner.context.manifests[0].spilled_bytes
        assert before > 0
        steps.runner.manual.relocate(range(6), 1, None, None)
        steps.check_owners()
        assert steps.runner.context.manifests[1].spilled_bytes > 0
        feed(steps, fed[3:])
        while steps.clean_up():
            pass
        referee.assert_same_rows(steps.answer, expected(fed))


def test_a_processor_does_not_spill_while_it_moves_state(spark: SparkSession, tmp_path: Path) -> None:
    fed = [rows(100, n) for n in range(4)]
    move, push = paced(0, 1, (0, 1)), SpillGroups(1, 0, (9, 10), 0, "the script says so")
    policy = Script({1: (move, push), 2: (push,)})
    with Steps(spark, tmp_path / "c", JOIN, KINDS, settings={"policies": [policy]}) as steps:
        feed(steps, fed)
        assert "spill" not in [event.kind for event in steps.events.since()]
    policy = Script({1: (push, RelocateGroups(0, (0,), 0, 1, 10, "the script says so"))})
    with Steps(spark, tmp_path / "d", JOIN, KINDS, settings={"policies": [policy]}) as steps:
        feed(steps, fed[:2])
        assert [event.kind for event in steps.events.since()] == ["spill"], "what was decided first is done"


def test_of_two_policies_that_move_the_same_groups_the_first_does(spark: SparkSession, tmp_path: Path) -> None:
    fed = [rows(100, n) for n in range(3)]
    first = Script({1: (RelocateGroups(0, (0, 1), 0, 1, 10, "the first says so"),)})
    second = Script({1: (RelocateGroups(0, (1, 2), 0, 2, 10, "the second says so"),)})
    policies = {"policies": [first, second]}
    with Steps(spark, tmp_path / "c", JOIN, KINDS, processors=3, settings=policies) as steps:
        feed(steps, fed)
        (event,) = relocations(steps)
        assert "the first says so" in event.reason
        referee.assert_same_rows(steps.answer, expected(fed))


def test_a_move_that_is_asked_for_does_not_change_a_batch_that_is_repeated(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = [rows(60, n) for n in range(4)]
    given: dict[int, list[pa.Table]] = {}

    def keep(results: object, batch_id: int) -> None:
        given.setdefault(batch_id, []).append(results.toArrow())

    with Steps(spark, tmp_path / "c", WINDOWED, KINDS, sink=keep) as steps:
        feed(steps, fed[:2])
        monkeypatch.setenv(failpoints.VARIABLE, f"step.after_sink=raise@once:{tmp_path / 'crash'}")
        with pytest.raises(failpoints.FailpointError):
            steps.feed({"A": fed[2], "B": fed[2]})
    with Steps(spark, tmp_path / "c", WINDOWED, KINDS, sink=keep) as steps:
        steps.runner.manual.relocate(range(8), 1, None, 500)
        feed(steps, [fed[2]])
        referee.assert_same_rows(given[2][1], given[2][0])
        feed(steps, [fed[3]])
        assert sum(report.held_rows for report in steps.results[-1].reports) > 0, "from then on they wait"
        steps.end()
    referee.assert_same_rows(pa.concat_tables(times[-1] for times in given.values()), expected(fed, 3_000))


def test_nothing_moves_after_a_batch_has_failed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = [rows(60, n) for n in range(3)]
    given: dict[int, pa.Table] = {}

    def keep_first(results: object, batch_id: int) -> None:
        given.setdefault(batch_id, results.toArrow())

    with Steps(spark, tmp_path / "c", WINDOWED, KINDS, sink=keep_first) as steps:
        feed(steps, fed[:2])
        monkeypatch.setenv(failpoints.VARIABLE, f"step.after_sink=raise@once:{tmp_path / 'crash'}")
        with pytest.raises(failpoints.FailpointError):
            steps.feed({"A": fed[2], "B": fed[2]})
        with pytest.raises(ConfigError, match="about to end"):
            steps.runner.manual.relocate(range(8), 1, None, 500)
    with Steps(spark, tmp_path / "c", WINDOWED, KINDS, sink=keep_first) as steps:
        feed(steps, [fed[2]])
        steps.end()
    referee.assert_same_rows(pa.concat_tables(given.values()), expected(fed, 3_000))


@pytest.mark.parametrize(
    ("action", "told"),
    [
        (RelocateGroups(0, (99,), 0, 1, 10, ""), "there are 16 groups"),
        (RelocateGroups(0, (15,), 0, 1, 10, ""), "group 15 is on processor 1"),
        (RelocateGroups(0, (1,), 0, 7, 10, ""), "from one of 2 processors to another"),
        (RelocateGroups(3, (1,), 0, 1, 10, ""), "the families"),
        (HoldGroups(0, 0, (77,), ""), "not there"),
    ],
)
def test_what_a_policy_gets_wrong_is_named(spark: SparkSession, tmp_path: Path, action: Action, told: str) -> None:
    with (
        Steps(spark, tmp_path / "c", JOIN, KINDS, settings={"policies": [Script({1: (action,)})]}) as steps,
        pytest.raises(AnabranchError, match=told),
    ):
        feed(steps, [rows(20, 0)])


@pytest.mark.parametrize(
    ("answer", "told"), [(None, r"decided on None; .* \[\] for none"), ([7], "decided on 7, which is no action")]
)
def test_a_policy_that_decides_on_no_action_is_named(
    spark: SparkSession, tmp_path: Path, answer: object, told: str
) -> None:
    @dataclass
    class Absent:
        answer: object

        def decide(self, snapshot: Snapshot) -> object:
            return self.answer

    with (
        Steps(spark, tmp_path / "c", JOIN, KINDS, settings={"policies": [Absent(answer)]}) as steps,
        pytest.raises(ConfigError, match=f"Absent.*{told}"),
    ):
        feed(steps, [rows(20, 0)])


@pytest.mark.parametrize("between", [False, True], ids=["batches only", "with steps between them"])
def test_no_row_of_a_spilled_group_waits_for_ever(
    spark: SparkSession, tmp_path: Path, between: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each group of a grouping has its turn, so an answer comes within so many batches of the time it is due."""
    monkeypatch.setattr(clean_up, "ROTATION", ROTATION)
    everything, batches = tuple(range(GROUPS)), ROTATION + 8
    push, wait = SpillGroups(0, 0, everything, 0, "the script says so"), HoldGroups(0, 0, (0,), "the script says so")
    policy = Script(dict.fromkeys(range(1, 60), (push, wait) if between else (push,)))
    kinds = {"A": KINDS["A"]}
    due: dict[int, int] = {}
    with Steps(spark, tmp_path / "c", GROUPED, kinds, processors=1, settings={"policies": [policy]}) as steps:
        for n in range(batches):
            steps.feed({"A": rows(20, n, keys=20)})
            if between:
                steps.let_go_on()
            seen = {int(m.as_py()) for table in steps.answers for m in table.column("m")}
            due |= {value: n for value in seen if value not in due}
        # Every row is the greatest value of its group when it comes, so it is in one answer; it is settled, with a
        # lateness of a second, two batches later.
        waited = [n - value // 1_000 for value, n in due.items()]
        early = {v * 1_000 + k for v in range(batches - ROTATION - 4) for k in range(20)}
        assert early <= due.keys(), "all that are older than a round of turns are answered"
        assert max(waited) <= ROTATION + 4
