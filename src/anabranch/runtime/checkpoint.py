"""The checkpoint: who may write it, what it belongs to, and the last step that counts.

    anabranch.json      identity: what groups, settings of the session and engine version the state belongs to
    id.json             a name for this checkpoint, part of the names of files it writes elsewhere
    lock                held by the running driver (flock), so that a second run is refused at once
    epochs/N.json       one per run; a driver whose epoch is no longer the newest may not commit
    plans/N.json        what is answered: queries, and what manifests and steps list in which order
    steps/N.json        a committed step: created once, atomically, naming its plan and the reports it consists of
    reports/N/*.json    what processors reported in step N: manifest and counts
    state/*.arrow       run files
    run.json            what the last run was made of: settings, streams, queries, sinks
    extra.json          the last step that was to be made without a batch: what it does, and its number among these
    spark/N/            Spark's own offsets and commits, under plan N

A step is committed by creating its file, nothing else. The last two steps are retained; whatever no retained step
refers to is removed after a commit. A plan is in force from when Spark's folder for it is there; the next step is made
under it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from anabranch.errors import CheckpointError, CheckpointInUseError, CorruptStateError, ResumeMismatchError
from anabranch.manager.relocation import Relocation
from anabranch.plan.placement import Placement, as_blocks, from_blocks
from anabranch.runtime.offsets import copy_logs
from anabranch.runtime.query_settings import changed_settings
from anabranch.runtime.report import Report, combine, parse_report
from anabranch.state.failpoints import failpoint
from anabranch.state.groups import GroupSet
from anabranch.state.manifest import Manifest
from anabranch.state.spill import CleanUp
from anabranch.state.store import Json, create_file, encode_document, local_path, read_document, write_file

RETAINED_STEPS = 2
EXTRA = "extra.json"
RECORD = "run.json"


@dataclass(frozen=True, slots=True)
class Extra:
    """A step without a batch: at the end of the input, or to clean up. `number` counts them; what it cleans up is by
    operator of a plan."""

    number: int
    ending: bool
    clean_up: dict[int, CleanUp]
    plan: int


@dataclass(frozen=True, slots=True)
class Asked:
    """How many processors a program wants, and where it wants each operator."""

    processors: int
    placements: tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """A committed step. `newest` is the greatest event time seen per source; totals count since the beginning.

    State is listed on `processors`; `placements` say where each operator is. What is older than `settled` has been
    answered, per grouping. `extra` counts the steps so far that had no batch; each was delivered under an id of its
    own, so later batches are moved up by it. `clean_up` is what the next batch has to clean up in passing, by operator,
    and `hold` are the groups whose rows wait in it. `moving` are relocations under way. `asked` is what the program
    wanted at first: as long as it wants the same, what has moved since stays where it is.
    """

    number: int
    batch_id: int
    epoch: int
    processors: int
    placements: tuple[Placement, ...]
    reports: tuple[str, ...]
    newest: tuple[int | None, ...]
    totals: dict[str, Any]
    plan: int
    settled: tuple[int | None, ...] = ()
    extra: int = 0
    clean_up: dict[int, CleanUp] = field(default_factory=dict)
    hold: dict[int, GroupSet] = field(default_factory=dict)
    moving: tuple[Relocation, ...] = ()
    asked: Asked = Asked(0, ())

    def to_json(self) -> Json:
        """As committed."""
        body = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {
            **body,
            "placements": [as_blocks(placement) for placement in self.placements],
            "clean_up": _clean_up_to_json(self.clean_up),
            "hold": {str(n): [groups.count, groups.to_text()] for n, groups in self.hold.items()},
            "moving": [relocation.to_json() for relocation in self.moving],
            "asked": [self.asked.processors, [as_blocks(placement) for placement in self.asked.placements]],
        }

    @classmethod
    def from_json(cls, body: Json) -> Step:
        """The inverse of `to_json`."""
        return cls(
            body["number"],
            body["batch_id"],
            body["epoch"],
            body["processors"],
            tuple(from_blocks(blocks) for blocks in body["placements"]),
            tuple(body["reports"]),
            tuple(body["newest"]),
            body["totals"],
            body["plan"],
            tuple(body["settled"]),
            body["extra"],
            _clean_up_from_json(body["clean_up"]),
            {int(n): GroupSet.from_text(count, text) for n, (count, text) in body["hold"].items()},
            tuple(Relocation.from_json(entry) for entry in body["moving"]),
            Asked(body["asked"][0], tuple(from_blocks(blocks) for blocks in body["asked"][1])),
        )


class Checkpoint:
    """A checkpoint directory, open for reading; `take` makes it writable by this driver alone."""

    def __init__(self, location: str | os.PathLike[str]) -> None:
        """Name a checkpoint; nothing is created yet."""
        self.path = local_path(location)
        self.state = self.path / "state"
        self.plan_number = 0
        self._epoch = 0
        self._lock: int | None = None

    def exists(self) -> bool:
        """Whether a run has ever used this directory as its checkpoint."""
        return (self.path / "anabranch.json").exists()

    @property
    def spark(self) -> Path:
        """Where Spark keeps its logs under the plan that is in force."""
        return self._spark(self.plan_number)

    def take(self, identity: Json) -> None:
        """Become the one writer, after checking that the checkpoint belongs to such an engine."""
        if self.path.exists() and not self.path.is_dir():
            raise CheckpointError(f"checkpoint {self.path} is not a directory; choose another path")
        if self.path.exists() and any(self.path.iterdir()) and not (self.path / "lock").exists():
            raise CheckpointError(
                f"checkpoint {self.path} is not empty and was not written by Anabranch; choose another directory"
            )
        self.path.mkdir(parents=True, exist_ok=True)
        self._acquire_lock()
        try:
            for directory in ("state", "steps", "reports", "epochs", "plans", "spark"):
                (self.path / directory).mkdir(exist_ok=True)
            create_file(self.path / "id.json", encode_document({"id": uuid.uuid4().hex}))
            self._check_identity(identity)
            self.plan_number = max((n for n in self.plans() if self._spark(n).exists()), default=0)
            self._check_spark_log()
            self._open_epoch()
        except BaseException:
            self.release()
            raise

    @property
    def tag(self) -> str:
        """A short name of this very checkpoint, for files that it writes elsewhere."""
        return str(read_document(self.path / "id.json")["id"])[:8]

    def release(self) -> None:
        """Let another run have the checkpoint."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def identity(self) -> Json:
        """What the checkpoint says it belongs to."""
        return read_document(self.path / "anabranch.json")

    def plans(self) -> list[int]:
        """The numbers of the plans that are there, ascending."""
        return _numbers(self.path / "plans")

    def plan(self, number: int) -> Json:
        """The document of a plan."""
        return read_document(self.path / "plans" / f"{number:06d}.json")

    @property
    def next_plan(self) -> int:
        """The number that a new plan will have."""
        return max(self.plans(), default=0) + 1

    def adopt(self, document: Json) -> int:
        """Put a plan in force, unless it is already, and return its number.

        Spark goes on where it was: at the same offsets of every stream that it has read before.
        """
        document = json.loads(json.dumps(document))
        if self.plan_number and self.plan(self.plan_number) == document:
            return self.plan_number
        if not self.steps():
            # Nothing counts yet: queries that failed in their first batch may be corrected.
            for path in (*(self.path / "plans").iterdir(), *(self.path / "spark").iterdir()):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            self.plan_number = 0
        before, number = self.plan_number, self.next_plan
        write_file(self.path / "plans" / f"{number:06d}.json", encode_document(document))
        failpoint("plan.described")
        if before:
            read = self.plan(before)["read"], document["read"]
            copy_logs(self._spark(before), self._spark(number), *read)
        else:
            self._spark(number).mkdir(parents=True)
        failpoint("plan.adopted")
        self.plan_number = number
        needed = min([self.read_step(n).plan for n in self.steps()], default=number)
        for old in (n for n in self.plans() if n < needed):
            shutil.rmtree(self._spark(old), ignore_errors=True)
            (self.path / "plans" / f"{old:06d}.json").unlink()
        return number

    def retreat(self, number: int) -> None:
        """Put a former plan in force again: what was adopted since never counted, as no batch was begun under it."""
        for later in (n for n in self.plans() if n > number):
            shutil.rmtree(self._spark(later), ignore_errors=True)
            (self.path / "plans" / f"{later:06d}.json").unlink()
        self.plan_number = number

    def _spark(self, number: int) -> Path:
        return self.path / "spark" / f"{number:06d}"

    def steps(self) -> list[int]:
        """The numbers of the retained steps, ascending."""
        return _numbers(self.path / "steps")

    def read_step(self, number: int) -> Step:
        """A committed step."""
        return Step.from_json(read_document(self.path / "steps" / f"{number:010d}.json"))

    def last_step(self) -> Step | None:
        """The newest committed step, if there is one."""
        numbers = self.steps()
        return self.read_step(numbers[-1]) if numbers else None

    def reports_of(self, step: Step) -> list[tuple[Report, Manifest]]:
        """What the processors reported in a committed step, by processor."""
        return combine(parse_report(read_document(self.reports(step.number) / name)) for name in step.reports)

    def reports(self, number: int) -> Path:
        """Where the processors of a step put their reports."""
        return self.path / "reports" / f"{number:010d}"

    def prepare_step(self, number: int) -> Path:
        """An empty place for the reports of a step, free of what a crashed attempt may have left."""
        directory = self.reports(number)
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        return directory

    def next_step(self, last: Step | None, **changes: Any) -> Step:
        """A step that follows `last`, under this run's epoch: what is not changed stays."""
        if last is None:
            return Step(number=1, epoch=self._epoch, **changes)
        return replace(last, number=last.number + 1, epoch=self._epoch, **changes)

    def commit(self, step: Step) -> None:
        """Make `step` the last one. Refused if another run has taken the checkpoint over."""
        self.check_epoch()
        path = self.path / "steps" / f"{step.number:010d}.json"
        if not create_file(path, encode_document(step.to_json())) and self.read_step(step.number) != step:
            raise CheckpointInUseError(f"{path} was written by another run; this run stops without committing")

    def announce(self, extra: Extra) -> None:
        """Put on record that a step without a batch is to be made, before anything is done about it."""
        clean_up = _clean_up_to_json(extra.clean_up)
        body = {"number": extra.number, "ending": extra.ending, "plan": extra.plan, "clean_up": clean_up}
        write_file(self.path / EXTRA, encode_document(body))

    def announced(self, last: Step | None) -> Extra | None:
        """A step without a batch that is on record and was not committed."""
        path = self.path / EXTRA
        if last is None or not path.exists():
            return None
        body = read_document(path)
        extra = Extra(body["number"], body["ending"], _clean_up_from_json(body["clean_up"]), body["plan"])
        return extra if last.extra < extra.number else None

    def record(self, body: Json) -> None:
        """Put on record what the run is made of."""
        write_file(self.path / RECORD, encode_document(body))

    def recorded(self) -> Json:
        """What the last run was made of."""
        if not (self.path / RECORD).exists():
            raise CheckpointError(f"{self.path} has no record of what its run was made of; start its program again")
        return read_document(self.path / RECORD)

    def has_planned(self, batch_id: int) -> bool:
        """Whether Spark has begun a batch after this one."""
        return (self.spark / "offsets" / str(batch_id + 1)).exists()

    def check_epoch(self) -> None:
        """Stop this run if another one has taken the checkpoint over."""
        newest = max(_numbers(self.path / "epochs"), default=0)
        if newest != self._epoch:
            raise CheckpointInUseError(
                f"checkpoint {self.path} was taken over by a newer run (epoch {newest}, this run has {self._epoch}); "
                "this run stops without committing"
            )

    def remove_unreferenced(self, manifests: Mapping[int, Sequence[Manifest]]) -> None:
        """Delete what no retained step refers to; `manifests` are those of the retained steps, by number."""
        retained = sorted(manifests)[-RETAINED_STEPS:]
        files = {name for number in retained for manifest in manifests[number] for name in manifest.files()}
        for entry in os.scandir(self.state):
            if entry.name not in files:
                os.unlink(entry.path)
        for number in self.steps():
            if number < retained[0]:
                os.unlink(self.path / "steps" / f"{number:010d}.json")
        for directory in (self.path / "reports").iterdir():
            if directory.name.isdigit() and int(directory.name) < retained[0]:
                shutil.rmtree(directory, ignore_errors=True)

    def _acquire_lock(self) -> None:
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise CheckpointInUseError(
                f"checkpoint {self.path} is in use by another run ({holder or 'unknown'}); stop that run first, "
                "or give this one a checkpoint of its own"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        self._lock = descriptor

    def _check_identity(self, identity: Json) -> None:
        path = self.path / "anabranch.json"
        if not self.steps() and not (path.exists() and self.identity() == identity):
            # Nothing counts yet.
            for folder in ("plans", "spark"):
                shutil.rmtree(self.path / folder)
                (self.path / folder).mkdir()
            write_file(path, encode_document(identity))
            return
        known, now = self.identity(), dict(identity)
        found = changed_settings(known.pop("settings", {}), now.pop("settings", {}))
        found += [f"{what} was {before!r} and is now {after!r}" for what, before, after in differences(known, now)]
        if found:
            raise ResumeMismatchError(
                f"checkpoint {self.path} cannot be resumed: {'; '.join(found)}. Run with what it was made with, or "
                "choose a new checkpoint directory"
            )

    def _check_spark_log(self) -> None:
        """Without its log Spark would count batches from 0 again, and 0 may be the one that is done."""
        last = self.last_step()
        if last is not None and not (self.spark / "offsets" / str(last.batch_id)).exists():
            raise CorruptStateError(
                f"{self.spark / 'offsets'} has no entry for batch {last.batch_id}, the last that was committed. Part "
                "of the checkpoint was removed or restored from another time; restore it as a whole"
            )

    def _open_epoch(self) -> None:
        directory = self.path / "epochs"
        taken = _numbers(directory)
        self._epoch = max(taken, default=0) + 1
        body = {"pid": os.getpid(), "host": socket.gethostname(), "time": time.time()}
        if not create_file(directory / f"{self._epoch:010d}.json", encode_document(body)):
            raise CheckpointInUseError(f"checkpoint {self.path} is being taken over by another run at this moment")
        for epoch in taken:
            (directory / f"{epoch:010d}.json").unlink(missing_ok=True)


def _clean_up_to_json(clean_up: Mapping[int, CleanUp]) -> Json:
    return {str(operator): cleaning.to_json() for operator, cleaning in clean_up.items()}


def _clean_up_from_json(body: Json) -> dict[int, CleanUp]:
    return {int(operator): CleanUp.from_json(cleaning) for operator, cleaning in body.items()}


def check_batch(last: Step | None, batch_id: int, path: Path) -> bool:
    """Whether a batch that Spark delivers is the next one (True) or a repetition of the last (False)."""
    done = last.batch_id if last else -1
    if batch_id == done:
        return False
    if batch_id == done + 1:
        return True
    raise CorruptStateError(
        f"checkpoint {path}: Spark delivers batch {batch_id}, but the engine's last committed batch is {done}. "
        "Part of the checkpoint was removed or restored from another time; restore it as a whole"
    )


def _numbers(directory: Path) -> list[int]:
    """The numbers that name the files of a directory, ascending; a copy made by hand (`1 (old).json`) is not one."""
    return sorted(int(path.stem) for path in directory.glob("*.json") if path.stem.isdecimal())


def differences(known: Any, now: Any, where: str = "") -> list[tuple[str, Any, Any]]:
    """Where two documents differ: the place, and what stands there in each."""
    if isinstance(known, dict) and isinstance(now, dict):
        return [
            found
            for name in sorted(known.keys() | now.keys())
            for found in differences(known.get(name), now.get(name), f"{where}, {name}" if where else name)
        ]
    return [] if known == now else [(where, known, now)]
