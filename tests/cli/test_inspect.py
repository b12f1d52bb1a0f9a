"""`anabranch inspect`, on checkpoints made without Spark."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch import __version__
from anabranch.checkpoint.journal import open_log
from anabranch.checkpoint.survey import state_files
from anabranch.checkpoint.survey import survey as surveying
from anabranch.checkpoint.survey.survey import survey
from anabranch.cli.main import app
from anabranch.errors import CorruptStateError
from anabranch.manager.order_costs import OrderCosts, QueryOrders
from anabranch.observe.events import EventKind
from anabranch.plan.orders.plan_cost import PlanCost
from anabranch.state.runs.run import RunFile, Segment, map_run
from anabranch.state.store import encode_document, write_file
from tests.checkpoint.fabricated import GROUPS, NEWEST, ROWS, Fabricated

run = CliRunner().invoke


@pytest.fixture
def made(tmp_path: Path) -> Fabricated:
    fabricated = Fabricated(tmp_path / "checkpoint")
    for _ in range(3):
        fabricated.add_step()
    return fabricated


def test_a_sound_checkpoint_is_described_and_exits_with_zero(made: Fabricated) -> None:
    shown = run(app, ["inspect", str(made.checkpoint.path)])

    assert shown.exit_code == 0
    assert "sound: every file is there and its checksum matches" in shown.stdout
    assert "step 4: batch 2, epoch 1, 2 processors" in shown.stdout
    assert "42 since the beginning" in shown.stdout


def test_where_operators_are_is_shown_with_their_clusters_if_there_are_some(made: Fabricated) -> None:
    shown = run(app, ["inspect", str(made.checkpoint.path)]).stdout
    assert ["join", "of", "o,", "p", "0,", "1"] in [line.split()[:6] for line in shown.splitlines()]
    assert "cluster" not in shown
    made.checkpoint.records.write_run({"clusters": {"eu": [0, 1], "us": [2]}})
    shown = run(app, ["inspect", str(made.checkpoint.path)]).stdout
    assert ["join", "of", "o,", "p", "0,", "1", "eu"] in [line.split()[:7] for line in shown.splitlines()]
    document = json.loads(run(app, ["inspect", str(made.checkpoint.path), "--json"]).stdout)
    assert document["clusters"] == {"eu": [0, 1], "us": [2]}
    assert [(entry["processors"], entry["cluster"]) for entry in document["operators"]] == [([0, 1], "eu")]


def test_results_are_told_from_the_combinations_they_are_among(made: Fabricated) -> None:
    plan = made.checkpoint.plan(1)
    plan["queries"]["query"]["query"]["residual predicate"] = "`o.v` < `p.v`"
    write_file(made.checkpoint.path / "plans" / "000001.json", encode_document(plan))
    assert (
        "42, of 42 combinations before the residual predicate since the"
        in run(app, ["inspect", str(made.checkpoint.path)]).stdout
    )

    last = made.checkpoint.read_step(4)
    uncounted = replace(last, totals={**last.totals, "results": {"query": None}})
    write_file(made.checkpoint.path / "steps" / "0000000004.json", encode_document(uncounted.to_json()))
    shown = run(app, ["inspect", str(made.checkpoint.path)]).stdout
    assert "not counted, of 42 combinations before the residual predicate since the beginning" in shown
    assert survey(made.checkpoint.path, __version__).document()["queries"][0]["results"] is None


def test_the_document_tells_state_inputs_groups_and_steps(made: Fabricated) -> None:
    shown = run(app, ["inspect", "--json", str(made.checkpoint.path)])

    found = json.loads(shown.stdout)
    assert [step["number"] for step in found["steps"]] == [3, 4]
    assert [(spine["processor"], spine["input"]) for spine in found["spines"]] == [
        (0, "o"),
        (0, "p"),
        (1, "o"),
        (1, "p"),
    ]
    assert all(spine["rows"] == 3 * ROWS and spine["runs"] == 3 for spine in found["spines"])
    assert sum(group["rows"] for group in found["groups"]) == 4 * 3 * ROWS
    assert [group["processors"] for group in found["groups"]] == [[0]] * (GROUPS // 2) + [[1]] * (GROUPS // 2)
    orders, payments = found["inputs"]
    assert (orders["newest"], orders["watermark"], orders["late"]) == (NEWEST, NEWEST - 10_000_000, 3)
    assert (payments["newest"], payments["watermark"], payments["rejected"]) == (None, None, 1)
    assert found["disk"]["state"] == sum(spine["bytes"] for spine in found["spines"])
    assert found["run"]["alive"] is True
    assert found["damage"] == []
    assert found["unreferenced"] == []


def test_bytes_of_groups_add_up_to_the_bytes_of_the_state(made: Fabricated) -> None:
    found = survey(made.checkpoint.path, __version__)

    assert sum(group.bytes for group in found.groups) == pytest.approx(sum(s.bytes for s in found.spines), abs=GROUPS)


def test_every_group_has_a_line_of_its_own_if_asked_for(made: Fabricated) -> None:
    shown = run(app, ["inspect", "--groups", str(made.checkpoint.path)])

    assert sum("█" in line or "▌" in line for line in shown.stdout.splitlines()) == GROUPS


def test_the_newest_events_are_shown_if_asked_for(made: Fabricated) -> None:
    path = str(made.checkpoint.path)
    events = open_log(made.checkpoint)
    for number in range(20):
        events.add(EventKind.SPILL, f"{number} groups of [a] pushed", groups=[number])

    assert "pushed" not in run(app, ["inspect", path]).stdout
    assert json.loads(run(app, ["inspect", path, "--json"]).stdout)["events"] == []
    lines = [line for line in run(app, ["inspect", path, "--events", "2"]).stdout.splitlines() if "pushed" in line]
    assert [line.split()[:2] for line in lines] == [["event", "19"], ["event", "20"]]
    assert lines[-1].rstrip().endswith("spill  19 groups of [a] pushed")
    (newest,) = json.loads(run(app, ["inspect", path, "--json", "--events", "1"]).stdout)["events"]
    assert (newest["number"], newest["kind"], newest["details"]) == (20, "spill", {"groups": [19]})


def test_events_that_are_not_there_are_no_damage(made: Fabricated) -> None:
    (made.checkpoint.path / "events").rmdir()

    shown = run(app, ["inspect", str(made.checkpoint.path), "--events", "5"])

    assert shown.exit_code == 0, shown.output


@pytest.mark.parametrize("options", [[], ["--quick"]])
def test_a_missing_state_file_is_named_and_exits_with_one(made: Fabricated, options: list[str]) -> None:
    (made.checkpoint.state / "1-3-1-0.arrow").unlink()

    shown = run(app, ["inspect", str(made.checkpoint.path), *options], env={"COLUMNS": "200"})

    assert shown.exit_code == 1
    assert "DAMAGED, 1 problem(s)" in shown.stdout
    assert "1-3-1-0.arrow is missing" in shown.stdout.replace("\n", "")


def test_a_flipped_bit_is_named_with_all_other_damage(made: Fabricated) -> None:
    path = made.checkpoint.state / "1-2-0-1.arrow"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    (made.checkpoint.state / "1-4-0-0.arrow").write_bytes(b"")

    found = survey(made.checkpoint.path, __version__)

    assert len(found.damage) == 2
    assert any("1-2-0-1.arrow is damaged" in problem for problem in found.damage)
    assert any("1-4-0-0.arrow is empty" in problem for problem in found.damage)


@pytest.mark.parametrize(
    "document", ["anabranch.json", "id.json", "steps/0000000004.json", "reports/0000000004/*-0001.json"]
)
def test_a_damaged_document_is_named_and_the_rest_is_still_shown(made: Fabricated, document: str) -> None:
    path = next(made.checkpoint.path.glob(document))
    path.write_bytes(path.read_bytes()[:-5])

    found = survey(made.checkpoint.path, __version__)

    assert len(found.damage) == 1
    assert path.name in found.damage[0]
    assert found.spines


def test_files_that_no_step_names_are_listed(made: Fabricated) -> None:
    (made.checkpoint.state / "stray.arrow").write_bytes(b"x")

    found = survey(made.checkpoint.path, __version__)

    assert found.unreferenced == ("stray.arrow",)
    assert not found.damage


def test_a_checkpoint_without_steps_is_fine(tmp_path: Path) -> None:
    Fabricated(tmp_path)

    shown = run(app, ["inspect", str(tmp_path)])

    assert shown.exit_code == 0
    assert "none committed yet" in shown.stdout


def test_files_that_vanish_because_the_run_goes_on_are_no_damage(
    made: Fabricated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between our listing and our reading the run commits steps and removes everything we were about to read."""
    looks: list[str] = []

    def read_late(directory: Path, file: RunFile) -> Segment:
        if not looks:
            made.merge_all()
            made.add_step()
            made.add_step()
        looks.append(file.name)
        return map_run(directory, file)

    monkeypatch.setattr(state_files, "map_run", read_late)

    found = survey(made.checkpoint.path, __version__)

    assert not found.damage
    assert [step.number for step in found.steps] == [5, 6]


