"""A manifest: the whole state of one processor after one step, as metadata.

It lists, per join input, the spine (slices of run files). Files are described once and referred to by name. A
manifest is a document (`store`): JSON with a checksum. The driver composes the manifest each processor opens in the
next step, so every adaptation of state is an edit made in one place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from anabranch.state.run import RunFile
from anabranch.state.spine import Merge, Slice, SortedRun, Spine
from anabranch.state.store import Json


@dataclass(frozen=True, slots=True)
class Manifest:
    """Spines per input, in the order of the query's inputs."""

    spines: tuple[Spine, ...]

    @classmethod
    def empty(cls, inputs: int) -> Manifest:
        """No state at all."""
        return cls((Spine(),) * inputs)

    def files(self) -> dict[str, RunFile]:
        """Every file that the manifest refers to, by name."""
        return {piece.file.name: piece.file for spine in self.spines for piece in spine.slices()}

    @property
    def rows(self) -> int:
        """Active rows of all inputs."""
        return sum(spine.rows for spine in self.spines)

    @property
    def bytes(self) -> int:
        """Active bytes of all inputs."""
        return sum(spine.bytes for spine in self.spines)

    def union(self, other: Manifest) -> Manifest:
        """Both manifests' state, input by input."""
        return Manifest(tuple(a.union(b) for a, b in zip(self.spines, other.spines, strict=True)))

    def to_json(self) -> Json:
        """The manifest as JSON."""
        return {
            "files": {name: file.to_json() for name, file in self.files().items()},
            "inputs": [
                {
                    "runs": [_run_to_json(run) for run in spine.runs],
                    "merges": [
                        {
                            "target": _run_to_json(merge.target),
                            "sources": [_run_to_json(source) for source in merge.sources],
                        }
                        for merge in spine.merges
                    ],
                }
                for spine in self.spines
            ],
        }

    @classmethod
    def from_json(cls, data: Json) -> Manifest:
        """The inverse of `to_json`."""
        files = {name: RunFile.from_json(name, file) for name, file in data["files"].items()}

        def run(slices: Iterable[list[int | str]]) -> SortedRun:
            return tuple(Slice(files[str(name)], int(start), int(stop)) for name, start, stop in slices)

        return cls(
            tuple(
                Spine(
                    tuple(run(slices) for slices in entry["runs"]),
                    tuple(
                        Merge(run(merge["target"]), tuple(run(source) for source in merge["sources"]))
                        for merge in entry["merges"]
                    ),
                )
                for entry in data["inputs"]
            )
        )


def _run_to_json(run: SortedRun) -> list[list[int | str]]:
    return [[piece.file.name, piece.start, piece.stop] for piece in run]
