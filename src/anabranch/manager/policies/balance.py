"""Balance: reallocate operators from the heaviest processor to the lightest until they are as even as possible
(paper 5, section 6.3.2 and algorithm 5).

Nothing is done unless (heaviest - lightest) / heaviest > `difference`. Then, as long as that holds and anything helps:
of the operators of the heaviest processor the one goes to the lightest that leaves these two the closest. An operator
helps if its cost is less than what lies between the two, so the heavier of them gets lighter with each move, and none
is made as heavy as the heaviest was. Processors in between are left alone. Each operator moves once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from anabranch.manager.actions import ReallocateOperator
from anabranch.manager.costs import CostModel, CostTable, CpuTime
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
class Balance:
    """Even out what processors have to bear, by reallocating operators that are whole on one of them.

    Args:
        cost: the cost model.
        difference: the share of the highest cost by which the lowest must be below it, from 0 (any) to 1 (never).
        operators: names of those that may be moved; None for all.
        processors: numbers of those that may take part; None for all.
        state_size: the sizes of state that may be moved: up to "1g", or from one to another as ("1m", "1g").
    """

    cost: CostModel = field(default_factory=CpuTime)
    difference: float = 0.2
    operators: Sequence[str] | None = None
    processors: Sequence[int] | None = None
    state_size: StateSize | None = None
    _calm: Calm = field(default_factory=Calm, init=False, repr=False, compare=False)

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
        eligible = check_eligible(self.operators, self.processors, self.state_size)
        moves = list(self.moves(table, eligible.except_for(self._calm.resting)))
        yield from self._calm.decided(moves, table)

    def moves(self, table: CostTable, eligible: Eligible) -> Iterator[Move]:
        """The moves that a cost table calls for."""
        processors, moved = eligible.receivers(table), set[int]()
        while len(processors) > 1:
            heavy, light = table.heaviest(processors), table.lightest(processors)
            gap = table.cost(heavy) - table.cost(light)
            helping = [
                operator.number
                for operator in table.on(heavy)
                if operator.number not in moved
                and eligible.is_eligible(operator)
                and 0 < table.costs[heavy].get(operator.number, 0.0) < gap
            ]
            if gap <= self.difference * table.cost(heavy) or not helping:
                return
            costs = table.costs[heavy]
            best = min(helping, key=lambda number: (abs(gap - 2 * costs[number]), number))
            reason = (
                f"processor {heavy} has {text_of(self.cost, table.cost(heavy))}, processor {light} "
                f"{text_of(self.cost, table.cost(light))}, and the operator is {table.share(heavy, best):.0%} of that"
            )
            yield Move(best, light, reason)
            moved.add(best)
            table = table.moved(best, light)