def test_a_run_that_always_moves_on_is_said_to_be_too_fast(made: Fabricated, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_too_late(directory: Path, file: RunFile) -> Segment:
        made.merge_all()
        made.add_step()
        made.add_step()
        raise CorruptStateError("gone")

    monkeypatch.setattr(state_files, "map_run", read_too_late)
    monkeypatch.setattr(surveying, "ATTEMPTS", 3)

    shown = run(app, ["inspect", str(made.checkpoint.path)])

    assert shown.exit_code == 1
    assert "moves on faster" in shown.stderr


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("absent", "absent does not exist; name the folder"),
        ("file", "file is not a folder; name the folder"),
        ("other", "other is not a checkpoint of Anabranch: it has no anabranch.json; name the folder"),
        ("run/checkpoint/steps", "it has no anabranch.json; did you mean {path}/run/checkpoint?"),
        ("run", "it has no anabranch.json; did you mean {path}/run/checkpoint?"),
    ],
)
def test_what_is_no_checkpoint_is_refused_in_one_line(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "other").mkdir()
    Fabricated(tmp_path / "run" / "checkpoint")

    shown = run(app, ["inspect", str(tmp_path / name)])

    assert shown.exit_code == 2
    assert shown.stderr.count("\n") == 1
    assert said.format(path=tmp_path) in shown.stderr


