"""Active-disk: lazy-disk that also pushes on purpose, to keep more productive groups in memory (paper 1, section 6).

Spilling is a local decision: the least productive group of one processor may still be far more productive than any of
another. So when memory is balanced (Ml/Mm >= theta_d), but the groups of one processor give much more than those of
another (MaxRate/MinRate > theta_f, `rate_difference`), the unproductive groups of the slow one are forced to disk. That
leaves room, memory is no longer balanced, and lazy-disk moves productive groups there.

The rate of a processor is the results of a sampling time over the number of its partition groups. A sample takes at
least the time-span of relocations, and begins anew whenever memory is uneven or groups move. A single batch says
little; groups that change their place in between would count for the wrong processor; and between two forced pushes
there is time for one relocation, so that the room that the first one made is used before the next.

Too much on disk does harm. All that is forced in a run stays less than Mq - Mc, the estimated need for memory minus the
memory of the cluster. Without a `need` it is estimated: the state, active or spilled, will grow by as much again as
it has grown since the run began, that is, the run is taken to be half over. Without memory budgets nothing is forced.

Limit: what is forced to disk stays there until it is cleaned up; a clean-up in the background that finds the room
first undoes the push.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from anabranch.errors import ConfigError
from anabranch.manager.actions import RelocateGroups, SpillGroups
from anabranch.manager.policies.arguments import is_number, seconds_of
from anabranch.manager.policies.lazy_disk import LazyDisk
from anabranch.manager.policies.spill import Spill
from anabranch.manager.snapshot import Snapshot
from anabranch.observe.numbers import parse_bytes


@dataclass(frozen=True, slots=True)
class Sample:
    """Results by processor since a time."""

    since: float
    results: Mapping[int, int] = field(default_factory=dict)

    def add(self, snapshot: Snapshot) -> Sample:
        """The sample with what was produced up to this snapshot."""
        added = {view.processor: self.results.get(view.processor, 0) + view.results for view in snapshot.processors}
        return replace(self, results=added)

    def rates(self, snapshot: Snapshot) -> dict[int, float]:
        """Results per partition group, of the processors that have any groups."""
        counts = {view.processor: len(view.partitions().group) for view in snapshot.processors}
        return {number: self.results.get(number, 0) / count for number, count in counts.items() if count}


@dataclass(slots=True)
class ActiveDisk:
    """Lazy-disk, and push unproductive groups of a processor to make room for productive ones of others.

    Args:
        difference: as of `LazyDisk`.
        span: as of `LazyDisk`; also the time over which output is compared.
        rate_difference: push when the groups of one processor give more than this many times what those of another give
            on average; from 1 on.
        need: the memory that the query would need in all, such as "2g"; None to estimate it while it runs.
        spill: as of `LazyDisk`; it also says which groups are forced to disk, and how much at a time.
    """

    difference: float = 0.8
    span: str | timedelta = "45 seconds"
    rate_difference: float = 2.0
    need: int | str | None = None
    spill: Spill = field(default_factory=Spill)
    _lazy: LazyDisk = field(init=False, repr=False, compare=False)
    _sample: Sample | None = field(default=None, init=False, repr=False, compare=False)
    _first: int | None = field(default=None, init=False, repr=False, compare=False)
    _forced: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse what makes no sense at once."""
        self._lazy = LazyDisk(self.difference, self.span, self.spill)
        if not is_number(self.rate_difference) or self.rate_difference < 1:
            raise ConfigError(
                f"rate_difference is how many times more one processor gives than another, from 1 on, "
                f"not {self.rate_difference!r}"
            )
        if self.need is not None:
            parse_bytes(self.need)

    def decide(self, snapshot: Snapshot) -> Iterator[RelocateGroups | SpillGroups]:
        """Yield the actions of lazy-disk, and pushes on a processor that has no part in them."""
        state = _state(snapshot)
        self._first = state if self._first is None else self._first
        actions = list(self._lazy.decide(snapshot))
        moving = any(isinstance(action, RelocateGroups) for action in actions)
        if moving or any(view.moves for view in snapshot.processors) or not self._lazy.is_balanced(snapshot):
            self._sample = None
            return iter(actions)
        rates = self._rates(snapshot)
        spilling = {action.processor for action in actions if isinstance(action, SpillGroups)}
        forced = self._force(snapshot, rates, spilling)
        self._forced += sum(action.bytes for action in forced)
        return iter([*actions, *forced])

    def _rates(self, snapshot: Snapshot) -> dict[int, float]:
        """The rate of each processor, if a sampling time ends with this snapshot; otherwise nothing."""
        sample = None if self._sample is None else self._sample.add(snapshot)
        if sample is not None and snapshot.time - sample.since < seconds_of("span", self.span):
            self._sample = sample
            return {}
        self._sample = Sample(snapshot.time)
        return {} if sample is None else sample.rates(snapshot)

    def _force(self, snapshot: Snapshot, rates: dict[int, float], spilling: Collection[int]) -> list[SpillGroups]:
        left = self._left(snapshot)
        if not rates or left is None or self.spill.push == 0:
            return []
        slow, fast = min(rates, key=rates.__getitem__), max(rates, key=rates.__getitem__)
        # MaxRate/MinRate > theta_f, paper 1, section 6
        if slow in spilling or not rates[fast] > self.rate_difference * rates[slow]:
            return []
        processor = next(view for view in snapshot.processors if view.processor == slow)
        reason = (
            f"its groups gave {rates[slow]:,.1f} results each in the last sample, those of processor {fast} "
            f"{rates[fast]:,.1f}: forced, to make room for more productive ones"
        )
        goal = self.spill.push * (processor.active_bytes - processor.unspillable_bytes)
        return list(self.spill.choose(processor, snapshot, goal, reason, most=left - 1))

    def _left(self, snapshot: Snapshot) -> int | None:
        """Mq - Mc (paper 1, section 6), less what was forced before; None if memory is not limited."""
        budgets = [view.memory for view in snapshot.processors if view.memory is not None]
        if len(budgets) < len(snapshot.processors):
            return None
        return self._need(snapshot) - sum(budgets) - self._forced

    def _need(self, snapshot: Snapshot) -> int:
        """Mq: as given, or the state after as much growth again."""
        if self.need is not None:
            return parse_bytes(self.need)
        state = _state(snapshot)
        return state + max(state - (self._first or 0), 0)


def _state(snapshot: Snapshot) -> int:
    """All state of all processors, in memory or on disk."""
    return sum(view.active_bytes + view.spilled_bytes for view in snapshot.processors)
