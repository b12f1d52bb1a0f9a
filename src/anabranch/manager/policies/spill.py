"""Spill: push unproductive partition groups to disk when memory runs short (paper 1, section 4.3).

When a processor uses more than `threshold` of its memory (Mu/Ma > theta_m), a share of its active state is pushed: k%
of it, and at least as much as is needed to come back to the threshold. Groups that nothing was inserted into for longer
than `idle` (theta_t) go first, longest idle first; then the others in an order. By default that is the least productive
first: the largest Ps/Po, size over output. The other orders exist for comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from anabranch.errors import ConfigError, QueryError, did_you_mean
from anabranch.language.duration import parse_duration
from anabranch.manager.actions import SpillGroups
from anabranch.manager.snapshot import ProcessorSeen, Snapshot
from anabranch.observe.numbers import format_bytes

CUMULATIVE = "cumulative"
RECENT = "recent"
MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Candidates:
    """The groups of a processor that can be pushed, of all operators, as vectors."""

    operator: NDArray[np.int64]
    group: NDArray[np.int64]
    bytes: NDArray[np.int64]
    produced: NDArray[np.float64]
    inserted: NDArray[np.float64]

    @property
    def productivity(self) -> NDArray[np.float64]:
        """Ps/Po: large means unproductive. Groups without any result are the least productive, larger ones first."""
        return self.bytes / np.maximum(self.produced, 1e-3)


Order = Callable[[Candidates, np.random.Generator], NDArray[np.float64]]

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
        push: the share of the active state to push at a time, from 0 (never) to 1.
        threshold: the share of `memory` above which this happens.
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
        if not _is_number(self.push) or not 0 <= self.push <= 1:
            raise ConfigError(f"push is the share of the active state to push, from 0 to 1, not {self.push!r}")
        if not _is_number(self.threshold) or not 0 < self.threshold <= 1:
            raise ConfigError(f"threshold is a share of the memory, above 0 and up to 1, not {self.threshold!r}")
        if not isinstance(self.seed, int) or self.seed < 0:
            raise ConfigError(f"seed must be a whole number from 0 on, not {self.seed!r}")
        if not isinstance(self.order, str) or self.order not in ORDERS:
            raise ConfigError(f"there is no order {self.order!r}; {did_you_mean(str(self.order), list(ORDERS))}")
        if self.productivity not in (CUMULATIVE, RECENT):
            hint = did_you_mean(str(self.productivity), [CUMULATIVE, RECENT])
            raise ConfigError(f"there is no productivity {self.productivity!r}; {hint}")
        if self.idle is not None:
            if not isinstance(self.idle, str | timedelta):
                raise ConfigError(f"idle must be a length of time, such as '10 minutes', not {self.idle!r}")
            try:
                parse_duration(self.idle)
            except QueryError as error:
                raise ConfigError(f"idle: {error}") from None

    def decide(self, snapshot: Snapshot) -> Iterator[SpillGroups]:
        """What to push on each processor that is over its threshold."""
        if snapshot.memory is None or self.push == 0:
            return
        allowed = self.threshold * snapshot.memory
        for processor in snapshot.processors:
            if processor.active_bytes > allowed:
                # Sizes of groups are rounded up, by less than a byte each.
                rounding = sum(len(seen.statistics.groups) for seen in processor.operators)
                goal = max(self.push * processor.active_bytes, processor.active_bytes - allowed + rounding)
                reason = (
                    f"{format_bytes(processor.active_bytes)} of active state are more than "
                    f"{self.threshold:.0%} of {format_bytes(snapshot.memory)}"
                )
                yield from self._push(processor, snapshot, goal, reason)

    def _push(self, processor: ProcessorSeen, snapshot: Snapshot, goal: float, reason: str) -> Iterator[SpillGroups]:
        groups = self._candidates(processor)
        if len(groups.group) == 0:
            return
        chance = np.random.default_rng([self.seed, snapshot.step, processor.processor])
        order = np.argsort(ORDERS[self.order](groups, chance), kind="stable")
        if self.idle is not None:
            idle = snapshot.time - groups.inserted[order] > parse_duration(self.idle) / MICROSECONDS
            first = order[idle]
            order = np.concatenate([first[np.argsort(groups.inserted[first], kind="stable")], order[~idle]])
        enough = int(np.searchsorted(np.cumsum(groups.bytes[order]), goal, side="left")) + 1
        chosen = order[:enough]
        for operator in np.unique(groups.operator[chosen]).tolist():
            own = chosen[groups.operator[chosen] == operator]
            numbers = tuple(sorted(groups.group[own].tolist()))
            yield SpillGroups(processor.processor, operator, numbers, int(groups.bytes[own].sum()), reason)

    def _candidates(self, processor: ProcessorSeen) -> Candidates:
        seen = [(entry.operator, entry.statistics) for entry in processor.operators if entry.spillable]
        parts = []
        for operator, known in seen:
            there = known.bytes > 0
            counted = known.recent if self.productivity == RECENT else known.produced.astype(np.float64)
            groups = known.groups[there]
            operators = np.full(len(groups), operator)
            parts.append((operators, groups, known.bytes[there], counted[there], known.inserted[there]))
        if not parts:
            none, nothing = np.empty(0, dtype=np.int64), np.empty(0)
            return Candidates(none, none, none, nothing, nothing)
        return Candidates(*(np.concatenate(vectors) for vectors in zip(*parts, strict=True)))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
