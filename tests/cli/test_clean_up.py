"""`anabranch clean-up` says what it cannot do, or need not do, before it starts Spark."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from anabranch.checkpoint.folder.directory import Checkpoint
from anabranch.cli.main import app
from anabranch.state.groups import GroupSet
from tests.checkpoint.fabricated import GROUPS, Fabricated

RECORD = {
    "session settings": {"spark.sql.session.timeZone": "UTC"},
    "groups": GROUPS,
    "operators": [],
    "queries": {"query": {"sink": {"format": "parquet"}}},
}


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(**_: Any) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(import_module("anabranch.cli.clean_up"), "embedded_spark", started)


def stopped(path: Path, record: dict[str, Any], *, owes: bool) -> Checkpoint:
    """The checkpoint of a run that was stopped after a batch."""
    made = Fabricated(path)
    checkpoint, last = made.checkpoint, made.add_step()
    offsets = checkpoint.spark / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").touch()
    if owes:
        checkpoint.commit(checkpoint.next_step(last, hold={0: GroupSet.of(GROUPS, [1])}))
    checkpoint.records.write_run(record)
    return checkpoint


def clean_up(path: Path) -> Any:
    return CliRunner().invoke(app, ["clean-up", str(path)])


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    shown = clean_up(tmp_path)

    assert shown.exit_code == 2
    assert "is not a checkpoint of Anabranch" in shown.stderr


def test_where_nothing_is_owed_it_says_so(tmp_path: Path) -> None:
    stopped(tmp_path, RECORD, owes=False).release()
    shown = clean_up(tmp_path)

    assert (shown.exit_code, shown.stdout) == (0, "nothing was owed\n")


def test_a_checkpoint_in_use_is_refused(tmp_path: Path) -> None:
    checkpoint = stopped(tmp_path, RECORD, owes=True)
    shown = clean_up(tmp_path)
    checkpoint.release()

    assert shown.exit_code == 1
    assert "is in use by another run" in shown.stderr


def test_a_batch_under_way_is_left_to_the_run(tmp_path: Path) -> None:
    checkpoint = stopped(tmp_path, RECORD, owes=True)
    (checkpoint.spark / "offsets" / "1").touch()
    checkpoint.release()
    shown = clean_up(tmp_path)

    assert shown.exit_code == 1
    assert "Start the run again" in shown.stderr


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"queries": {"alerts": {"sink": None}}}, "the answer to 'alerts' goes where only its program can write"),
        ({"operators": ["sessions"]}, "'sessions' is an operator of a program"),
    ],
)
def test_what_only_the_program_can_deliver_is_left_to_it(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    stopped(tmp_path, RECORD | change, owes=True).release()
    shown = clean_up(tmp_path)

    assert shown.exit_code == 1
    assert says in shown.stderr
    assert "start its program again" in shown.stderr


def test_what_can_be_delivered_needs_spark(tmp_path: Path) -> None:
    stopped(tmp_path, RECORD, owes=True).release()

    assert "Spark was started" in clean_up(tmp_path).stderr
