"""Check the state files of a checkpoint, and count rows and bytes by partition group on the way.

Every file is mapped once and its checksum verified; a quick survey compares sizes only. Once it is known where groups
begin in the files, every row must be listed once, by a processor that it belongs to (`broken_shares`).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anabranch.checkpoint.step import Step
from anabranch.checkpoint.survey.look import Look
from anabranch.errors import CorruptStateError
from anabranch.observe.inspection import GroupSummary
from anabranch.state.broken_shares import broken_shares
from anabranch.state.groups import group_counts
from anabranch.state.manifest import Manifest
from anabranch.state.runs.run import FileCuts, RunFile, map_run
from anabranch.state.runs.slice import Slice


def verify(look: Look, newest: int | None, quick: bool) -> tuple[GroupSummary, ...]:
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


def _check_shares(look: Look, step: Step, cuts: FileCuts) -> None:
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
