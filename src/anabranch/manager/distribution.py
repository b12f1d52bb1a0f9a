"""Which processor has which state between two batches: one value, which is edited before a step is committed.

A change takes effect when the step is committed that it belongs to. `connection_manager` makes the edits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from anabranch.manager.diffusion import Diffusion
from anabranch.manager.relocation import Relocation
from anabranch.plan.placement import Placement
from anabranch.plan.routing import Routing
from anabranch.state.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Distribution:
    """The manifest of each processor, the routing of each operator, and the relocations under way.

    There is an entry in `diffusions` for every group that is diffused.
    """

    manifests: tuple[Manifest, ...]
    routings: tuple[Routing, ...]
    moving: tuple[Relocation, ...] = ()
    diffusions: tuple[Diffusion, ...] = ()

    @property
    def placements(self) -> tuple[Placement, ...]:
        """The home of every partition group of each operator."""
        return tuple(routing.placement for routing in self.routings)

    @property
    def groups(self) -> int:
        """How many partition groups there are."""
        return len(self.routings[0].placement)

    @property
    def processors(self) -> int:
        """How many processors there are."""
        return len(self.manifests)

    def with_manifest(self, processor: int, manifest: Manifest) -> Distribution:
        """The distribution with another manifest for one processor."""
        listed = list(self.manifests)
        listed[processor] = manifest
        return replace(self, manifests=tuple(listed))

    def is_moving(self, processor: int) -> bool:
        """Whether groups are on their way to a processor or from it."""
        return any(processor in (entry.move.sender, entry.move.receiver) for entry in self.moving)
