"""Spill: push unproductive partition groups to disk when memory runs short (paper 1, section 4.3).

When a processor uses more than `threshold` of its memory (Mu/Ma > theta_m), a share of its active state is pushed: k%
of it, and at least as much as is needed to come back to the threshold. Groups that nothing was inserted into for longer
than `idle` (theta_t) go first, longest idle first; then the others in an order. By default that is the least productive
first: the largest Ps/Po, size over output. The other orders exist for comparison.

Only what can be pushed counts for k%, and it keeps a part of the memory whatever the rest takes: see `memory_use`. A
group that was brought back in this step or the last is pushed only if there is no other, so that clean-up is not undone
at once.

Policies that do more than spill are built from the same parts: what is over its threshold, the order, and how arguments
are checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anabranch.errors import ConfigError, did_you_mean
from anabranch.manager.actions import SpillGroups
from anabranch.manager.memory.memory_use import allowed_bytes
from anabranch.manager.policies.arguments import is_number, seconds_of
from anabranch.manager.snapshot import OperatorView, ProcessorView, Snapshot
from anabranch.observe.numbers import format_bytes

CUMULATIVE = "cumulative"
RECENT = "recent"


@dataclass(frozen=True, slots=True)
class SpillCandidates:
    """The groups of a processor that can be pushed, of all operators, as vectors."""

    operator: NDArray[np.int64]
    group: NDArray[np.int64]
    bytes: NDArray[np.int64]
    produced: NDArray[np.float64]
    inserted: NDArray[np.float64]

    @property
    def productivity(self) -> NDArray[np.float64]:
        """Ps/Po: large means unproductive. Groups without any result are the least productive, larger ones first."""
        return size_over_output(self.bytes, self.produced)


def size_over_output(sizes: NDArray[np.int64], produced: NDArray[Any]) -> NDArray[np.float64]:
    """Ps/Po of some groups (paper 1, section 4.3)."""
    ratio: NDArray[np.float64] = sizes / np.maximum(produced, 1e-3)
    return ratio


Order = Callable[[SpillCandidates, np.random.Generator], NDArray[np.float64]]

# What is pushed first has the smallest value.
ORDERS: dict[str, Order] = {
    "least-productive": lambda groups, _: -groups.productivity,
    "most-productive": lambda groups, _: groups.productivity,
    "largest": lambda groups, _: -groups.bytes.astype(np.float64),
    "least-recently-used": lambda groups, _: groups.inserted,
    "random": lambda groups, chance: chance.random(len(groups.group)),
}


@dataclass(frozen=True, slots=True)
class Spill:
    """Push partition groups to disk when the active state of a processor outgrows its memory.

    Args:
        push: the share to push at a time, of the active state that can be pushed, from 0 (never) to 1.
        threshold: the share of `memory` above which this happens. State that cannot be pushed counts, too, but the rest
            may always take half of that.
        order: which groups go first: "least-productive", "most-productive", "largest", "least-recently-used", "random".
        idle: groups that nothing arrived for in this time go before all others, such as "10 minutes"; None for no such
            rule.
        productivity: whether all results of a group count ("cumulative") or old ones less and less ("recent").
        seed: for the order "random".
    """

    push: float = 0.3
    threshold: float = 1.0
    order: str = "least-productive"
    idle: str | timedelta | None = "10 minutes"
    productivity: str = CUMULATIVE
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what makes no sense at once."""
        if not is_number(self.push) or not 0 <= self.push <= 1:
            raise ConfigError(f"push is the share of the active state to push, from 0 to 1, not {self.push!r}")
        if not is_number(self.threshold) or not 0 < self.threshold <= 1:
            raise ConfigError(f"threshold is a share of the memory, above 0 and up to 1, not {self.threshold!r}")
        if not isinstance(self.seed, int) or self.seed < 0:
            raise ConfigError(f"seed must be a whole number from 0 on, not {self.seed!r}")
        if not isinstance(self.order, str) or self.order not in ORDERS:
            raise ConfigError(f"there is no order {self.order!r}; {did_you_mean(str(self.order), list(ORDERS))}")
        if self.productivity not in (CUMULATIVE, RECENT):
            hint = did_you_mean(str(self.productivity), [CUMULATIVE, RECENT])
            raise ConfigError(f"there is no productivity {self.productivity!r}; {hint}")
        if self.idle is not None:
            seconds_of("idle", self.idle, "10 minutes")

    def decide(self, snapshot: Snapshot) -> Iterator[SpillGroups]:
        """Yield pushes for each processor that is over its threshold."""
        return self.relieve(snapshot.processors, snapshot)

    def allowed(self, processor: ProcessorView) -> float:
        """The active bytes up to which nothing has to be pushed."""
        if processor.memory is None:
            return math.inf
        return allowed_bytes(self.threshold * processor.memory, processor.unspillable_bytes)

    def relieve(self, processors: Iterable[ProcessorView], snapshot: Snapshot) -> Iterator[SpillGroups]:
        """Yield pushes for those of some processors that are over their threshold."""
        for processor in processors if self.push else ():
            allowed = self.allowed(processor)
            if processor.memory is None or processor.moves or processor.active_bytes <= allowed:
                continue
            # Sizes of groups are rounded up, by less than a byte each.
            rounding = sum(len(view.statistics.groups) for view in processor.operators)
            goal = max(
                self.push * (processor.active_bytes - processor.unspillable_bytes),
                processor.active_bytes - allowed + rounding,
            )
            reason = (
                f"{format_bytes(processor.active_bytes)} of active state are more than "
                f"{self.threshold:.0%} of {format_bytes(processor.memory)}"
            )
            yield from self.choose(processor, snapshot, goal, reason)

    def choose(
        self, processor: ProcessorView, snapshot: Snapshot, goal: float, reason: str, most: float = math.inf
    ) -> Iterator[SpillGroups]:
        """The first groups in the order that make up `goal` bytes; those that would make it more than `most` stay."""
        groups = self._candidates(processor)
        order = self._in_order(groups, snapshot, processor.processor)
        order = order[fitting(groups.bytes[order], most)]
        enough = int(np.searchsorted(np.cumsum(groups.bytes[order]), goal, side="left")) + 1
        chosen = order[:enough]
        for operator in np.unique(groups.operator[chosen]).tolist():
            own = chosen[groups.operator[chosen] == operator]
            numbers = tuple(sorted(groups.group[own].tolist()))
            yield SpillGroups(processor.processor, operator, numbers, int(groups.bytes[own].sum()), reason)

    def _in_order(self, groups: SpillCandidates, snapshot: Snapshot, processor: int) -> NDArray[np.int64]:
        chance = np.random.default_rng([self.seed, snapshot.step, processor])
        order = np.argsort(ORDERS[self.order](groups, chance), kind="stable")
        if self.idle is None:
            return order
        idle = snapshot.time - groups.inserted[order] > seconds_of("idle", self.idle)
        first = order[idle]
        return np.concatenate([first[np.argsort(groups.inserted[first], kind="stable")], order[~idle]])

    def _candidates(self, processor: ProcessorView) -> SpillCandidates:
        spillable = [entry for entry in processor.operators if entry.spillable]
        settled = _candidates(spillable, self.productivity, with_returned=False)
        return settled if len(settled.group) else _candidates(spillable, self.productivity, with_returned=True)


