"""The plans of a checkpoint, and Spark's logs under each.

    plans/N.json   a plan: its queries, and the order in which manifests and steps list ports and operators
    spark/N/       Spark's own offsets and commits, under plan N

A plan is in force as soon as Spark's folder for it exists; the next step is made under it. A plan that needs no new
start of Spark's query shares the folder of the plan before it, and names that plan (`LOGS`).
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from anabranch.checkpoint.folder.numbered import numbers
from anabranch.checkpoint.folder.offsets import copy_logs
from anabranch.state.failpoints import failpoint
from anabranch.state.store import Json, encode_document, make_folder, read_document, write_file

LOGS = "logs"  # in a plan's document: the number of the plan whose logs Spark goes on with


class Plans:
    """The plans of one checkpoint, by number. `in_force` is the number of the one in force, 0 without one."""

    def __init__(self, checkpoint: Path) -> None:
        """The plans of the checkpoint in this folder; `in_force` is set by `resume`."""
        self._documents = checkpoint / "plans"
        self._spark = checkpoint / "spark"
        self.in_force = 0

    def resume(self) -> None:
        """Go on with the plan that was in force last."""
        self.in_force = max((number for number in self.numbers() if self.spark(number).exists()), default=0)

    def numbers(self) -> list[int]:
        """The numbers of all plans, ascending."""
        return numbers(self._documents)

    @property
    def next_number(self) -> int:
        """The number that a new plan will have."""
        return max(self.numbers(), default=0) + 1

    def document(self, number: int) -> Json:
        """The document of a plan."""
        return read_document(self._path(number))

    def spark(self, number: int) -> Path:
        """The folder of Spark's logs under a plan."""
        return self._logs(self._logs_of(number))

    def is_in_force(self, document: Json) -> bool:
        """Whether the plan in force has this document, whichever logs Spark goes on with."""
        now = json.loads(json.dumps(document))
        return bool(self.in_force) and _without_logs(self.document(self.in_force)) == _without_logs(now)

    def adopt(self, document: Json) -> None:
        """Put a new plan in force. Spark's query will be started anew, at the present offsets of every stream."""
        before, number = self.in_force, self.next_number
        write_file(self._path(number), encode_document(_without_logs(document)))
        failpoint("plan.described")
        if before:
            copy_logs(self.spark(before), self.spark(number), self.document(before)["read"], document["read"])
        else:
            make_folder(self.spark(number))
        failpoint("plan.adopted")
        self.in_force = number

    def switch(self, document: Json) -> None:
        """Put a new plan in force while Spark's query goes on: it brings all rows that the plan needs."""
        number = self.next_number
        body = {**document, LOGS: self._logs_of(self.in_force)}
        write_file(self._path(number), encode_document(body))
        failpoint("plan.switched")
        self.in_force = number

    def retreat(self, number: int) -> None:
        """Put a former plan in force again. No batch may have begun under those that were adopted since."""
        for later in (n for n in self.numbers() if n > number):
            if self._logs_of(later) > number:
                shutil.rmtree(self.spark(later), ignore_errors=True)
            self._path(later).unlink()
        self.in_force = number

    def forget_before(self, needed: int) -> None:
        """Remove the plans before the `needed` one, and logs that no other plan shares."""
        plans = self.numbers()
        shared = {self._logs_of(n) for n in plans if n >= needed}
        for old in (n for n in plans if n < needed):
            self._path(old).unlink()
        for path in self._spark.iterdir():
            if path.name.isdecimal() and int(path.name) < needed and int(path.name) not in shared:
                shutil.rmtree(path, ignore_errors=True)

    def forget_all(self) -> None:
        """Remove all plans."""
        for folder in (self._documents, self._spark):
            shutil.rmtree(folder)
            folder.mkdir()
        self.in_force = 0

    def _path(self, number: int) -> Path:
        return self._documents / f"{number:06d}.json"

    def _logs(self, number: int) -> Path:
        return self._spark / f"{number:06d}"

    def _logs_of(self, number: int) -> int:
        """The number of the plan that Spark's query was started under, if it goes on under this plan."""
        named: int = self.document(number).get(LOGS, number) if number in self.numbers() else number
        return named


def _without_logs(document: Json) -> Json:
    """A plan's document, whichever logs Spark goes on with under it."""
    return {name: part for name, part in document.items() if name != LOGS}
