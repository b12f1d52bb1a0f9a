"""Processors with made-up numbers, and a small model of a cluster that does what a Flux policy decides.

In the model every group has a rate and every processor a speed. A batch takes as long as its slowest processor, at
least a second, and groups that move are at their new place in the next batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from anabranch.manager.actions import RelocateGroups
from anabranch.manager.policies.flux import FluxHybrid, FluxLoad, FluxMemory
from anabranch.manager.snapshot import ProcessorView, Snapshot
from tests.manager.snapshots import NOW, operator, processor, snapshot, statistics

Flux = FluxLoad | FluxMemory | FluxHybrid


def fed(
    number: int,
    arrived: dict[int, int],
    busy: float = 0.0,
    sizes: dict[int, int] | None = None,
    memory: int | None = None,
    spilled: Sequence[int] = (),
    spilled_bytes: int = 0,
    moves: bool = False,
    diffused: Sequence[int] = (),
) -> ProcessorView:
    """A processor with groups that so many rows have arrived for, of 10 bytes unless told."""
    known = statistics({group: 10 if sizes is None else sizes[group] for group in arrived}, arrived=arrived)
    groups = operator(known, spilled=spilled, diffused=diffused)
    return processor(number, groups, memory=memory, busy=busy, spilled_bytes=spilled_bytes, moves=moves)


def empty(seen: Snapshot) -> Snapshot:
    """The same processors a second earlier, when nothing had arrived."""
    nobody = [processor(each.processor, memory=each.memory) for each in seen.processors]
    return snapshot(*nobody, at=seen.time - 1 - NOW, step=seen.step - 1)


def round_of(policy: Flux, seen: Snapshot) -> list[RelocateGroups]:
    """What is decided after a round of batches that are alike, in which all that has ever arrived came."""
    assert list(policy.decide(empty(seen))) == []
    for batch in range(policy._rounds.sample - 1):
        assert list(policy.decide(replace(seen, time=seen.time + batch))) == []
    return list(policy.decide(replace(seen, time=seen.time + policy._rounds.sample)))


def moved(actions: Sequence[RelocateGroups]) -> list[tuple[int, int, int]]:
    return [(group, move.sender, move.receiver) for move in actions for group in move.groups]


@dataclass
class Cluster:
    """The model."""

    policy: Flux
    owners: list[int]
    speeds: list[float]
    sizes: list[int] | None = None
    memory: list[int] | None = None
    time: float = NOW
    batch: int = 0
    moves: list[tuple[int, int, int, int]] = field(default_factory=list)
    arrived: list[int] = field(default_factory=list)

    def owned(self, number: int) -> list[int]:
        return [group for group, owner in enumerate(self.owners) if owner == number]

    def busy(self, rates: Sequence[int]) -> list[float]:
        return [sum(rates[group] for group in self.owned(p)) / speed for p, speed in enumerate(self.speeds)]

    def utilisation(self, rates: Sequence[int]) -> list[float]:
        busy = self.busy(rates)
        return [seconds / max(1.0, *busy) for seconds in busy]

    def state(self) -> list[int]:
        assert self.sizes is not None
        return [sum(self.sizes[group] for group in self.owned(p)) for p in range(len(self.speeds))]

    def run(self, batches: int, rates: Callable[[Cluster], Sequence[int]]) -> None:
        for _ in range(batches):
            self.step(rates(self))

    def step(self, rates: Sequence[int]) -> None:
        busy = self.busy(rates)
        seconds = max(1.0, *busy)
        self.time, self.batch = self.time + seconds, self.batch + 1
        self.arrived = [sum(pair) for pair in zip(self.arrived or [0] * len(rates), rates, strict=True)]
        seen = [
            fed(
                p,
                {group: self.arrived[group] for group in self.owned(p)},
                busy[p],
                None if self.sizes is None else dict(enumerate(self.sizes)),
                None if self.memory is None else self.memory[p],
            )
            for p in range(len(self.speeds))
        ]
        shown = snapshot(*seen, at=self.time - NOW, step=self.batch, seconds=seconds)
        for group, sender, receiver in moved(list(self.policy.decide(shown))):
            assert self.owners[group] == sender
            self.owners[group] = receiver
            self.moves.append((self.batch, group, sender, receiver))

    def moves_between(self, first: int, last: int) -> int:
        return sum(first <= batch < last for batch, *_ in self.moves)
