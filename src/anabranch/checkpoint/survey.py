"""Read a checkpoint without Spark and without disturbing the run that may be using it.

Nothing is locked and nothing is written. A run that goes on commits new steps and removes old files meanwhile, always
in this order: first the step is committed, then the files that no retained step needs are removed. So a missing file is
damage only if the step that names it is still among the retained ones after the look; otherwise the survey starts again
from the newer steps.

Every document is read, every state file is mapped once and its checksum verified (`quick` leaves that out and compares
sizes only). Damage is collected, not raised, so that one look names all of it. Where groups begin in files is known
then, so it is also checked that every row is listed once, by a processor that it belongs to (`broken_shares`). Events
are for people: those that cannot be read are left out, and that is no damage.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from anabranch.checkpoint.existing import existing_checkpoint
from anabranch.checkpoint.folder.directory import Checkpoint
from anabranch.checkpoint.folder.retention import RETAINED_STEPS
from anabranch.checkpoint.journal import EVENTS, read_events
from anabranch.checkpoint.step import Step
from anabranch.errors import CheckpointError, CorruptStateError
from anabranch.manager.diffusable import diffused_groups
from anabranch.manager.memory.debt import owed_results, waiting_rows
from anabranch.observe.inspection import (
    GroupSummary,
    InputSummary,
    Inspection,
    QuerySummary,
    RunSummary,
    SpilledSummary,
    SpineSummary,
    StepSummary,
)
from anabranch.state.broken_shares import broken_shares
from anabranch.state.generation import spilled_groups
from anabranch.state.groups import GroupSet, group_counts
from anabranch.state.manifest import Manifest
from anabranch.state.runs.run import FileCuts, RunFile, map_run
from anabranch.state.runs.slice import Slice
from anabranch.state.runs.spine import Spine
from anabranch.state.store import Json, read_document

ATTEMPTS = 50
FOLDERS = ("state", "reports", "steps", "plans", "epochs", "spark")


class _MovedOnError(Exception):
    """The run committed a new step during the look, and has removed the step that was looked at."""


@dataclass(slots=True)
class _Look:
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
            raise _MovedOnError
        # The rest of the text is advice for the user of a run; here only the damage counts.
        text = str(error).partition(". The run stopped")[0]
        if text not in self.damage:
            self.damage.append(text)


def survey(path: Path, version: str, *, quick: bool = False, events: int = 0) -> Inspection:
    """Inspect the checkpoint at `path` with an engine of this version. `events` is the number of newest events to
    read."""
    checkpoint = existing_checkpoint(path)
    for _ in range(ATTEMPTS):
        try:
            inspection = replace(_look(_Look(checkpoint, version), quick), orders=_orders(checkpoint))
            return replace(inspection, events=tuple(read_events(checkpoint.path)[-events:])) if events else inspection
        except _MovedOnError:
            continue
    raise CheckpointError(f"{path}: the run that uses it moves on faster than it can be read; try --quick, or later")


def _orders(checkpoint: Checkpoint) -> Json | None:
    """The recorded costs of orders of joins. They are for people, so a document that cannot be read is no damage."""
    with suppress(CorruptStateError):
        return checkpoint.records.orders()
    return None


@contextmanager
def _of_known_form(path: Path) -> Iterator[None]:
    """Turn errors in the content of a document, whose checksum is right, into damage of its file."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        cause = f"{type(error).__name__}: {error}"
        raise CorruptStateError(f"{path} has not the form that this version of Anabranch writes ({cause})") from error


