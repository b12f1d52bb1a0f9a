"""Adaptations under way, or just done: what was predicted of them, and what has come of it.

A processor's load is the median of some batches (`workload`), so what has come of an adaptation is known when all of
these are later ones, and the first one after it, which finds nothing in its caches, is none of them. Until then its
processors are watched, and left alone.

A load would also have changed by itself. So what it was before is multiplied by what has become of the work since: of
rows and results or, where the plan is another one and makes other rows, of the rows that arrive.

To migrate a query, to reallocate an operator or to set it apart is a wish until its plan is in force; then the watch
begins. A wish that was refused, or that nobody has carried out after `PATIENCE` batches, is given up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from anabranch.manager.actions import Action, MigrateQuery, PartOperator, ReallocateOperator
from anabranch.manager.arbitration.proposal import Proposal
from anabranch.manager.arbitration.workload import WINDOW, Workload, bytes_over
from anabranch.manager.costs.cost_table import home_of
from anabranch.manager.snapshot import Snapshot

# Batches from an adaptation to its outcome.
WATCHED = WINDOW + 1
# Batches that a wish may take.
PATIENCE = 32


class Course(StrEnum):
    """What becomes of an adaptation."""

    WISHED = "wished"
    DONE = "done"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an adaptation was predicted to gain, and what it did: seconds per batch, and all seconds together."""

    per_batch: float
    measured_per_batch: float
    gain: float
    measured: float


@dataclass(slots=True)
class Record:
    """An adaptation that was decided on after a `step`, in a batch of this number.

    Before it a batch brought so many `rows` and took so much `work`; the processors were so many bytes `over` their
    budgets, and had so many on disk (`spilled`). It is watched from the batch `since` on, None as long as it is a wish.
    """

    proposal: Proposal
    step: int
    batch: int
    rows: float
    work: float
    over: float
    spilled: int
    since: int | None

    @classmethod
    def of(cls, proposal: Proposal, snapshot: Snapshot, workload: Workload, batch: int) -> Record:
        """A proposal that was just taken."""
        over, spilled = _pressure(snapshot, proposal.processors)
        since = None if any(map(_is_wish, proposal.actions)) else batch
        return cls(proposal, snapshot.step, batch, workload.rows, workload.done, over, spilled, since)

    def course(self, snapshot: Snapshot, batch: int) -> Course:
        """What has become of it. Groups that take several steps to move are on their way until they have arrived."""
        if any(view.moves for view in snapshot.processors if view.processor in self.proposal.processors):
            self.since = batch
            return Course.WISHED
        if self.since is not None:
            return Course.DONE
        wishes = [_wish(action, snapshot) for action in self.proposal.actions]
        if batch - self.batch >= PATIENCE or Course.REFUSED in wishes:
            return Course.REFUSED
        if Course.WISHED in wishes:
            return Course.WISHED
        self.since = batch
        return Course.DONE

    def is_over(self, workload: Workload, batch: int) -> bool:
        """Whether what has come of it is known."""
        return self.since is not None and batch - self.since >= WATCHED and workload.batches >= WATCHED

    def outcome(self, snapshot: Snapshot, workload: Workload) -> Outcome:
        """What has come of it."""
        estimate = self.proposal.estimate
        other_plan = any(map(_is_wish, self.proposal.actions))
        then, now = (self.rows, workload.rows) if other_plan else (self.work, workload.done)
        drift = now / then if then > 0 else 1.0
        per_batch = estimate.before * drift - workload.busiest(self.proposal.processors)
        over, spilled = _pressure(snapshot, self.proposal.processors)
        share = 1.0 if over == 0 and spilled <= self._spilled_by_it() else 1 - over / max(self.over, over, 1.0)
        measured = per_batch * estimate.lasting + estimate.once * share
        predicted = estimate.per_batch * drift
        return Outcome(predicted, per_batch, predicted * estimate.lasting + estimate.once, measured)

    def _spilled_by_it(self) -> int:
        return self.spilled + sum(getattr(action, "bytes", 0) for action in self.proposal.actions)


def _pressure(snapshot: Snapshot, processors: Iterable[int]) -> tuple[float, int]:
    """How many bytes some processors are over their budgets, and have on disk."""
    views = [snapshot.processor(p) for p in processors]
    return sum(map(bytes_over, views)), sum(view.spilled_bytes for view in views)


def _is_wish(action: Action) -> bool:
    return isinstance(action, MigrateQuery | ReallocateOperator | PartOperator)


def _wish(action: Action, snapshot: Snapshot) -> Course:
    """What has become of a wish."""
    if isinstance(action, MigrateQuery):
        orders = None if snapshot.orders is None else snapshot.orders.queries.get(action.query)
        if orders is None:
            return Course.WISHED
        if action.joins in orders.refused:
            return Course.REFUSED
        # The costs of orders follow later than the plan; that it was just migrated they know at once.
        return Course.DONE if orders.evaluations == 0 or orders.in_force.joins == action.joins else Course.WISHED
    if isinstance(action, ReallocateOperator | PartOperator):
        numbers = [operator.number for operator in snapshot.plan.operators if operator.name == action.name]
        if not numbers:
            return Course.REFUSED
        if isinstance(action, PartOperator):
            is_done = bool(snapshot.routings[numbers[0]].diffused)
        else:
            is_done = home_of(snapshot, numbers[0]) == action.processor
        if is_done:
            return Course.DONE
        waits = snapshot.reallocating is None or action.name in snapshot.reallocating
        return Course.WISHED if waits else Course.REFUSED
    return Course.DONE
