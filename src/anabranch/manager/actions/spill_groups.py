"""Push partition groups of an operator to disk: they leave the active state, as a generation (paper 1, section 4.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.manager.actions.numbers import to_python_numbers
from anabranch.manager.actions.sentence import Sentence
from anabranch.manager.diffusable import diffused_among
from anabranch.observe.events import EventKind
from anabranch.observe.numbers import format_bytes, format_quantity, numbered
from anabranch.state.groups import GroupSet
from anabranch.state.lagging import answered
from anabranch.state.manifest import Manifest
from anabranch.state.spill import spill

if TYPE_CHECKING:
    from anabranch.manager.actions.change import Change, Context


@dataclass(frozen=True, slots=True)
class SpillGroups:
    """Take partition groups of an operator out of the active state of a processor."""

    processor: int
    operator: int
    groups: tuple[int, ...]
    bytes: int
    reason: str

    def __post_init__(self) -> None:
        """Refuse what is no number."""
        to_python_numbers(self, "processor", "operator", "bytes")

    def problem(self, change: Change, context: Context) -> str | None:
        """Why this makes no sense; None if it does."""
        plan = context.plan
        possible = (
            0 <= self.processor < change.distribution.processors
            and 0 <= self.operator < len(plan.operators)
            and plan.operators[self.operator].spillable
            and plan.has_groups(self.groups)
        )
        if not possible:
            return "it is not there or cannot be spilled"
        diffused = diffused_among(change, self.operator, self.groups)
        return f"{numbered(diffused)} cannot be spilled while diffused; gather first" if diffused else None

    def must_wait(self, change: Change, taken: set[int]) -> bool:
        """Whether the processor takes part in a relocation."""
        return self.processor in change.parties or change.distribution.is_moving(self.processor)

    def apply(self, change: Change, context: Context) -> None:
        """List the groups as spilled."""
        manifest = self._spilled(change.distribution.manifests[self.processor], context)
        change.distribution = change.distribution.with_manifest(self.processor, manifest)
        change.touched.add(self.processor)
        change.pushed.add(self.processor)
        change.sentences.append(self._sentence(context.plan.operators[self.operator].name))

    def _spilled(self, manifest: Manifest, context: Context) -> Manifest:
        operator = context.plan.operators[self.operator]
        groups = GroupSet.of(context.plan.groups, self.groups)
        spines, states = list(manifest.spines), list(manifest.operators)
        own = [spines[port] for port in operator.ports]
        state = states[operator.number]
        for part, reached in answered(state.lagging, groups, context.since[operator.number]):
            own, state = spill(own, state, part, context.step, reached, context.cuts)
        states[operator.number] = state
        for port, spine in zip(operator.ports, own, strict=True):
            spines[port] = spine
        return Manifest(tuple(spines), tuple(states))

    def _sentence(self, operator: str) -> Sentence:
        text = (
            f"{operator}: {format_quantity(len(self.groups), 'group')} of processor {self.processor} pushed to disk "
            f"({format_bytes(self.bytes)}), since {self.reason}"
        )
        details = {
            "processor": self.processor,
            "operator": operator,
            "groups": list(self.groups),
            "bytes": self.bytes,
        }
        return Sentence(EventKind.SPILL, text, details)
