"""The identity of a checkpoint: which folder counts as one of ours, and which engine may resume it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from anabranch.checkpoint.folder.lock import LOCK, is_lock
from anabranch.checkpoint.settings import changed_settings
from anabranch.errors import CheckpointError, CorruptStateError, ResumeMismatchError
from anabranch.state.store import Json, read_document

IDENTITY = "anabranch.json"
ID = "id.json"


def tag_of(path: Path) -> str:
    """A short name of the checkpoint in a folder, for the names of files that it writes elsewhere."""
    return str(read_document(path / ID)["id"])[:8]


def check_ours(path: Path) -> None:
    """Refuse a folder that is not a checkpoint, before anything in it is touched.

    A checkpoint has an identity, or at least an id. A run that died in its first moments has left an empty folder,
    or one with nothing but a lock and an id that was not complete.
    """
    if path.exists() and not path.is_dir():
        raise CheckpointError(f"checkpoint {path} is not a directory; choose another path")
    if (path / IDENTITY).exists() or not path.exists():
        return
    with suppress(CorruptStateError, IsADirectoryError):
        if tag_of(path):
            return
    for entry in path.iterdir():
        if not (entry.name.startswith(f".{ID}.") or (entry.name == LOCK and is_lock(entry))):
            raise CheckpointError(
                f"checkpoint {path} is not empty and was not written by Anabranch: it has {entry.name}, but no "
                f"{IDENTITY} and no {ID} of ours. Nothing was changed; choose another directory"
            )


def check_same(path: Path, recorded: Json, identity: Json) -> None:
    """Refuse to resume a checkpoint with another identity than the recorded one."""
    before, now = dict(recorded), dict(identity)
    changes = changed_settings(before.pop("settings", {}), now.pop("settings", {}))
    changes += [f"{what} was {was!r} and is now {new!r}" for what, was, new in differences(before, now)]
    if changes:
        raise ResumeMismatchError(
            f"checkpoint {path} cannot be resumed: {'; '.join(changes)}. Run with what it was made with, or "
            "choose a new checkpoint directory"
        )


def differences(before: Any, now: Any, where: str = "") -> list[tuple[str, Any, Any]]:
    """The differences of two documents: the place of each, and both values."""
    if isinstance(before, dict) and isinstance(now, dict):
        return [
            difference
            for name in sorted(before.keys() | now.keys())
            for difference in differences(before.get(name), now.get(name), f"{where}, {name}" if where else name)
        ]
    return [] if before == now else [(where, before, now)]
