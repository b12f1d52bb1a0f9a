"""The checkpoint at the path that a command gets as an argument, or an error that says why the folder is none."""

from __future__ import annotations

from pathlib import Path

from anabranch.checkpoint.folder.directory import Checkpoint
from anabranch.errors import ConfigError

NAME_IT = "name the folder that a run was given as its checkpoint"


def existing_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in a folder; refused if there is none."""
    checkpoint = Checkpoint(path)
    if checkpoint.exists():
        return checkpoint
    folder = checkpoint.path
    if not folder.exists():
        raise ConfigError(f"{folder} does not exist; {NAME_IT}")
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder; {NAME_IT}")
    around = [folder.parent, *sorted(entry for entry in folder.iterdir() if entry.is_dir())]
    near = [other for other in around if Checkpoint(other).exists()]
    hint = f"did you mean {near[0]}?" if near else NAME_IT
    raise ConfigError(f"{folder} is not a checkpoint of Anabranch: it has no anabranch.json; {hint}")
