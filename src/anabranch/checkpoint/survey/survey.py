"""Take a survey of a checkpoint without Spark and without disturbing the run that may be using it.

Nothing is locked and nothing is written. If the run moves on during a look, the survey looks again. Damage is
collected, not raised, so that one look names all of it. Events are for people: those that cannot be read are left out,
and that is no damage.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from anabranch.checkpoint.existing import existing_checkpoint
from anabranch.checkpoint.folder.directory import Checkpoint
from anabranch.checkpoint.journal import EVENTS, read_events
from anabranch.checkpoint.survey.look import Look, MovedOnError, newest_run, read_identity, read_steps
from anabranch.checkpoint.survey.state_files import verify
from anabranch.checkpoint.survey.summaries import (
    input_summaries,
    operator_names,
    operator_summaries,
    spilled_summaries,
    spine_summary,
)
from anabranch.errors import CheckpointError, CorruptStateError
from anabranch.manager.diffusable import diffused_groups
from anabranch.manager.tiers.clusters import Clusters
from anabranch.observe.inspection import Inspection, QuerySummary, StepSummary
from anabranch.state.store import Json

ATTEMPTS = 50
FOLDERS = ("state", "reports", "steps", "plans", "epochs", "spark")


def survey(path: Path, version: str, *, quick: bool = False, events: int = 0) -> Inspection:
    """Inspect the checkpoint at `path` with an engine of this version. `events` is the number of newest events to
    read."""
    checkpoint = existing_checkpoint(path)
    for _ in range(ATTEMPTS):
        try:
            inspection = replace(_inspection(Look(checkpoint, version), quick), orders=_orders(checkpoint))
            return replace(inspection, events=tuple(read_events(checkpoint.path)[-events:])) if events else inspection
        except MovedOnError:
            continue
    raise CheckpointError(f"{path}: the run that uses it moves on faster than it can be read; try --quick, or later")


def _orders(checkpoint: Checkpoint) -> Json | None:
    """The recorded costs of orders of joins. They are for people, so a document that cannot be read is no damage."""
    with suppress(CorruptStateError):
        return checkpoint.records.orders()
    return None


def _clusters(checkpoint: Checkpoint) -> Clusters | None:
    """The clusters of processors that the last run had, if it had some and their record can be read."""
    with suppress(CorruptStateError):
        named = checkpoint.records.run().get("clusters") if checkpoint.records.has_run() else None
        return None if named is None else Clusters({name: tuple(hosts) for name, hosts in named.items()})
    return None


def _inspection(look: Look, quick: bool) -> Inspection:
    """The inspection that one look gives."""
    identity = read_identity(look)
    run = newest_run(look)
    for name in FOLDERS:
        if not (look.checkpoint.path / name).is_dir():
            look.note_damage(CorruptStateError(f"{look.checkpoint.path / name} is missing"))
    read_steps(look)
    newest = max(look.manifests, default=None)
    groups = verify(look, newest, quick)
    manifests = look.manifests[newest] if newest is not None else []
    step = look.steps[newest] if newest is not None else None
    plan = look.plans[step.plan] if step is not None else {}
    totals = step.totals if step is not None else {}
    clusters = _clusters(look.checkpoint)
    return Inspection(
        path=str(look.checkpoint.path),
        identity=identity,
        run=run,
        steps=tuple(
            StepSummary(number, step.batch_id, step.epoch, step.processors)
            for number, step in sorted(look.steps.items())
        ),
        combinations=totals.get("combinations", 0),
        queries=tuple(
            QuerySummary(name, entry["since"], entry["query"]["residual predicate"], totals["results"].get(name, 0))
            for name, entry in plan.get("queries", {}).items()
        ),
        inputs=input_summaries(plan, step),
        spines=tuple(
            spine_summary(processor, name, spine)
            for processor, manifest in enumerate(manifests)
            for name, spine in zip((port["holds"] for port in plan["ports"]), manifest.spines, strict=True)
        ),
        spilled=tuple(
            summary
            for processor, manifest in enumerate(manifests)
            for summary in spilled_summaries(processor, manifest, plan, identity.get("groups", 1))
        ),
        groups=groups,
        disk={name: _size(look.checkpoint.path / name) for name in (*FOLDERS, EVENTS)},
        unreferenced=tuple(_unreferenced(look)),
        verified=not quick,
        damage=tuple(look.damage),
        diffused=()
        if step is None
        else diffused_groups(step.routings, step.diffusions, operator_names(plan), step.parted),
        copied=look.copied.get(newest or 0, 0),
        operators=() if step is None else tuple(operator_summaries(plan, step, manifests, clusters)),
        clusters=None if clusters is None else {name: list(hosts) for name, hosts in clusters.named.items()},
    )


def _unreferenced(look: Look) -> Iterator[str]:
    named = {name for manifests in look.manifests.values() for manifest in manifests for name in manifest.files()}
    state = look.checkpoint.state
    if state.is_dir():
        yield from sorted(entry.name for entry in os.scandir(state) if entry.name not in named)


def _size(folder: Path) -> int:
    """Bytes of all files below; those that vanish meanwhile count as nothing."""
    total = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(directory, name)).st_size
            except FileNotFoundError:
                continue
    return total
