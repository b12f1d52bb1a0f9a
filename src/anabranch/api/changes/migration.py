"""The handle of a migration, as `Run.migrate` returns it: it shows progress, waits for the end, and cancels."""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import StrEnum

from anabranch.errors import MigrationError


class Phase(StrEnum):
    """The phase of a migration. A phase equals its text."""

    FILLING = "filling"
    """The shadow does not hold yet all that rows still to come can meet; the old operators answer."""
    DONE = "done"
    """The query is answered in the new order."""
    CANCELLED = "cancelled"
    """The old order stays."""
    FAILED = "failed"
    """The run has ended before."""


class Migration:
    """The migration of a query to another order of its joins."""

    def __init__(self, query: str, strategy: str, before: str, after: str) -> None:
        """Made by `Run.migrate`."""
        self.query = query
        self.strategy = strategy
        self.before = before
        self.after = after
        self.phase = Phase.FILLING
        self.share_done = 0.0
        self.failure: BaseException | None = None
        self._ended = threading.Event()
        self._cancel: Callable[[], None]

    def __repr__(self) -> str:
        """One line: the query, both orders, and how far it is."""
        share = f", {self.share_done:.0%} done" if self.phase is Phase.FILLING else ""
        return f"<Migration of {self.query!r} from {self.before} to {self.after}, {self.strategy}: {self.phase}{share}>"

    def await_done(self, timeout: float | None = None) -> bool:
        """Wait until the new order is in force; whether it is. An error that ended the migration is raised here."""
        if not self._ended.wait(timeout):
            return False
        if self.phase is Phase.CANCELLED:
            raise MigrationError(f"the migration of {self.query!r} to {self.after} was cancelled")
        if self.failure is not None:
            raise self.failure
        return True

    def cancel(self) -> None:
        """Stay with the old order; refused once the new one is in force."""
        self._cancel()

    def _end(self, phase: Phase, failure: BaseException | None = None) -> None:
        self.phase, self.failure = phase, failure
        self.share_done = 1.0 if phase is Phase.DONE else self.share_done
        self._ended.set()
