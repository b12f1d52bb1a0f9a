"""Lazy-disk: relocate while another processor has room, spill only where that does not help (paper 1, sections 5, 6).

With Mm the most and Ml the least active bytes of a processor: when Ml/Mm < `difference` (theta_d), and at least `span`
(the minimum time-span) after the last relocation, up to (Mm - Ml)/2 bytes move from the one to the other. The paper
takes the receiver to have room. Here budgets may differ, so the receiver is the least used of those that have any, and
gets no more than what fits below its own spill threshold; without budgets memory is only evened out.

The most productive groups (smallest Ps/Po) go first, and spill takes the least productive: so that the productive ones
stay in memory somewhere. For a move the results of late count, whatever `spill` goes by, since the past may not predict
(footnote 5): a group that is productive now goes on growing at its new place, and memory stays even for longer than if
groups moved that once were productive.

A group that does not fit into what is left of the amount is passed over. So a move never overshoots: afterwards the
sender still has at least as much as the receiver, and the move cannot be undone by the next. Groups of which some state
is on disk stay where they are: clean-up finds all their generations in one place.

One adaptation at a time (paper 1, figure 18): a processor that sends or receives does not spill in the same decision,
nor does one with a move under way, which does not send or receive either. A sender that is still over its threshold
after the move spills at the next decision, since then the time-span forbids another move.

Limit: as in the paper the difference is one of bytes, not of shares of budgets. A processor with a small budget may
spill while others have room; `FluxMemory` balances what processors lack.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from anabranch.errors import ConfigError
from anabranch.manager.actions import RelocateGroups, SpillGroups
from anabranch.manager.policies.arguments import is_number, seconds_of
from anabranch.manager.policies.spill import Spill, fitting, size_over_output
from anabranch.manager.snapshot import Partitions, ProcessorView, Snapshot
from anabranch.observe.numbers import format_bytes


@dataclass(slots=True)
class LazyDisk:
    """Even out memory between processors, and push to disk only what no other processor has room for.

    Args:
        difference: relocate when the least used processor has less than this share of the active bytes of the most
            used one; from 0 (never) to 1.
        span: the time from one relocation to the next, at least.
        spill: what to do with a processor that is over its memory when relocation does not help.
    """

    difference: float = 0.8
    span: str | timedelta = "45 seconds"
    spill: Spill = field(default_factory=Spill)
    _relocated: float | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse what makes no sense at once."""
        if not is_number(self.difference) or not 0 <= self.difference <= 1:
            raise ConfigError(
                f"difference is the share of the most used memory below which groups move, from 0 to 1, "
                f"not {self.difference!r}"
            )
        seconds_of("span", self.span)
        if not isinstance(self.spill, Spill):
            raise ConfigError(f"spill must be a policy such as ab.Spill(push=0.3), not {self.spill!r}")

    def decide(self, snapshot: Snapshot) -> Iterator[RelocateGroups | SpillGroups]:
        """Yield moves, and pushes on processors that have no part in them."""
        moves = self._relocate(snapshot)
        if moves:
            self._relocated = snapshot.time
        parties = {processor for move in moves for processor in (move.sender, move.receiver)}
        others = [view for view in snapshot.processors if view.processor not in parties]
        return iter([*moves, *self.spill.relieve(others, snapshot)])

    def is_balanced(self, snapshot: Snapshot) -> bool:
        """Whether no processor has much less in memory than another: Ml/Mm >= theta_d."""
        used = [view.active_bytes for view in snapshot.processors]
        return min(used) >= self.difference * max(used)

    def _relocate(self, snapshot: Snapshot) -> list[RelocateGroups]:
        if self._relocated is not None and snapshot.time - self._relocated < seconds_of("span", self.span):
            return []
        pair = self._pair(snapshot)
        if pair is None:
            return []
        sender, receiver = pair
        # (Mm - Ml)/2, paper 1, section 5.1
        amount = min((sender.active_bytes - receiver.active_bytes) / 2, self._room(receiver))
        partitions = sender.partitions()
        reason = (
            f"processor {receiver.processor} has {format_bytes(receiver.active_bytes)} in memory, less than "
            f"{self.difference:.0%} of {format_bytes(sender.active_bytes)}"
        )
        return relocate(sender.processor, receiver.processor, partitions, self._choose(partitions, amount), reason)

    def _pair(self, snapshot: Snapshot) -> tuple[ProcessorView, ProcessorView] | None:
        """The sender and the receiver, if memory is that uneven."""
        still = [view for view in snapshot.processors if not view.moves]
        roomy = [view for view in still if self._room(view) > 0]
        if not roomy:
            return None
        sender = max(still, key=lambda view: view.active_bytes)
        receiver = min(roomy, key=lambda view: view.active_bytes)
        uneven = receiver.active_bytes < self.difference * sender.active_bytes
        return (sender, receiver) if uneven else None

    def _room(self, receiver: ProcessorView) -> float:
        """How many bytes a processor can take without having to push them to disk."""
        return self.spill.allowed(receiver) - receiver.active_bytes

    def _choose(self, partitions: Partitions, amount: float) -> NDArray[np.int64]:
        """The positions of the most productive groups that make up the amount."""
        movable = np.flatnonzero(~partitions.spilled & ~partitions.diffused & (partitions.bytes > 0))
        order = movable[np.argsort(size_over_output(partitions.bytes, partitions.recent)[movable], kind="stable")]
        return order[fitting(partitions.bytes[order], amount)]


def relocate(
    sender: int, receiver: int, partitions: Partitions, chosen: NDArray[np.int64], reason: str
) -> list[RelocateGroups]:
    """Move the groups at some positions: groups of several families take an action each."""
    moves = []
    for family in np.unique(partitions.family[chosen]).tolist():
        own = chosen[partitions.family[chosen] == family]
        groups = tuple(sorted(partitions.group[own].tolist()))
        moves.append(RelocateGroups(family, groups, sender, receiver, int(partitions.bytes[own].sum()), reason))
    return moves
