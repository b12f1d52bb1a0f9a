"""Listing state anew: what a resumed run does when its processors are not those of the last step.

State stays where it is. Every new owner gets a manifest that lists the parts of existing runs whose hashes lie in
its groups, and a step of its own, with no batch, puts these manifests in force. Nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from anabranch.plan.placement import Placement
from anabranch.runtime.checkpoint import Checkpoint, Step
from anabranch.runtime.report import Report, report_body
from anabranch.state.groups import GroupSet
from anabranch.state.manifest import Manifest
from anabranch.state.run import FileCuts
from anabranch.state.store import encode_document, write_file


def list_anew(
    checkpoint: Checkpoint,
    last: Step,
    manifests: list[Manifest],
    processors: int,
    placements: tuple[Placement, ...],
    owners: Sequence[int],
) -> tuple[Step, list[Manifest]]:
    """Commit a step that lists the state of `last` by other placements; returns it and the new manifests.

    `placements` are per operator; `owners` are the operators that ports belong to.
    """
    everything = reduce(Manifest.union, manifests)
    cuts = FileCuts(checkpoint.state, len(placements[0]))
    listed = [
        everything.of_groups([GroupSet.owned(placement, p) for placement in placements], owners, cuts)
        for p in range(processors)
    ]
    number = last.number + 1
    directory = checkpoint.prepare_step(number)
    names = [f"{number:010d}-{p:04d}-listed.json" for p in range(len(listed))]
    for p, (name, manifest) in enumerate(zip(names, listed, strict=True)):
        report = Report.empty(p, len(last.newest), 0, 0)
        report.look_at(manifest)
        write_file(directory / name, encode_document(report_body(report, manifest)))
    step = checkpoint.next_step(
        last,
        batch_id=last.batch_id,
        processors=processors,
        placements=placements,
        reports=tuple(names),
        newest=last.newest,
        totals=last.totals,
        plan=checkpoint.plan_number,
        settled=last.settled,
        extra=last.extra,
        clean_up=last.clean_up,
    )
    checkpoint.commit(step)
    return step, listed
