"""Degradation: a processor whose cost got worse sheds its costliest operators (paper 5, section 6.3.2).

What a processor's cost is compared with is its cost when operators were last allocated there: that of the first sample
after anything came to it or left it. When it is more than `difference` above that, operators go elsewhere until it is
not any more. Moves that remove a crossing edge go first, and so do those that do away with the operator's cost: where
that is what is sent, it is gone where the operators are that take the rows. Of these the first is the one that does
away with the most cost, since a connection may carry ten rows or ten thousand; then the one of the costliest operator.

A move of this kind goes to the processor at the other end of the edge. Any other goes to the lightest processor that
has not got worse itself. None adds an edge that crosses, or makes the receiver heavier than the sender was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from anabranch.manager.actions import ReallocateOperator
from anabranch.manager.costs import CostModel, CostTable, NetworkOutputRate
from anabranch.manager.costs.cost_table import check_cost, text_of
from anabranch.manager.policies.redistribution import (
    Calm,
    Eligible,
    Move,
    StateSize,
    check_eligible,
    check_share,
)
from anabranch.manager.snapshot import Snapshot


@dataclass(slots=True)
class Degradation:
    """Take operators away from processors whose cost got worse since operators were last allocated there.

    Args:
        cost: the cost model.
        difference: by which share a cost must be above what it was, from 0 (any) to 1 (twice as much).
        operators: as of `Balance`.
        processors: as of `Balance`.
        state_size: as of `Balance`.
    """

    cost: CostModel = field(default_factory=NetworkOutputRate)
    difference: float = 0.2
    operators: Sequence[str] | None = None
    processors: Sequence[int] | None = None
    state_size: StateSize | None = None
    _calm: Calm = field(default_factory=Calm, init=False, repr=False, compare=False)
    _allocated: dict[int, tuple[frozenset[str], float]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Refuse what makes no sense at once."""
        check_cost(self.cost)
        check_share("difference", self.difference)
        check_eligible(self.operators, self.processors, self.state_size)

    @property
    def spans_plans(self) -> bool:
        """It goes on when another plan comes into force."""
        return True

    def decide(self, snapshot: Snapshot) -> Iterator[ReallocateOperator]:
        """Yield reallocations."""
        table = self._calm.look(self.cost, snapshot)
        if table is None:
            return
        for p in table.processors:
            there = frozenset(operator.name for operator in table.on(p))
            if p not in self._allocated or self._allocated[p][0] != there:
                self._allocated[p] = (there, table.cost(p))
        before = {p: self._allocated[p][1] for p in table.processors}
        eligible = check_eligible(self.operators, self.processors, self.state_size)
        moves = list(self.moves(table, eligible.except_for(self._calm.resting), before))
        yield from self._calm.decided(moves, table)

    def moves(self, table: CostTable, eligible: Eligible, before: Mapping[int, float]) -> Iterator[Move]:
        """The moves that a cost table calls for, where costs were as they are in `before`."""
        processors = eligible.receivers(table)
        bearable = {p: (1 + self.difference) * before[p] for p in processors}
        worse = sorted((p for p in processors if table.cost(p) > bearable[p]), key=lambda p: (-table.cost(p), p))
        moved = set[int]()
        for p in worse:
            told = f"processor {p} has {text_of(self.cost, table.cost(p))}, after {text_of(self.cost, before[p])}"
            while table.cost(p) > bearable[p]:
                possible = list(_possible(table, p, processors, worse, eligible, moved))
                if not possible:
                    break
                best = max(possible)
                removed, number, receiver = best.edges, best.operator, best.receiver
                edges = f", and {removed} edge{'s' if removed > 1 else ''} fewer will cross" if removed else ""
                yield Move(number, receiver, f"{told}; {table.share(p, number):.0%} of it is the operator's{edges}")
                moved.add(number)
                table = table.moved(number, receiver)


class _Possible(NamedTuple):
    """A possible move. The best one is the largest: one that removes edges or cost, then what removes the most cost,
    then the costliest operator, then the most edges."""

    removes: bool
    saved: float
    cost: float
    edges: int
    operator: int
    receiver: int


def _possible(
    table: CostTable,
    sender: int,
    processors: Collection[int],
    worse: Collection[int],
    eligible: Eligible,
    moved: Collection[int],
) -> Iterator[_Possible]:
    """The moves by which a processor may shed an operator."""
    others = [p for p in processors if p != sender]
    for operator in table.on(sender):
        number, cost = operator.number, table.costs[sender].get(operator.number, 0.0)
        if number in moved or cost <= 0 or not eligible.is_eligible(operator):
            continue
        lighter = []
        for p in others:
            edges, saved = table.edges_removed(number, p), table.saved(number, p)
            if edges < 0 or table.cost(p) + cost - saved > table.cost(sender):
                continue
            if edges > 0 or saved > 0:
                yield _Possible(True, saved, cost, edges, number, p)
            elif p not in worse:
                lighter.append(p)
        if lighter:
            yield _Possible(False, 0.0, cost, 0, number, table.lightest(lighter))
