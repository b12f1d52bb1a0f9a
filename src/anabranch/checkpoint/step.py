"""Steps as a checkpoint has them: the kinds of steps, and a committed one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from anabranch.manager.diffusion import Diffusion
from anabranch.manager.relocation import Relocation
from anabranch.plan.placement import Placement, as_blocks, from_blocks
from anabranch.plan.routing import Routing
from anabranch.state.groups import GroupSet
from anabranch.state.spill import CleanUp
from anabranch.state.store import Json


@dataclass(frozen=True, slots=True)
class Batch:
    """A step with a micro-batch of Spark's."""

    batch_id: int
    name: ClassVar[str] = "step"


@dataclass(frozen=True, slots=True)
class Delivery:
    """A step without a batch that delivers owed results: groups are cleaned up, and rows go on that were held back.

    `number` counts steps without a batch. `clean_up` is by operator of the plan with the number `plan`.
    """

    number: int
    clean_up: dict[int, CleanUp]
    plan: int
    name: ClassVar[str] = "clean-up"


@dataclass(frozen=True, slots=True)
class End:
    """A step without a batch that treats the input as ended: rows that waited for the end are answered."""

    number: int
    clean_up: dict[int, CleanUp]
    plan: int
    name: ClassVar[str] = "end"


@dataclass(frozen=True, slots=True)
class Replay:
    """A step without a batch and without answers: rows of a shadow that have waited go on, those in `hold` still wait.

    Nothing is settled in it, no sink is called, and nothing has to be on record before.
    """

    hold: dict[int, GroupSet]
    name: ClassVar[str] = "replay"


# Steps without a batch that give answers: on record before they are made, so that they are made again after a crash.
Announced = Delivery | End
# Steps that processors take part in. A step that only lists state elsewhere is committed by `in_force`.
StepKind = Batch | Delivery | End | Replay


@dataclass(frozen=True, slots=True)
class InitialPlacement:
    """The number of processors and the placement of each operator that a program asks for."""

    processors: int
    placements: tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """A committed step. `newest` is the greatest event time so far per source; totals count since the beginning.

    State is listed on `processors`; `routings` say where each operator is. Per grouping, rows older than `settled` have
    been answered. `extra` counts the steps so far that had no batch; each was delivered under an id of its own, so the
    ids of later batches are moved up by it. By operator, the next batch cleans up the groups of `clean_up` in passing,
    and the rows of the groups in `hold` wait in it. `moving` are relocations under way, and `diffusions` say since when
    and why groups are diffused. `initial` is the placement that the program asked for: as long as it asks for the same,
    groups that have moved since stay where they are. `families` are per operator, and those `apart` run in rounds of
    their own although others could run fused with them. Of these, `parted` are there while groups of them are diffused,
    each with the operators that it is to run fused with again.
    """

    number: int
    batch_id: int
    epoch: int
    processors: int
    routings: tuple[Routing, ...]
    reports: tuple[str, ...]
    newest: tuple[int | None, ...]
    totals: dict[str, Any]
    plan: int
    settled: tuple[int | None, ...] = ()
    extra: int = 0
    clean_up: dict[int, CleanUp] = field(default_factory=dict)
    hold: dict[int, GroupSet] = field(default_factory=dict)
    moving: tuple[Relocation, ...] = ()
    initial: InitialPlacement = InitialPlacement(0, ())
    diffusions: tuple[Diffusion, ...] = ()
    families: tuple[int, ...] = ()
    apart: tuple[int, ...] = ()
    parted: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def to_json(self) -> Json:
        """The step as the document that is committed."""
        names = [entry.name for entry in fields(self) if entry.name not in ("routings", "initial")]
        return {
            **{name: getattr(self, name) for name in names},
            "placements": [routing.to_json() for routing in self.routings],
            "clean_up": clean_up_to_json(self.clean_up),
            "hold": {str(n): [groups.count, groups.to_text()] for n, groups in self.hold.items()},
            "moving": [relocation.to_json() for relocation in self.moving],
            "diffusions": [diffusion.to_json() for diffusion in self.diffusions],
            "parted": {str(n): list(kin) for n, kin in self.parted.items()},
            "asked": [self.initial.processors, [as_blocks(placement) for placement in self.initial.placements]],
        }

    @classmethod
    def from_json(cls, body: Json) -> Step:
        """The inverse of `to_json`."""
        return cls(
            body["number"],
            body["batch_id"],
            body["epoch"],
            body["processors"],
            tuple(map(Routing.from_json, body["placements"])),
            tuple(body["reports"]),
            tuple(body["newest"]),
            body["totals"],
            body["plan"],
            tuple(body["settled"]),
            body["extra"],
            clean_up_from_json(body["clean_up"]),
            {int(n): GroupSet.from_text(count, text) for n, (count, text) in body["hold"].items()},
            tuple(Relocation.from_json(entry) for entry in body["moving"]),
            InitialPlacement(body["asked"][0], tuple(from_blocks(blocks) for blocks in body["asked"][1])),
            tuple(Diffusion.from_json(entry) for entry in body["diffusions"]),
            tuple(body["families"]),
            tuple(body["apart"]),
            {int(n): tuple(kin) for n, kin in body["parted"].items()},
        )


def clean_up_to_json(clean_up: Mapping[int, CleanUp]) -> Json:
    """The groups to clean up, by operator, as stored."""
    return {str(operator): cleaning.to_json() for operator, cleaning in clean_up.items()}


def clean_up_from_json(body: Json) -> dict[int, CleanUp]:
    """The inverse of `clean_up_to_json`."""
    return {int(operator): CleanUp.from_json(cleaning) for operator, cleaning in body.items()}