def _look(look: _Look, quick: bool) -> Inspection:
    identity = _identity(look)
    run = _newest_run(look)
    for name in FOLDERS:
        if not (look.checkpoint.path / name).is_dir():
            look.note_damage(CorruptStateError(f"{look.checkpoint.path / name} is missing"))
    _read_steps(look)
    newest = max(look.manifests, default=None)
    groups = _verify(look, newest, quick)
    manifests = look.manifests[newest] if newest is not None else []
    step = look.steps[newest] if newest is not None else None
    plan = look.plans[step.plan] if step is not None else {}
    totals = step.totals if step is not None else {}
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
        inputs=_inputs(plan, step),
        spines=tuple(
            _spine(processor, name, spine)
            for processor, manifest in enumerate(manifests)
            for name, spine in zip((port["holds"] for port in plan["ports"]), manifest.spines, strict=True)
        ),
        spilled=tuple(
            summary
            for processor, manifest in enumerate(manifests)
            for summary in _spilled(processor, manifest, plan, identity.get("groups", 1))
        ),
        groups=groups,
        disk={name: _size(look.checkpoint.path / name) for name in (*FOLDERS, EVENTS)},
        unreferenced=tuple(_unreferenced(look)),
        verified=not quick,
        damage=tuple(look.damage),
        diffused=() if step is None else diffused_groups(step.routings, step.diffusions, _names(plan)),
        copied=look.copied.get(newest or 0, 0),
    )


def _names(plan: Json) -> list[tuple[str, list[str]]]:
    """What people call the operators of a plan and their ports."""
    names = []
    for identity in plan["operators"]:
        holds = [port["holds"] for port in plan["ports"] if port["identity"].rpartition("/")[0] == identity]
        names.append((f"join of {', '.join(holds)}", holds))
    return names


def _identity(look: _Look) -> Json:
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


def _newest_run(look: _Look) -> RunSummary | None:
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


def _read_steps(look: _Look) -> None:
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


def _verify(look: _Look, newest: int | None, quick: bool) -> tuple[GroupSummary, ...]:
    """Check every file that a retained step names; count the groups of the newest one on the way."""
    step = look.steps[newest] if newest is not None else None
    count = len(step.routings[0].placement) if step else 0
    active, spilled = _Groups.none(count), _Groups.none(count)
    generations: NDArray[np.int64] = np.zeros(count, np.int64)
    listed = look.manifests[newest] if newest is not None else []
    for state in (state for manifest in listed for state in manifest.operators):
        for generation in state.generations:
            generations += generation.groups.mask()
    slices = _slices_by_file(listed)
    cuts, undamaged = FileCuts(look.checkpoint.state, count or 1), len(look.damage)
    checked: set[tuple[str, int]] = set()
    for number, manifests in sorted(look.manifests.items(), reverse=True):
        for file in (file for manifest in manifests for file in manifest.files().values()):
            if (file.name, file.crc) in checked:
                continue
            checked.add((file.name, file.crc))
            try:
                hashes = _checked_hashes(look.checkpoint.state, file, quick)
            except CorruptStateError as error:
                look.note_damage(error, number)
                continue
            if hashes is None or number != newest:
                continue
            cuts.learn(file.name, hashes)
            for piece, is_active in slices.get(file.name, []):
                counts = group_counts(hashes[piece.start : piece.stop], count)
                (active if is_active else spilled).add(counts, piece)
    if quick or step is None:
        return ()
    if len(look.damage) == undamaged:
        _check_shares(look, step, cuts)
    return tuple(
        GroupSummary(
            group,
            tuple(sorted({p for routing in step.routings for p in routing.hosts(group)})),
            int(active.rows[group]),
            round(float(active.bytes[group])),
            round(float(spilled.bytes[group])),
            int(generations[group]),
        )
        for group in range(count)
    )


def _check_shares(look: _Look, step: Step, cuts: FileCuts) -> None:
    """Check that the newest step lists every row once, where its group's routing says."""
    ports, operators = look.plans[step.plan]["ports"], look.plans[step.plan]["operators"]
    own = [port["identity"].rpartition("/")[0] for port in ports]
    owners = [operators.index(identity) for identity in own]
    for broken in broken_shares(look.manifests[step.number], step.routings, owners, cuts):
        names = [port["holds"] for port, owner in zip(ports, owners, strict=True) if owner == broken.operator]
        what = f"the operator of {', '.join(names)}" if broken.port is None else names[broken.port]
        look.note_damage(
            CorruptStateError(
                f"{look.checkpoint.path}: step {step.number}, {what}, partition group {broken.group}: {broken.problem}"
            ),
            step.number,
        )


