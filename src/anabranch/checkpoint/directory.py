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
    orders.json         what orders of joins were said to cost last, for people
    events/*.jsonl      what happened, for people (`journal`)
    staging/            files that Spark writes for file sinks, until they are published
    extra.json          the last step that was to be made without a batch: what it does, and its number among these
    spark/N/            Spark's own offsets and commits, under plan N

A step is committed by creating its file, nothing else. A run that takes the checkpoint over first creates the next
step's file itself, as one that says nothing (`CLAIM`): if an older driver comes back, its step is either there already,
and the new run goes on from it, or it can be created no more. Only then the new run removes anything. The last two
steps are retained; whatever no retained step refers to is removed after a commit, but for files of a newer epoch than
the run's own, which the names of run files begin with: an older driver never removes what a newer one has written.

A plan is in force from when Spark's folder for it is there; the next step is made under it. A plan that Spark's query
need not be started anew for names the plan whose folder it shares.
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
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from anabranch.checkpoint.offsets import copy_logs
from anabranch.checkpoint.settings import changed_settings
from anabranch.checkpoint.step import Announced, Delivery, End, Step, clean_up_from_json, clean_up_to_json
from anabranch.errors import CheckpointError, CheckpointInUseError, CorruptStateError, ResumeMismatchError
from anabranch.state.failpoints import failpoint
from anabranch.state.manifest import Manifest
from anabranch.state.report import Report, combine, parse_report
from anabranch.state.store import (
    Json,
    create_file,
    encode_document,
    local_path,
    make_folder,
    read_document,
    sync,
    write_file,
)

RETAINED_STEPS = 2
CLAIM = "claimed by epoch"
IDENTITY = "anabranch.json"
ID = "id.json"
LOCK = "lock"
HOLDER = b"process "  # how the content of the lock begins
EXTRA = "extra.json"
RECORD = "run.json"
ORDERS = "orders.json"
LOGS = "logs"  # in a plan: the number of the plan whose logs Spark goes on with


class Checkpoint:
    """A checkpoint directory, open for reading; `take` makes it writable by this driver alone."""

    def __init__(self, location: str | os.PathLike[str]) -> None:
        """Name a checkpoint; nothing is created yet."""
        self.path = local_path(location)
        self.state = self.path / "state"
        self.plan_number = 0
        self.epoch = 0
        self._identity: Json = {}
        self._number = 0  # of the last step that was committed or claimed
        self._is_claimed = False
        self._lock: int | None = None

    def exists(self) -> bool:
        """Whether a run has ever used this directory as its checkpoint."""
        return (self.path / IDENTITY).exists()

    @property
    def scratch(self) -> Path:
        """Where files may lie for the time of a step."""
        return self.path / "staging"

    @property
    def spark(self) -> Path:
        """Where Spark keeps its logs under the plan that is in force."""
        return self._spark(self.plan_number)

    def take(self, identity: Json) -> None:
        """Become the one writer, after checking that the checkpoint belongs to such an engine."""
        if self.path.exists() and not self.path.is_dir():
            raise CheckpointError(f"checkpoint {self.path} is not a directory; choose another path")
        self._check_ours()
        make_folder(self.path)
        try:
            self._acquire_lock()
            # First of all, so that a crash leaves nothing behind that could be taken for somebody else's folder.
            create_file(self.path / ID, encode_document({"id": uuid.uuid4().hex}))
            for directory in ("state", "steps", "reports", "epochs", "plans", "spark", "events"):
                (self.path / directory).mkdir(exist_ok=True)
            sync(self.path)
            shutil.rmtree(self.scratch, ignore_errors=True)
            self._check_identity(identity)
            self._open_epoch()
            self._identity = identity
            self._number = max(_numbers(self.path / "steps"), default=0)
            self.plan_number = max((n for n in self.plans() if self._spark(n).exists()), default=0)
            self._check_spark_log()
        except BaseException:
            self.release()
            raise

    @property
    def tag(self) -> str:
        """A short name of this very checkpoint, for files that it writes elsewhere."""
        return str(read_document(self.path / ID)["id"])[:8]

    def release(self) -> None:
        """Let another run have the checkpoint."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def identity(self) -> Json:
        """What the checkpoint says it belongs to."""
        return read_document(self.path / IDENTITY)

    def claim(self) -> None:
        """Take the number of the next step, so that no older driver can commit one any more; once, before anything is
        removed. Refused if one has committed a step since the checkpoint was taken."""
        if self._is_claimed:
            return
        path = self._step_path(self.next_number)
        if not create_file(path, encode_document({CLAIM: self.epoch})):
            raise CheckpointInUseError(f"{path} was written by an older run at this moment; start the run again")
        self._number, self._is_claimed = self.next_number, True
        if not self.steps():
            self._begin()

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

    def adopt(self, document: Json, *, same_logs: bool = False) -> int:
        """Put a plan in force, unless it is already, and return its number.

        Spark goes on where it was: at the same offsets of every stream that it has read before. With the `same_logs` it
        does so in the same query.
        """
        self.claim()
        document = _without_logs(json.loads(json.dumps(document)))
        if self.plan_number and _without_logs(self.plan(self.plan_number)) == document:
            return self.plan_number
        if same_logs:
            return self._adopt_between_batches(document)
        if not self.steps():
            # Nothing counts yet: queries that failed in their first batch may be corrected.
            self._forget_plans()
        before, number = self.plan_number, self.next_plan
        write_file(self.path / "plans" / f"{number:06d}.json", encode_document(document))
        failpoint("plan.described")
        if before:
            read = self.plan(before)["read"], document["read"]
            copy_logs(self._spark(before), self._spark(number), *read)
        else:
            make_folder(self._spark(number))
        failpoint("plan.adopted")
        self.plan_number = number
        self._forget_plans_before_steps(self.steps())
        return number

    def retreat(self, number: int) -> None:
        """Put a former plan in force again: what was adopted since never counted, as no batch was begun under it."""
        for later in (n for n in self.plans() if n > number):
            if self._logs_of(later) > number:
                shutil.rmtree(self._spark(later), ignore_errors=True)
            (self.path / "plans" / f"{later:06d}.json").unlink()
        self.plan_number = number

    def _adopt_between_batches(self, document: Json) -> int:
        """Put a plan in force whose rows Spark brings already: it shares the logs of the plan before it."""
        number = self.next_plan
        body = {**document, LOGS: self._logs_of(self.plan_number)}
        write_file(self.path / "plans" / f"{number:06d}.json", encode_document(body))
        failpoint("plan.switched")
        self.plan_number = number
        return number

    def _forget_plans_before_steps(self, steps: Sequence[int]) -> None:
        """Remove the plans from before that of the first of these steps, and logs that no other plan shares."""
        plans = self.plans()
        if len(plans) < 2:
            return
        needed = min([self.read_step(n).plan for n in steps], default=self.plan_number)
        shared = {self._logs_of(n) for n in plans if n >= needed}
        for old in (n for n in plans if n < needed):
            (self.path / "plans" / f"{old:06d}.json").unlink()
        for path in (self.path / "spark").iterdir():
            if path.name.isdecimal() and int(path.name) < needed and int(path.name) not in shared:
                shutil.rmtree(path, ignore_errors=True)

    def _spark(self, number: int) -> Path:
        """Where Spark keeps its logs under a plan."""
        return self._logs(self._logs_of(number))

    def _logs(self, number: int) -> Path:
        return self.path / "spark" / f"{number:06d}"

    def _logs_of(self, number: int) -> int:
        """The plan under which Spark's query was started that goes on under this one."""
        named: int = self.plan(number).get(LOGS, number) if number in self.plans() else number
        return named

    def steps(self) -> list[int]:
        """The numbers of the retained steps, ascending, without those that were only claimed."""
        return [number for number in _numbers(self.path / "steps") if not self._is_claim(number)]

    def read_step(self, number: int) -> Step:
        """A committed step."""
        return Step.from_json(self._step_body(number))

    def _is_claim(self, number: int) -> bool:
        try:
            return CLAIM in self._step_body(number)
        except CorruptStateError:
            return False  # who reads it will tell

    def _step_body(self, number: int) -> Json:
        return read_document(self._step_path(number))

    def _step_path(self, number: int) -> Path:
        return self.path / "steps" / f"{number:010d}.json"

    @property
    def next_number(self) -> int:
        """The number of the step that this run may commit next."""
        return self._number + 1

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
        make_folder(directory)
        return directory

    def next_step(self, last: Step | None, **changes: Any) -> Step:
        """A step that follows `last`, under this run's epoch: what is not changed stays."""
        number = self.next_number
        if last is None:
            return Step(number=number, epoch=self.epoch, **changes)
        return replace(last, number=number, epoch=self.epoch, **changes)

    def commit(self, step: Step) -> None:
        """Make `step` the last one. Refused if another run has taken the checkpoint over."""
        self.check_epoch()
        failpoint("commit.checked")
        path, document = self._step_path(step.number), encode_document(step.to_json())
        if not create_file(path, document) and path.read_bytes() != document:
            raise CheckpointInUseError(f"{path} was written by another run; this run stops without committing")
        self._number = step.number

    def announce(self, step: Announced) -> None:
        """Put on record that a step without a batch is to be made, before anything is done about it."""
        clean_up = clean_up_to_json(step.clean_up)
        body = {"number": step.number, "ending": isinstance(step, End), "plan": step.plan, "clean_up": clean_up}
        body["epoch"] = self.epoch
        write_file(self.path / EXTRA, encode_document(body))

    def announced(self, last: Step | None) -> Announced | None:
        """A step without a batch that is on record and was not committed."""
        path = self.path / EXTRA
        if last is None or not path.exists():
            return None
        body = read_document(path)
        kind = End if body["ending"] else Delivery
        step = kind(body["number"], clean_up_from_json(body["clean_up"]), body["plan"])
        # What an older driver put on record after the last step was made by a newer one is not to be done.
        return step if last.extra < step.number and last.epoch <= body["epoch"] else None

    def record(self, body: Json) -> None:
        """Put on record what the run is made of."""
        write_file(self.path / RECORD, encode_document(body))

    def has_record(self) -> bool:
        """Whether a run has put on record what it is made of."""
        return (self.path / RECORD).exists()

    def recorded(self) -> Json:
        """What the last run was made of."""
        if not self.has_record():
            raise CheckpointError(f"{self.path} has no record of what its run was made of; start its program again")
        return read_document(self.path / RECORD)

    def record_orders(self, body: Json) -> None:
        """Put on record what orders of joins cost now."""
        write_file(self.path / ORDERS, encode_document(body))

    def recorded_orders(self) -> Json | None:
        """What orders of joins were said to cost last; None if nobody has asked."""
        path = self.path / ORDERS
        return read_document(path) if path.exists() else None

    def has_planned(self, batch_id: int) -> bool:
        """Whether Spark has begun a batch after this one."""
        return (self.spark / "offsets" / str(batch_id + 1)).exists()

    def is_behind_spark(self, last: Step | None) -> bool:
        """Whether Spark takes a batch for done that no step is of: part of the checkpoint was removed."""
        done = (int(path.name) for path in (self.spark / "commits").glob("*") if path.name.isdecimal())
        return max(done, default=-1) > (last.batch_id if last is not None else -1)

    def check_epoch(self) -> None:
        """Stop this run if another one has taken the checkpoint over."""
        newest = max(_numbers(self.path / "epochs"), default=0)
        if newest != self.epoch:
            raise CheckpointInUseError(
                f"checkpoint {self.path} was taken over by a newer run (epoch {newest}, this run has {self.epoch}); "
                "this run stops without committing"
            )

    def remove_unreferenced(self, manifests: Mapping[int, Sequence[Manifest]]) -> None:
        """Delete what no retained step refers to; `manifests` are those of the retained steps, by number."""
        retained = sorted(manifests)[-RETAINED_STEPS:]
        files = {name for number in retained for manifest in manifests[number] for name in manifest.files()}
        for entry in os.scandir(self.state):
            if entry.name not in files and epoch_of(entry.name) <= self.epoch:
                os.unlink(entry.path)
        for number in _numbers(self.path / "steps"):
            if number < retained[0]:
                os.unlink(self._step_path(number))
        for directory in (self.path / "reports").iterdir():
            if directory.name.isdigit() and int(directory.name) < retained[0]:
                shutil.rmtree(directory, ignore_errors=True)
        self._forget_plans_before_steps(retained)

    def _check_ours(self) -> None:
        """Refuse a folder that is not a checkpoint, before anything in it is touched.

        A checkpoint has an identity, or at least an id. A run that died in its first moments has left an empty folder,
        or one with nothing but a lock and an id that was not complete.
        """
        if self.exists() or not self.path.exists():
            return
        with suppress(CorruptStateError, IsADirectoryError):
            if self.tag:
                return
        for path in self.path.iterdir():
            if not (path.name.startswith(f".{ID}.") or (path.name == LOCK and _is_lock(path))):
                raise CheckpointError(
                    f"checkpoint {self.path} is not empty and was not written by Anabranch: it has {path.name}, but no "
                    f"{IDENTITY} and no {ID} of ours. Nothing was changed; choose another directory"
                )

    def _acquire_lock(self) -> None:
        descriptor = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise CheckpointInUseError(
                f"checkpoint {self.path} is in use by another run ({holder or 'unknown'}); stop that run first, "
                "or give this one a checkpoint of its own"
            ) from None
        self._lock = descriptor
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, HOLDER + f"{os.getpid()} on {socket.gethostname()}".encode(), 0)

    def _check_identity(self, identity: Json) -> None:
        if not self.steps():
            return  # nothing counts yet
        known, now = self.identity(), dict(identity)
        found = changed_settings(known.pop("settings", {}), now.pop("settings", {}))
        found += [f"{what} was {before!r} and is now {after!r}" for what, before, after in differences(known, now)]
        if found:
            raise ResumeMismatchError(
                f"checkpoint {self.path} cannot be resumed: {'; '.join(found)}. Run with what it was made with, or "
                "choose a new checkpoint directory"
            )

    def _begin(self) -> None:
        """Say what the checkpoint belongs to. If it was something else nothing of that has counted."""
        path = self.path / IDENTITY
        if not path.exists() or self.identity() != self._identity:
            self._forget_plans()
            write_file(path, encode_document(self._identity))

    def _forget_plans(self) -> None:
        for folder in ("plans", "spark"):
            shutil.rmtree(self.path / folder)
            (self.path / folder).mkdir()
        self.plan_number = 0

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
        self.epoch = max(taken, default=0) + 1
        body = {"pid": os.getpid(), "host": socket.gethostname(), "time": time.time()}
        if not create_file(directory / f"{self.epoch:010d}.json", encode_document(body)):
            raise CheckpointInUseError(f"checkpoint {self.path} is being taken over by another run at this moment")
        for epoch in taken:
            (directory / f"{epoch:010d}.json").unlink(missing_ok=True)


def _without_logs(document: Json) -> Json:
    """A plan, whatever Spark's query is that it began in."""
    return {name: part for name, part in document.items() if name != LOGS}


def _is_lock(path: Path) -> bool:
    """Whether a file can be a lock of ours: empty, or with a process in it."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(HOLDER)) in (b"", HOLDER)


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


def epoch_of(name: str) -> int:
    """The epoch of the run that wrote a run file, complete or not; 0 if it is none of ours."""
    first = name.removeprefix(".").partition("-")[0]
    return int(first) if first.isdecimal() else 0


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