def test_a_checkpoint_of_another_version_is_not_called_damaged(made: Fabricated) -> None:
    identity = {**made.checkpoint.identity(), "engine version": "0.7"}
    write_file(made.checkpoint.path / "anabranch.json", encode_document(identity))

    shown = run(app, ["inspect", str(made.checkpoint.path)])

    assert shown.exit_code == 1
    assert "was made by Anabranch, version 0.7, and this is version" in shown.stderr


@pytest.mark.parametrize("document", ["steps/0000000004.json", "reports/0000000004/*-0001.json", "epochs/*.json"])
def test_a_document_of_another_form_is_damage_that_is_named(made: Fabricated, document: str) -> None:
    path = next(made.checkpoint.path.glob(document))
    write_file(path, encode_document({"novel": 1}))

    (problem,) = survey(made.checkpoint.path, __version__).damage

    assert "has not the form that this version of Anabranch" in problem
    assert path.parent.name in problem


def test_a_missing_folder_is_damage_and_the_remedy_is_told(made: Fabricated) -> None:
    shutil.rmtree(made.checkpoint.path / "steps")

    shown = run(app, ["inspect", str(made.checkpoint.path)], env={"COLUMNS": "200"})

    assert shown.exit_code == 1
    assert "steps is missing" in shown.stdout
    assert "Restore the checkpoint as a whole" in shown.stdout


def test_a_copy_that_somebody_made_of_a_step_is_not_taken_for_one(made: Fabricated) -> None:
    steps = made.checkpoint.path / "steps"
    shutil.copy(steps / "0000000004.json", steps / "0000000004 (copy).json")

    found = survey(made.checkpoint.path, __version__)

    assert [step.number for step in found.steps] == [3, 4]
    assert not found.damage


def test_inspecting_changes_nothing_and_starts_no_jvm(made: Fabricated) -> None:
    def state() -> dict[str, tuple[int, int]]:
        stats = {str(path): path.stat() for path in made.checkpoint.path.rglob("*")}
        return {path: (stat.st_mtime_ns, stat.st_size) for path, stat in stats.items()}

    before = state()
    shown = subprocess.run(
        [sys.executable, "-m", "anabranch.cli.main", "inspect", str(made.checkpoint.path), "--json"],
        env={"PATH": "", "JAVA_HOME": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert shown.returncode == 0, shown.stderr
    assert state() == before


def test_orders_of_joins_are_shown_as_they_were_measured_last(made: Fabricated) -> None:
    shown = run(app, ["inspect", str(made.checkpoint.path), "--plans"]).stdout
    assert "nothing is on record; run.plans() and the policy ab.AutoMigrate measure them" in shown
    plans = (PlanCost("A (B C)", 40.0, 200.0, 2, 1234.0), PlanCost("(A B) C", 400.0, 2_000.0, 2, 9_876.5, 70, True))
    orders = {"query": QueryOrders(plans, {"A": 2.5}, {"A": 1_000})}
    made.checkpoint.records.write_orders(OrderCosts(1, 3, 0.0, 0.1, orders).to_json())
    shown = run(app, ["inspect", str(made.checkpoint.path), "--plans"]).stdout
    assert "orders of the joins of query, as measured after step 3 of 4: A 2.5 rows/s, 1,000 stored" in shown
    assert [line.split()[-1] for line in shown.splitlines() if line.startswith(("A (", "(A "))] == ["0", "force"]
    assert "orders of the joins" not in run(app, ["inspect", str(made.checkpoint.path)]).stdout
    (made.checkpoint.path / "orders.json").write_text("{")
    assert run(app, ["inspect", str(made.checkpoint.path), "--plans"]).exit_code == 0, "it is for people"