@dataclass(slots=True)
class _Groups:
    """Rows and bytes by partition group."""

    rows: NDArray[np.int64]
    bytes: NDArray[np.float64]

    @classmethod
    def none(cls, count: int) -> _Groups:
        return cls(np.zeros(count, np.int64), np.zeros(count))

    def add(self, counts: NDArray[np.int64], piece: Slice) -> None:
        rows = counts if piece.groups is None else counts * piece.groups.mask()
        self.rows += rows
        self.bytes += rows * (piece.file.bytes / max(piece.file.rows, 1))


def _checked_hashes(state: Path, file: RunFile, quick: bool) -> Any:
    """The hashes of a whole and undamaged file, or None if only its size was checked."""
    if not quick:
        return map_run(state, file).hashes
    path = state / file.name
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise CorruptStateError(f"state file {path} is missing") from None
    if size != file.bytes:
        raise CorruptStateError(f"state file {path} is {size} bytes long instead of {file.bytes}")
    return None


def _slices_by_file(manifests: list[Manifest]) -> dict[str, list[tuple[Slice, bool]]]:
    """The listed slices of each file, each with whether it is active."""
    slices: dict[str, list[tuple[Slice, bool]]] = defaultdict(list)
    for manifest in manifests:
        for piece in manifest.active():
            slices[piece.file.name].append((piece, True))
        for piece in manifest.spilled():
            slices[piece.file.name].append((piece, False))
    return slices


def _plan(document: Json) -> Json:
    """A plan's document; an error if it lacks the entries that a survey needs."""
    for entry in document["queries"].values():
        entry["query"]["residual predicate"], entry["since"]
    for port in document["ports"]:
        port["holds"]
    return document


def _inputs(plan: Json, step: Step | None) -> tuple[InputSummary, ...]:
    def total(name: str, number: int) -> int:
        return int(step.totals[name][number]) if step else 0

    return tuple(
        InputSummary(
            alias=source["label"],
            stream=source["stream"],
            window=source["window (us)"],
            lateness=source["lateness (us)"],
            newest=step.newest[number] if step else None,
            received=total("received", number),
            late=total("late", number),
            rejected=total("rejected", number),
        )
        for number, source in enumerate(plan.get("sources", []))
    )


def _spine(processor: int, part: str, spine: Spine) -> SpineSummary:
    files = {piece.file.name for piece in spine.slices()}
    return SpineSummary(processor, part, spine.rows, spine.bytes, len(spine.runs), len(spine.merges), len(files))


def _spilled(processor: int, manifest: Manifest, plan: Json, count: int) -> Iterator[SpilledSummary]:
    for identity, state in zip(plan["operators"], manifest.operators, strict=True):
        groups = spilled_groups(state.generations)
        if groups is None:
            continue
        holds = [port["holds"] for port in plan["ports"] if port["identity"].rpartition("/")[0] == identity]
        windows = [
            s["window (us)"] for s in plan["sources"] if s["identity"].rpartition("/")[0].startswith(f"{identity}/")
        ]
        groups_rows = identity in plan["groupings"]
        owing = groups if groups_rows else state.owing() or GroupSet(count, 0)
        # Of groupings, joins with windows and joins of joined rows there is only a bound.
        unbounded = not groups_rows and len(windows) == len(holds) and not any(w is not None for w in windows)
        owed = waiting_rows(state, count, owing) if groups_rows else owed_results(state, count, len(holds))
        yield SpilledSummary(
            processor,
            ", ".join(holds),
            len(state.generations),
            sum(generation.rows for generation in state.generations),
            sum(generation.bytes for generation in state.generations),
            len(groups),
            len(owing),
            owed if owing else 0,
            not unbounded,
        )


def _unreferenced(look: _Look) -> Iterator[str]:
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
