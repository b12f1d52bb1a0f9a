"""Which folders count as a checkpoint: ours, in whatever moment a run died, and nobody else's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from anabranch.checkpoint.folder import directory as checkpoint_module
from anabranch.checkpoint.folder.directory import Checkpoint
from anabranch.errors import CheckpointError
from anabranch.state.failpoints import FailpointError

IDENTITY = {"groups": 16}


def everything_in(folder: Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")
    }


@pytest.mark.parametrize(
    "files",
    [
        {"lock": "", "plans/house.dwg": "a plan", "spark/plug.txt": "a part"},
        {"lock": "held by somebody else"},
        {"lock/key": ""},
        {"id.json": '{"id": 7}', "lock": ""},
        {"id.json/x": ""},
        {"data.csv": "1"},
        {"lock": "process 7 on here", "state/0.arrow": "rows"},
    ],
    ids=lambda files: " ".join(files),
)
def test_a_folder_that_is_not_ours_is_refused_untouched(tmp_path: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    before = everything_in(tmp_path)
    with pytest.raises(CheckpointError, match="was not written by Anabranch"):
        Checkpoint(tmp_path).take(IDENTITY)
    assert everything_in(tmp_path) == before


class Died(BaseException):
    """The process dies here."""


def test_a_run_that_died_at_any_of_its_first_moments_leaves_a_folder_that_the_next_one_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dies before the nth change that it makes to the file system, for every n."""
    names = ["open", "ftruncate", "pwrite", "link", "unlink", "replace", "mkdir"]
    real = {name: getattr(os, name) for name in names}
    moments = 0
    left = -1

    def dying(name: str) -> object:
        def call(*arguments: object, **named: object) -> object:
            nonlocal left
            left -= 1
            if left == 0:
                raise Died
            return real[name](*arguments, **named)

        return call

    for name in names:
        monkeypatch.setattr(os, name, dying(name))
    while True:
        folder, left = tmp_path / str(moments), moments + 1
        checkpoint = Checkpoint(folder)
        try:
            checkpoint.take(IDENTITY)
            checkpoint.claim()
        except Died:
            left = -1
            checkpoint.release()
            again = Checkpoint(folder)
            again.take(IDENTITY)
            again.claim()
            assert again.identity() == IDENTITY
            again.release()
            moments += 1
        else:
            checkpoint.release()
            break
    assert moments > 15
    left = -1
    assert checkpoint_module.Checkpoint(folder).exists()


def test_an_id_that_was_not_complete_does_not_make_a_folder_somebody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_FAILPOINT", "store.write=raise@once:" + str(tmp_path / "died"))
    folder = tmp_path / "checkpoint"
    with pytest.raises(FailpointError):
        Checkpoint(folder).take(IDENTITY)
    assert any(name.startswith(".id.json.") for name in os.listdir(folder))
    resumed = Checkpoint(folder)
    resumed.take(IDENTITY)
    resumed.release()
