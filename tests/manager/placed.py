"""Operators that are whole on processors, and a small cluster that carries out what redistribution decides.

A plan is given by what feeds each operator: `{2: (0, 1)}` is an operator 2 above the operators 0 and 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.manager.actions import ReallocateOperator
from anabranch.manager.plan_shape import Edge, OperatorShape, PlanShape
from anabranch.manager.policies.balance import Balance
from anabranch.manager.policies.degradation import Degradation
from anabranch.manager.snapshot import Snapshot
from anabranch.plan.routing import Routing
from tests.manager.snapshots import operator, processor, snapshot

GROUPS = 4
ROWS = 100


def plan_of(count: int, fed_by: Mapping[int, Sequence[int]] | None = None) -> PlanShape:
    """So many operators, called op0, op1, ..., each a family of its own."""
    feeds = fed_by or {}
    return PlanShape(
        tuple(
            OperatorShape(n, f"op{n}", (n,), family=n, edges=tuple(Edge(None, (below,)) for below in feeds.get(n, ())))
            for n in range(count)
        ),
        GROUPS,
    )


def placed(
    homes: Sequence[int],
    processors: int,
    *,
    fed_by: Mapping[int, Sequence[int]] | None = None,
    sizes: Sequence[int] | None = None,
    cpu: Sequence[float] | None = None,
    results: Sequence[int] | None = None,
    memory: int | None = None,
    step: int = 1,
) -> Snapshot:
    """Each operator whole on its home, in a batch of `ROWS` rows that took a second."""
    count = len(homes)
    there = [
        processor(
            p,
            *(
                operator(
                    [sizes[n] if sizes else 10],
                    number=n,
                    cpu=cpu[n] if cpu else 0.0,
                    results=results[n] if results else 0,
                )
                for n in range(count)
                if homes[n] == p
            ),
            memory=memory,
        )
        for p in range(processors)
    ]
    routings = tuple(Routing((home,) * GROUPS) for home in homes)
    return snapshot(*there, step=step, plan=plan_of(count, fed_by), routings=routings, arrived=ROWS)


@dataclass
class PlacedCluster:
    """What a policy decides after a batch is done before the next one. `moves` are batch, operator, receiver."""

    policy: Balance | Degradation
    homes: list[int]
    processors: int
    fed_by: Mapping[int, Sequence[int]] = field(default_factory=dict)
    batch: int = 0
    moves: list[tuple[int, int, int]] = field(default_factory=list)

    def run(self, batches: int, load: Callable[[int], Mapping[str, Sequence[float]]]) -> None:
        """Take so many batches; `load` says for each what operators do in it."""
        for _ in range(batches):
            self.batch += 1
            seen = placed(self.homes, self.processors, fed_by=self.fed_by, step=self.batch, **load(self.batch))  # type: ignore[arg-type]
            for action in self.policy.decide(seen):
                self.carry_out(action)

    def carry_out(self, action: ReallocateOperator) -> None:
        """Do it at once."""
        assert self.homes[action.operator] != action.processor, "it is there already"
        assert action.name == f"op{action.operator}"
        self.homes[action.operator] = action.processor
        self.moves.append((self.batch, action.operator, action.processor))

    def crossing(self) -> int:
        """How many edges cross processors."""
        return sum(self.homes[lower] != self.homes[upper] for upper, below in self.fed_by.items() for lower in below)
