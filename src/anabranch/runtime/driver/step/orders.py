"""The orders of a step: the task of each processor, composed by the driver, which has all manifests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anabranch.checkpoint.step import Batch, End, Replay, StepKind
from anabranch.processor.tasks import StepTask
from anabranch.runtime.driver.step.context import StepContext
from anabranch.runtime.driver.step.times import StepTimes
from anabranch.state.groups import GroupSet
from anabranch.state.share import borrowed_slices
from anabranch.state.spill import CleanUp


@dataclass(frozen=True, slots=True)
class Orders:
    """A step that is about to be made: its number, kind and times.

    `sink_id` is the id under which sinks get its answers: the id of Spark's batch, moved up by the steps without a
    batch before it. Processors write reports into `directory`. `clean_up` and `hold` are by operator: the groups to
    clean up, and those whose rows wait. Both are on record before the step, so that a batch that is repeated after a
    crash gives the same rows under its id.
    """

    number: int
    kind: StepKind
    batch_id: int
    sink_id: int
    directory: Path
    times: StepTimes
    clean_up: dict[int, CleanUp]
    hold: dict[int, GroupSet]

    @property
    def has_batch(self) -> bool:
        """Whether it is the step of a batch of Spark's."""
        return isinstance(self.kind, Batch)

    @property
    def gives_answers(self) -> bool:
        """Whether sinks get answers of it: of every step but a replay."""
        return not isinstance(self.kind, Replay)


def compose(context: StepContext, kind: StepKind) -> Orders:
    """Compose the orders of the step after the last one."""
    last, checkpoint = context.in_force.last, context.run.checkpoint
    number = checkpoint.next_number
    ending = isinstance(kind, End)
    if isinstance(kind, Batch):
        batch_id, moved_up = kind.batch_id, last.extra if last else 0
        clean_up, hold = (last.clean_up, last.hold) if last else ({}, {})
    else:
        assert last is not None, "there is something to do only after a step"
        batch_id, moved_up = last.batch_id, last.extra if isinstance(kind, Replay) else kind.number
        # In a step without a batch that gives answers nothing has to wait.
        clean_up, hold = ({}, kind.hold) if isinstance(kind, Replay) else (kind.clean_up, {})
    times = context.times.of_step(last, context.backlog(), ending=ending)
    return Orders(
        number=number,
        kind=kind,
        batch_id=batch_id,
        sink_id=batch_id + moved_up,
        directory=checkpoint.reports(number),
        times=times.standing_still() if isinstance(kind, Replay) else times,
        clean_up=clean_up,
        hold=hold,
    )


def tasks(context: StepContext, orders: Orders, folders: Sequence[Path | None]) -> list[StepTask]:
    """The task of each processor in a step; `folders` are where they write the results of each outlet."""
    now, checkpoint = context.run.clock(), context.run.checkpoint
    distribution, cuts = context.in_force.distribution, context.decision_maker.cuts
    warm = context.decision_maker.connections.to_warm(distribution)
    owners, purge = context.shape.owners, orders.times.limits.purge
    return [
        StepTask(
            state=str(checkpoint.state),
            reports=str(orders.directory),
            results=tuple(None if folder is None else str(folder) for folder in folders),
            epoch=checkpoint.epoch,
            step=orders.number,
            processor=p,
            owned=context.processors.owned(p),
            manifest=manifest.to_json(),
            late=orders.times.limits.late,
            purge=purge,
            settled=orders.times.settled,
            since=orders.times.since,
            clean_up=orders.clean_up,
            hold=orders.hold,
            now=now,
            warm=warm.get(p, ()),
            copied=context.processors.copied(p),
            borrowed=borrowed_slices(distribution.manifests, distribution.routings, owners, p, purge, cuts),
        )
        for p, manifest in enumerate(distribution.manifests)
    ]
