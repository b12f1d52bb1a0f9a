"""Policies that decide by chance, so that whatever can be done to a running query is done to it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from anabranch.manager.actions import SpillGroups
from anabranch.manager.snapshot import Snapshot


@dataclass(frozen=True)
class ChanceSpill:
    """After every step, push some groups of every operator, or all, or none."""

    seed: int

    def decide(self, snapshot: Snapshot) -> Iterator[SpillGroups]:
        rng = random.Random(f"{self.seed} {snapshot.step}")
        for processor in snapshot.processors:
            for seen in (seen for seen in processor.operators if seen.spillable):
                share = rng.choice([0, 0.3, 0.7, 1])
                active = seen.statistics.groups[seen.statistics.bytes > 0].tolist()
                groups = tuple(group for group in active if rng.random() < share)
                if groups:
                    yield SpillGroups(processor.processor, seen.operator, groups, 0, "chance would have it")
