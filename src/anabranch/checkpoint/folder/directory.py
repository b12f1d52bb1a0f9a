"""The checkpoint: its one writer, its identity, its plans, and the last step that counts.

    anabranch.json      identity: the engine's version, partition groups and settings of the session (`identity`)
    id.json             a name for this checkpoint, part of the names of files it writes elsewhere
    lock                held by the running driver (`lock`)
    epochs/N.json       one per run; a driver whose epoch is no longer the newest may not commit (`epochs`)
    plans/N.json        a plan: its queries, and the order of ports and operators in manifests and steps (`plans`)
    steps/N.json        a committed step: created once, atomically, naming its plan and the reports it consists of
    reports/N/*.json    the reports of the processors in step N: manifest and counts
    state/*.arrow       run files
    run.json            the record of the last run: settings, streams, queries, sinks (`records`)
    orders.json         the costs of orders of joins when they were measured last, for people (`records`)
    events/*.jsonl      events, for people (`journal`)
    staging/            files that Spark writes for file sinks, until they are published
    extra.json          the last step without a batch that was announced (`records`)
    spark/N/            Spark's own offsets and commits, under plan N (`plans`)

A step is committed by creating its file, nothing else. A run that takes the checkpoint over first creates the next
step's file itself, as a claim that holds no step (`CLAIM`). If an older driver comes back, either its step exists
already, and the new run goes on from it, or that step can no longer be created. Only then the new run removes anything.
The last two steps are retained; after a commit every file that neither of them refers to is removed (`retention`).
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from anabranch.checkpoint.folder import retention
from anabranch.checkpoint.folder.epochs import check_newest, open_epoch
from anabranch.checkpoint.folder.identity import ID, IDENTITY, check_ours, check_same, tag_of
from anabranch.checkpoint.folder.lock import Lock
from anabranch.checkpoint.folder.numbered import numbers
from anabranch.checkpoint.folder.plans import Plans
from anabranch.checkpoint.folder.records import Records
from anabranch.checkpoint.step import Step
from anabranch.errors import CheckpointInUseError, CorruptStateError
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

CLAIM = "claimed by epoch"
FOLDERS = ("state", "steps", "reports", "epochs", "plans", "spark", "events")


class Checkpoint:
    """A checkpoint directory, open for reading; `take` makes it writable by this driver alone."""

    def __init__(self, location: str | os.PathLike[str]) -> None:
        """Open a checkpoint for reading; nothing is created yet."""
        self.path = local_path(location)
        self.state = self.path / "state"
        self.records = Records(self.path)
        self.epoch = 0
        self._plans = Plans(self.path)
        self._lock = Lock(self.path)
        self._identity: Json = {}
        self._number = 0  # of the last step that was committed or claimed
        self._is_claimed = False

    def exists(self) -> bool:
        """Whether a run has ever used this directory as its checkpoint."""
        return (self.path / IDENTITY).exists()

    def take(self, identity: Json) -> None:
        """Become the one writer. Refused if the checkpoint has another identity, or another run uses it."""
        check_ours(self.path)
        make_folder(self.path)
        try:
            self._lock.acquire()
            # First of all, so that a crash leaves nothing behind that looks like the folder of another program.
            create_file(self.path / ID, encode_document({"id": uuid.uuid4().hex}))
            for folder in FOLDERS:
                (self.path / folder).mkdir(exist_ok=True)
            sync(self.path)
            shutil.rmtree(self.scratch, ignore_errors=True)
            if self.steps():  # before the first step nothing counts yet
                check_same(self.path, self.identity(), identity)
            self.epoch = open_epoch(self.path)
            self._identity = identity
            self._number = max(numbers(self.path / "steps"), default=0)
            self._plans.resume()
            self._check_spark_log()
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Let other runs take the checkpoint."""
        self._lock.release()

    def claim(self) -> None:
        """Take the number of the next step, so that no older driver can commit one any more. Done once, before anything
        is removed; refused if an older driver has committed a step since the checkpoint was taken."""
        if self._is_claimed:
            return
        path = self._step_path(self.next_number)
        if not create_file(path, encode_document({CLAIM: self.epoch})):
            raise CheckpointInUseError(f"{path} was written by an older run at this moment; start the run again")
        self._number, self._is_claimed = self.next_number, True
        if not self.steps():
            self._write_identity()

    def check_epoch(self) -> None:
        """Stop this run if another one has taken the checkpoint over."""
        check_newest(self.path, self.epoch)

    def identity(self) -> Json:
        """The identity of the checkpoint: the engine that may resume it."""
        return read_document(self.path / IDENTITY)

    @property
    def tag(self) -> str:
        """A short name of this checkpoint, for the names of files that it writes elsewhere."""
        return tag_of(self.path)

    @property
    def scratch(self) -> Path:
        """The folder for files that exist during a step only."""
        return self.path / "staging"

    @property
    def plan_number(self) -> int:
        """The number of the plan in force; 0 before the first."""
        return self._plans.in_force

    def plans(self) -> list[int]:
        """The numbers of its plans, ascending."""
        return self._plans.numbers()

    def plan(self, number: int) -> Json:
        """The document of a plan."""
        return self._plans.document(number)

    @property
    def next_plan(self) -> int:
        """The number that a new plan will have."""
        return self._plans.next_number

    def adopt(self, document: Json, *, same_logs: bool = False) -> int:
        """Put a plan in force, unless it is already, and return its number.

        Spark goes on at the same offsets of every stream that it has read before; with `same_logs`, in the same
        streaming query.
        """
        self.claim()
        if self._plans.is_in_force(document):
            return self.plan_number
        if same_logs:
            self._plans.switch(document)
            return self.plan_number
        if not self.steps():
            # Nothing counts yet: queries that failed in their first batch may be corrected.
            self._plans.forget_all()
        self._plans.adopt(document)
        self._forget_plans_before_steps(self.steps())
        return self.plan_number

    def retreat(self, number: int) -> None:
        """Put a former plan in force again. No batch may have begun under those that were adopted since."""
        self._plans.retreat(number)

    @property
    def spark(self) -> Path:
        """The folder of Spark's logs under the plan in force."""
        return self._plans.spark(self.plan_number)

    def has_planned(self, batch_id: int) -> bool:
        """Whether Spark has begun a batch after this one."""
        return (self.spark / "offsets" / str(batch_id + 1)).exists()

    def is_behind_spark(self, last: Step | None) -> bool:
        """Whether Spark has committed a batch that no step is of: then part of the checkpoint was removed."""
        done = (int(path.name) for path in (self.spark / "commits").glob("*") if path.name.isdecimal())
        return max(done, default=-1) > (last.batch_id if last is not None else -1)

    def steps(self) -> list[int]:
        """The numbers of the retained steps, ascending, without those that were only claimed."""
        return [number for number in numbers(self.path / "steps") if not self._is_claim(number)]

    def read_step(self, number: int) -> Step:
        """A committed step."""
        return Step.from_json(read_document(self._step_path(number)))

    def last_step(self) -> Step | None:
        """The newest committed step, if there is one."""
        retained = self.steps()
        return self.read_step(retained[-1]) if retained else None

    @property
    def next_number(self) -> int:
        """The number of the step that this run may commit next."""
        return self._number + 1

    def next_step(self, last: Step | None, **changes: Any) -> Step:
        """The step that follows `last`, under this run's epoch; fields that are not among `changes` stay."""
        number = self.next_number
        if last is None:
            return Step(number=number, epoch=self.epoch, **changes)
        return replace(last, number=number, epoch=self.epoch, **changes)

    def reports(self, number: int) -> Path:
        """The folder for the reports of a step."""
        return self.path / "reports" / f"{number:010d}"

    def prepare_step(self, number: int) -> Path:
        """Make an empty folder for the reports of a step, without leftovers of a crashed attempt."""
        directory = self.reports(number)
        shutil.rmtree(directory, ignore_errors=True)
        make_folder(directory)
        return directory

    def reports_of(self, step: Step) -> list[tuple[Report, Manifest]]:
        """The reports and manifests of a committed step, by processor."""
        return combine(parse_report(read_document(self.reports(step.number) / name)) for name in step.reports)

    def commit(self, step: Step) -> None:
        """Make `step` the last one. Refused if another run has taken the checkpoint over."""
        self.check_epoch()
        failpoint("commit.checked")
        path, document = self._step_path(step.number), encode_document(step.to_json())
        if not create_file(path, document) and path.read_bytes() != document:
            raise CheckpointInUseError(f"{path} was written by another run; this run stops without committing")
        self._number = step.number

    def remove_unreferenced(self, manifests: Mapping[int, Sequence[Manifest]]) -> None:
        """Delete all files that no retained step refers to; `manifests` are those of the retained steps, by number."""
        retained = retention.remove_unreferenced(self.path, self.epoch, manifests)
        self._forget_plans_before_steps(retained)

    def _forget_plans_before_steps(self, steps: Sequence[int]) -> None:
        """Remove the plans that are older than that of the first of these steps."""
        if len(self.plans()) > 1:
            self._plans.forget_before(min([self.read_step(n).plan for n in steps], default=self.plan_number))

    def _step_path(self, number: int) -> Path:
        return self.path / "steps" / f"{number:010d}.json"

    def _is_claim(self, number: int) -> bool:
        try:
            return CLAIM in read_document(self._step_path(number))
        except CorruptStateError:
            return False  # whoever reads the step reports the damage

    def _write_identity(self) -> None:
        """Write the identity. If there was another one, no step was committed under it."""
        path = self.path / IDENTITY
        if not path.exists() or self.identity() != self._identity:
            self._plans.forget_all()
            write_file(path, encode_document(self._identity))

    def _check_spark_log(self) -> None:
        """Refuse a checkpoint with steps and without Spark's log: Spark would count batches from 0 again, and take
        batch 0 for one that is committed."""
        last = self.last_step()
        if last is not None and not (self.spark / "offsets" / str(last.batch_id)).exists():
            raise CorruptStateError(
                f"{self.spark / 'offsets'} has no entry for batch {last.batch_id}, the last that was committed. Part "
                "of the checkpoint was removed or restored from another time; restore it as a whole"
            )


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
