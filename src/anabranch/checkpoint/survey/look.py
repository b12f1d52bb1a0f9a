"""One look at a checkpoint: its documents, each read once, and the damage that was met.

A run that goes on commits new steps and removes old files meanwhile, always in this order: first the step is committed,
then the files that no retained step needs are removed. So a missing file is damage only if the step that names it is
still among the retained ones after the look; otherwise the look has to begin again from the newer steps.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from anabranch.checkpoint.folder.directory import Checkpoint
from anabranch.checkpoint.folder.retention import RETAINED_STEPS
from anabranch.checkpoint.step import Step
from anabranch.errors import CheckpointError, CorruptStateError
from anabranch.observe.inspection import RunSummary
from anabranch.state.manifest import Manifest
from anabranch.state.store import Json, read_document


class MovedOnError(Exception):
    """The run committed a new step during the look, and has removed the step that was looked at."""


@dataclass(slots=True)
class Look:
    """One attempt at a survey: the documents read so far, and the damage."""

    checkpoint: Checkpoint
    version: str
    damage: list[str] = field(default_factory=list)
    steps: dict[int, Step] = field(default_factory=dict)
    manifests: dict[int, list[Manifest]] = field(default_factory=dict)
    plans: dict[int, Json] = field(default_factory=dict)
    copied: dict[int, int] = field(default_factory=dict)

    def note_damage(self, error: CorruptStateError, step: int | None = None) -> None:
        """Note damage, unless it belongs to a step that is no longer retained."""
        if step is not None and step not in self.checkpoint.steps()[-RETAINED_STEPS:]:
            raise MovedOnError
        # The rest of the text is advice for the user of a run; here only the damage counts.
        text = str(error).partition(". The run stopped")[0]
        if text not in self.damage:
            self.damage.append(text)


@contextmanager
def _of_known_form(path: Path) -> Iterator[None]:
    """Turn errors in the content of a document, whose checksum is right, into damage of its file."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        cause = f"{type(error).__name__}: {error}"
        raise CorruptStateError(f"{path} has not the form that this version of Anabranch writes ({cause})") from error


def read_identity(look: Look) -> Json:
    """Read what the checkpoint belongs to. Refused if an engine of another version made it."""
    identity: Json = {}
    for name in ("anabranch.json", "id.json"):
        path = look.checkpoint.path / name
        try:
            with _of_known_form(path):
                identity |= read_document(path)
        except CorruptStateError as error:
            look.note_damage(error)
    theirs, ours = identity.get("engine version", "unknown"), ".".join(look.version.split(".")[:2])
    if theirs != ours and not look.damage:
        raise CheckpointError(
            f"{look.checkpoint.path} was made by Anabranch, version {theirs}, and this is version {ours}, to which "
            "the files may mean something else; look at it with the version that made it"
        )
    return identity


def newest_run(look: Look) -> RunSummary | None:
    """The run that took the checkpoint last, and whether its driver is still alive."""
    for path in sorted((look.checkpoint.path / "epochs").glob("[0-9]*.json"), reverse=True):
        try:
            body = read_document(path)
            with _of_known_form(path):
                return RunSummary(int(path.stem), body["pid"], body["host"], body["time"], _is_alive(body))
        except CorruptStateError as error:
            if path.exists():
                look.note_damage(error)
    return None


def _is_alive(body: Json) -> bool | None:
    """Whether a driver is alive; None if it is on another machine. Trying its lock would be exact, but might get in a
    new run's way."""
    if body["host"] != os.uname().nodename:
        return None
    try:
        return bool(psutil.Process(body["pid"]).create_time() <= body["time"])
    except psutil.NoSuchProcess:
        return False


def read_steps(look: Look) -> None:
    """Read the retained steps with their plans and manifests into the look."""
    for number in look.checkpoint.steps()[-RETAINED_STEPS:]:
        try:
            with _of_known_form(look.checkpoint.path / "steps" / f"{number:010d}.json"):
                look.steps[number] = step = look.checkpoint.read_step(number)
            with _of_known_form(look.checkpoint.reports(number)):
                reports = look.checkpoint.reports_of(step)
                manifests = [manifest for _, manifest in reports]
            with _of_known_form(look.checkpoint.path / "plans" / f"{step.plan:06d}.json"):
                look.plans[step.plan] = _plan(look.checkpoint.plan(step.plan))
            look.manifests[number] = manifests
            look.copied[number] = sum(sum(report.copied) for report, _ in reports)
        except CorruptStateError as error:
            look.note_damage(error, number)


def _plan(document: Json) -> Json:
    """A plan's document; an error if it lacks the entries that a survey needs."""
    for entry in document["queries"].values():
        entry["query"]["residual predicate"], entry["since"]
    for port in document["ports"]:
        port["holds"]
    return document