def _candidates(operators: Iterable[OperatorView], productivity: str, *, with_returned: bool) -> SpillCandidates:
    """The groups of some operators that have any state, with or without those that have just returned from disk."""
    parts = []
    for view in operators:
        statistics = view.statistics
        there = statistics.bytes > 0
        if view.returned is not None and not with_returned:
            there &= ~view.returned.mask()[statistics.groups]
        if view.diffused is not None:
            there &= ~view.diffused.mask()[statistics.groups]
        counted = statistics.recent if productivity == RECENT else statistics.produced.astype(np.float64)
        groups = statistics.groups[there]
        numbers = np.full(len(groups), view.operator)
        parts.append((numbers, groups, statistics.bytes[there], counted[there], statistics.inserted[there]))
    if not parts:
        none, nothing = np.empty(0, dtype=np.int64), np.empty(0)
        return SpillCandidates(none, none, none, nothing, nothing)
    return SpillCandidates(*(np.concatenate(vectors) for vectors in zip(*parts, strict=True)))


def fitting(sizes: NDArray[np.int64], most: float) -> NDArray[np.int64]:
    """The positions of those that fit into `most` bytes, taken in turn: one that is too large for the rest is left."""
    if sizes.sum() <= most:
        return np.arange(len(sizes))
    chosen, left = [], most
    for position, size in enumerate(sizes.tolist()):
        if size <= left:
            chosen.append(position)
            left -= size
    return np.array(chosen, dtype=np.int64)
