"""A manifest: the whole state of one processor after one step, as metadata.

It lists, per port, the active state (a spine of slices of run files), and per operator what was spilled and the
statistics of its partition groups. Files and sets of groups are described once and referred to, and ports and operators
without anything are null: a report of one round says nothing of the operators of others. A manifest is a
document (`store`): JSON with a checksum. The driver composes the manifest each processor opens in the next step, so
every adaptation of state is an edit made in one place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest

from anabranch.state.generation import Generation, spilled_groups
from anabranch.state.groups import GroupSet
from anabranch.state.lagging import Lagging, among, by_time
from anabranch.state.runs.merge import Merge
from anabranch.state.runs.run import RunFile
from anabranch.state.runs.slice import Cuts, Only, Slice, slices_of_groups
from anabranch.state.runs.spine import Spine
from anabranch.state.statistics import Statistics
from anabranch.state.store import Json

# Rows that are held back, per port.
HeldRows = tuple[tuple[Slice, ...], ...]


@dataclass(frozen=True, slots=True)
class OperatorState:
    """The state of an operator beside the active state at its ports.

    `generations` are spilled, oldest first. `retired` are the groups that have retired rows; None if there are none.
    `held` are rows that are held back before they come to the operator; if it groups, some groups are `lagging` then.
    """

    generations: tuple[Generation, ...] = ()
    statistics: Statistics = field(default_factory=Statistics)
    retired: GroupSet | None = None
    held: HeldRows = ()
    lagging: Lagging = ()

    @property
    def is_blank(self) -> bool:
        """Whether nothing is known of the operator, as where it has not run."""
        vectors = (self.statistics.groups, self.statistics.arrivals.T)
        return (
            not (self.generations or self.held or self.lagging) and self.retired is None and not any(map(len, vectors))
        )

    def union(self, other: OperatorState) -> OperatorState:
        """The state of two processors put together."""
        generations = sorted(self.generations + other.generations, key=lambda generation: generation.step)
        retired = self.retired | other.retired if self.retired and other.retired else self.retired or other.retired
        held = tuple(a + b for a, b in zip_longest(self.held, other.held, fillvalue=()))
        lagging = by_time(self.lagging + other.lagging)
        return OperatorState(tuple(generations), self.statistics.union(other.statistics), retired, held, lagging)

    def of_groups(self, groups: GroupSet, cuts: Cuts) -> OperatorState:
        """The state of some groups only."""
        parts = (generation.of_groups(groups, cuts) for generation in self.generations)
        retired = self.retired & groups if self.retired else None
        kept = tuple(part for part in parts if part.groups)
        held = held_of_groups(self.held, groups, cuts)
        lagging = among(self.lagging, groups)
        return OperatorState(kept, self.statistics.of_groups(groups), retired or None, held, lagging)

    def owing(self) -> GroupSet | None:
        """The groups that have several generations, the active one included; None if nothing is spilled."""
        spilled = spilled_groups(self.generations)
        if spilled is None:
            return None
        active = GroupSet.of(spilled.count, self.statistics.groups[self.statistics.bytes > 0].tolist())
        current = active | self.retired if self.retired else active
        once = twice = GroupSet(spilled.count, 0)
        for groups in (*(generation.groups for generation in self.generations), current):
            twice |= once & groups
            once |= groups
        return twice & spilled


_BLANK = OperatorState()


def held_of_groups(held: HeldRows, groups: GroupSet, cuts: Cuts) -> HeldRows:
    """Restrict rows that are held back to some groups; an empty tuple if none are left."""
    kept = tuple(slices_of_groups(slices, groups, cuts) for slices in held)
    return kept if any(kept) else ()


@dataclass(frozen=True, slots=True)
class Manifest:
    """Spines per port, and the rest per operator, in the order of the plan."""

    spines: tuple[Spine, ...]
    operators: tuple[OperatorState, ...] = ()

    @classmethod
    def empty(cls, ports: int, operators: int = 0) -> Manifest:
        """No state at all."""
        return cls((Spine(),) * ports, (OperatorState(),) * operators)

    def active(self) -> Iterator[Slice]:
        """The slices that arriving rows are looked up in."""
        return (piece for spine in self.spines for piece in spine.slices())

    def spilled(self) -> Iterator[Slice]:
        """The slices that are on disk only: spilled generations, and retired rows that these have still to meet."""
        for spine in self.spines:
            yield from spine.retired
        for operator in self.operators:
            for generation in operator.generations:
                yield from (piece for slices in generation.ports for piece in slices)

    def held(self) -> Iterator[Slice]:
        """Rows that are held back."""
        return (piece for operator in self.operators for slices in operator.held for piece in slices)

    def files(self) -> dict[str, RunFile]:
        """Every file that the manifest refers to, by name."""
        return {piece.file.name: piece.file for piece in chain(self.active(), self.spilled(), self.held())}

    @property
    def rows(self) -> int:
        """Active rows of all ports."""
        return sum(spine.rows for spine in self.spines)

    @property
    def bytes(self) -> int:
        """Active bytes of all ports."""
        return sum(spine.bytes for spine in self.spines)

    @property
    def spilled_bytes(self) -> int:
        """Bytes that are on disk only."""
        return sum(piece.bytes for piece in self.spilled())

    def union(self, other: Manifest) -> Manifest:
        """Both manifests' state, port by port and operator by operator."""
        return Manifest(
            tuple(a.union(b) for a, b in zip(self.spines, other.spines, strict=True)),
            tuple(a.union(b) for a, b in zip(self.operators, other.operators, strict=True)),
        )

    def of_groups(self, groups: Sequence[GroupSet], owners: Sequence[int], cuts: Cuts) -> Manifest:
        """The state of some groups of each operator; `owners` are the operators that ports belong to."""
        return Manifest(
            tuple(spine.of_groups(groups[n], cuts) for n, spine in zip(owners, self.spines, strict=True)),
            tuple(state.of_groups(own, cuts) for own, state in zip(groups, self.operators, strict=True)),
        )

    def to_json(self) -> Json:
        """The manifest as JSON."""
        writer = _Writer()
        inputs = [
            None
            if spine == Spine()
            else {
                "runs": [writer.slices(run) for run in spine.runs],
                "merges": [
                    {
                        "target": writer.slices(merge.target),
                        "sources": [writer.slices(source) for source in merge.sources],
                    }
                    for merge in spine.merges
                ],
                "retired": writer.slices(spine.retired),
            }
            for spine in self.spines
        ]
        operators = [
            None
            if operator.is_blank
            else {
                "generations": [
                    {
                        "step": generation.step,
                        "groups": writer.group_set(generation.groups),
                        "since": generation.since,
                        "ports": [writer.slices(slices) for slices in generation.ports],
                        "sizes": list(generation.sizes),
                        "produced": list(generation.produced),
                    }
                    for generation in operator.generations
                ],
                "statistics": operator.statistics.to_json(),
                "retired": None if operator.retired is None else writer.group_set(operator.retired),
                "held": [writer.slices(slices) for slices in operator.held],
                "overdue": [[writer.group_set(groups), time] for groups, time in operator.lagging],
            }
            for operator in self.operators
        ]
        return {
            "files": {name: file.to_json() for name, file in self.files().items()},
            "group_sets": writer.sets,
            "inputs": inputs,
            "operators": operators,
        }

    @classmethod
    def from_json(cls, data: Json) -> Manifest:
        """The inverse of `to_json`."""
        files = {name: RunFile.from_json(name, file) for name, file in data["files"].items()}
        sets = [GroupSet.from_text(int(count), text) for count, text in data["group_sets"]]

        def slices(entries: Iterable[Sequence[int | str]]) -> tuple[Slice, ...]:
            listed = []
            for name, start, stop, *only in entries:
                restriction = Only(sets[int(only[0])], int(only[1])) if only else None
                listed.append(Slice(files[str(name)], int(start), int(stop), restriction))
            return tuple(listed)

        spines = (
            Spine()
            if entry is None
            else Spine(
                tuple(slices(run) for run in entry["runs"]),
                tuple(
                    Merge(slices(merge["target"]), tuple(slices(source) for source in merge["sources"]))
                    for merge in entry["merges"]
                ),
                slices(entry["retired"]),
            )
            for entry in data["inputs"]
        )
        operators = (
            _BLANK
            if entry is None
            else OperatorState(
                tuple(
                    Generation(
                        generation["step"],
                        sets[generation["groups"]],
                        generation["since"],
                        tuple(slices(port) for port in generation["ports"]),
                        tuple(generation["sizes"]),
                        tuple(generation["produced"]),
                    )
                    for generation in entry["generations"]
                ),
                Statistics.from_json(entry["statistics"]),
                None if entry["retired"] is None else sets[entry["retired"]],
                tuple(slices(port) for port in entry["held"]),
                tuple((sets[groups], time) for groups, time in entry["overdue"]),
            )
            for entry in data["operators"]
        )
        return cls(tuple(spines), tuple(operators))


class _Writer:
    """Slices as JSON. Each set of groups is written once, as its number of groups and its text."""

    def __init__(self) -> None:
        self.sets: list[list[int | str]] = []
        self._numbers: dict[GroupSet, int] = {}

    def group_set(self, groups: GroupSet) -> int:
        if groups not in self._numbers:
            self._numbers[groups] = len(self.sets)
            self.sets.append([groups.count, groups.to_text()])
        return self._numbers[groups]

    def slices(self, slices: Iterable[Slice]) -> list[list[int | str]]:
        return [[piece.file.name, piece.start, piece.stop, *self._only(piece.only)] for piece in slices]

    def _only(self, only: Only | None) -> list[int]:
        return [] if only is None else [self.group_set(only.groups), only.rows]
