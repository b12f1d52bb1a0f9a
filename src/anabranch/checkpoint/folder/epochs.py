"""Epochs: every run that takes a checkpoint gets the next one, and only the newest may commit.

The lock keeps a second run out on one machine. Epochs also stop a driver that lost its lock without noticing, such as
one whose machine slept while another took over.
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from anabranch.checkpoint.folder.numbered import numbers
from anabranch.errors import CheckpointInUseError
from anabranch.state.store import create_file, encode_document


def open_epoch(checkpoint: Path) -> int:
    """Take the next epoch and return its number; the files of earlier ones are removed."""
    folder = checkpoint / "epochs"
    taken = numbers(folder)
    epoch = max(taken, default=0) + 1
    body = {"pid": os.getpid(), "host": socket.gethostname(), "time": time.time()}
    if not create_file(folder / f"{epoch:010d}.json", encode_document(body)):
        raise CheckpointInUseError(f"checkpoint {checkpoint} is being taken over by another run at this moment")
    for earlier in taken:
        (folder / f"{earlier:010d}.json").unlink(missing_ok=True)
    return epoch


def check_newest(checkpoint: Path, epoch: int) -> None:
    """Stop a run of this epoch if another one has taken the checkpoint over."""
    newest = max(numbers(checkpoint / "epochs"), default=0)
    if newest != epoch:
        raise CheckpointInUseError(
            f"checkpoint {checkpoint} was taken over by a newer run (epoch {newest}, this run has {epoch}); "
            "this run stops without committing"
        )


def epoch_of(name: str) -> int:
    """The epoch of the run that wrote a run file, complete or not; 0 if it is not a file of ours."""
    first = name.removeprefix(".").partition("-")[0]
    return int(first) if first.isdecimal() else 0
