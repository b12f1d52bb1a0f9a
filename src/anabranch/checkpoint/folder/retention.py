"""Retention: a checkpoint keeps the last two steps, and the files that they name.

Files of a newer epoch than the run's own stay: an older driver never removes what a newer one has written. The names
of run files begin with the epoch of their writer.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from anabranch.checkpoint.folder.epochs import epoch_of
from anabranch.checkpoint.folder.numbered import numbers
from anabranch.state.manifest import Manifest

RETAINED_STEPS = 2


def remove_unreferenced(checkpoint: Path, epoch: int, manifests: Mapping[int, Sequence[Manifest]]) -> list[int]:
    """Delete all files that no retained step refers to, and return the numbers of the retained steps.

    `manifests` are those of the last steps, by number.
    """
    retained = sorted(manifests)[-RETAINED_STEPS:]
    files = {name for number in retained for manifest in manifests[number] for name in manifest.files()}
    for entry in os.scandir(checkpoint / "state"):
        if entry.name not in files and epoch_of(entry.name) <= epoch:
            os.unlink(entry.path)
    for number in numbers(checkpoint / "steps"):
        if number < retained[0]:
            os.unlink(checkpoint / "steps" / f"{number:010d}.json")
    for directory in (checkpoint / "reports").iterdir():
        if directory.name.isdigit() and int(directory.name) < retained[0]:
            shutil.rmtree(directory, ignore_errors=True)
    return retained
