"""The lock of a checkpoint: held by the driver that runs, so that a second run is refused at once.

The operating system releases it when the process dies, however that happens. Its content names the process, for the
error that the second run gets.
"""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path

from anabranch.errors import CheckpointInUseError

LOCK = "lock"
HOLDER = b"process "  # how the content of the lock begins


class Lock:
    """The lock of one checkpoint folder, not held at first."""

    def __init__(self, folder: Path) -> None:
        """The lock of the checkpoint in this folder."""
        self._folder = folder
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Hold the lock; refused if another process holds it."""
        descriptor = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise CheckpointInUseError(
                f"checkpoint {self._folder} is in use by another run ({holder or 'unknown'}); stop that run first, "
                "or give this one a checkpoint of its own"
            ) from None
        self._descriptor = descriptor
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, HOLDER + f"{os.getpid()} on {socket.gethostname()}".encode(), 0)

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def is_lock(path: Path) -> bool:
    """Whether a file can be a lock of ours: empty, or naming a process."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(HOLDER)) in (b"", HOLDER)
