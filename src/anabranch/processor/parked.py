"""Find the reports of earlier rounds of the same processor, which name the runs with rows for this round.

The names of reports begin with the epoch of the run that asked for them and with the number of the trial, so what a
worker writes that has outlived its driver is never taken for the work of this run, nor is what was reported before a
step was made again. The report of an earlier round is complete before this round begins, but a directory on a network
mount may be listed as it was some seconds ago: so a report that is not listed is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from anabranch.errors import CorruptStateError
from anabranch.processor.tasks import StepTask

PATIENCE = 60.0  # seconds; network mounts remember directories for up to 30 or 60
PAUSE = 0.2


def round_prefix(task: StepTask, number: int) -> str:
    """The beginning of the names of all files that an attempt at a round writes."""
    return f"{task.epoch:06d}-{task.step:010d}-{task.trial}-{number:02d}-{task.processor:04d}-"


def find_reports(task: StepTask, rounds: int) -> Iterator[Path]:
    """The processor's reports of the first `rounds` rounds of this step, any attempt's of each."""
    for number in range(rounds):
        yield _find(Path(task.reports), round_prefix(task, number))


def _find(directory: Path, prefix: str) -> Path:
    deadline = time.monotonic() + PATIENCE
    while True:
        path = min(directory.glob(f"{prefix}*.json"), default=None)
        if path is not None:
            return path
        if time.monotonic() > deadline:
            raise CorruptStateError(f"{directory} has no report {prefix}*; the step cannot go on")
        time.sleep(PAUSE)
