"""The cost table (paper 5, section 6.1): processor -> cost, with a share per operator.

Redistribution reads this and nothing else. So besides costs it says of each operator where it is, how large its state
is, and which operators it exchanges rows with: an edge between two operators on different processors *crosses*.

An operator that is spread over several processors adds to their costs, and has no `home`: it cannot be reallocated.
Neither can an operator be of which groups are on their way.

Where a cost model counts what is sent to other processors, a move may do away with a cost: an operator sends nothing
where all operators are that take its rows (`takers`). Such a model has the attribute `of_sending`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from anabranch.errors import ConfigError
from anabranch.manager.snapshot import Snapshot


class CostModel(Protocol):
    """Anything that says what operators cost on processors. It may have `text(cost)`, too, for people, and
    `of_sending = True` if what costs is only what goes to other processors."""

    def costs(self, snapshot: Snapshot) -> Mapping[int, Mapping[int, float]]:
        """By processor, and there by operator, the cost in a unit of the model's own; costs add up."""


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """An operator in the table: its number and name, its `home`, None if it has none, and the bytes of its state.

    `neighbours` are the operators that it takes rows from or gives rows to, one entry per edge; `takers` those that it
    gives rows to.
    """

    number: int
    name: str
    home: int | None
    bytes: int = 0
    neighbours: tuple[int, ...] = ()
    takers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CostTable:
    """By processor, the cost of each operator there, and what there is to know about operators, by number.

    If costs are `of_sending`, an operator has none where all its takers are.
    """

    costs: Mapping[int, Mapping[int, float]]
    operators: Mapping[int, OperatorCost] = field(default_factory=dict)
    of_sending: bool = False

    @property
    def processors(self) -> tuple[int, ...]:
        """The numbers of all processors."""
        return tuple(self.costs)

    def cost(self, processor: int) -> float:
        """What a processor has to bear."""
        return sum(self.costs[processor].values())

    def share(self, processor: int, operator: int) -> float:
        """The share of a processor's cost that comes from an operator (equation 6.2); 0 if there is no cost."""
        total = self.cost(processor)
        return self.costs[processor].get(operator, 0.0) / total if total > 0 else 0.0

    def heaviest(self, processors: Iterable[int]) -> int:
        """Of some processors the one with the highest cost."""
        return max(processors, key=lambda p: (self.cost(p), -p))

    def lightest(self, processors: Iterable[int]) -> int:
        """Of some processors the one with the lowest cost."""
        return min(processors, key=lambda p: (self.cost(p), p))

    def on(self, processor: int) -> list[OperatorCost]:
        """The operators whose home a processor is."""
        return [operator for operator in self.operators.values() if operator.home == processor]

    def edges_to(self, operator: int, processor: int) -> int:
        """How many of an operator's edges lead to operators at home on a processor."""
        return sum(self.operators[number].home == processor for number in self.operators[operator].neighbours)

    def edges_removed(self, operator: int, processor: int) -> int:
        """How many edges fewer would cross if an operator had its home on another processor; negative if more."""
        home = self.operators[operator].home
        return 0 if home is None else self.edges_to(operator, processor) - self.edges_to(operator, home)

    def saved(self, operator: int, processor: int) -> float:
        """How much of an operator's cost would be gone if it had its home on another processor."""
        entry = self.operators[operator]
        takers = {self.operators[number].home for number in entry.takers}
        if entry.home is None or not self.of_sending or takers != {processor}:
            return 0.0
        return self.costs[entry.home].get(operator, 0.0)

    def moved(self, operator: int, processor: int) -> CostTable:
        """The table after an operator has moved: its cost goes with it, as far as that is not gone."""
        entry = self.operators[operator]
        assert entry.home is not None, "an operator without a home does not move"
        costs = {number: dict(of) for number, of in self.costs.items()}
        cost = costs[entry.home].pop(operator, 0.0) - self.saved(operator, processor)
        costs[processor][operator] = costs[processor].get(operator, 0.0) + cost
        moved = replace(self, costs=costs, operators={**self.operators, operator: replace(entry, home=processor)})
        for lower in (number for number in entry.neighbours if operator in self.operators[number].takers):
            home = self.operators[lower].home
            if home is not None and moved.saved(lower, home):
                costs[home][lower] = 0.0
        return moved


def check_cost(cost: object) -> None:
    """Refuse what is no cost model."""
    if isinstance(cost, type) or not callable(getattr(cost, "costs", None)):
        raise ConfigError(f"cost must be a cost model such as ab.CpuTime(), not {cost!r}")


def cost_table(model: CostModel, snapshot: Snapshot) -> CostTable:
    """What a cost model makes of a snapshot."""
    given = model.costs(snapshot)
    if not isinstance(given, Mapping) or not all(isinstance(of, Mapping) for of in given.values()):
        raise ConfigError(f"the cost model {model!r} gave {given!r}; costs() must give a dict of dicts of numbers")
    plan = snapshot.plan
    neighbours: dict[int, list[int]] = {operator.number: [] for operator in plan.operators}
    takers: dict[int, list[int]] = {operator.number: [] for operator in plan.operators}
    for upper in plan.operators:
        for lower in (number for edge in upper.edges for number in edge.operators):
            takers[lower].append(upper.number)
            neighbours[lower].append(upper.number)
            neighbours[upper.number].append(lower)
    state = dict.fromkeys(neighbours, 0)
    for seen in (seen for view in snapshot.processors for seen in view.operators):
        state[seen.operator] += seen.active_bytes
    return CostTable(
        {view.processor: dict(given.get(view.processor, {})) for view in snapshot.processors},
        {
            operator.number: OperatorCost(
                operator.number,
                operator.name,
                home_of(snapshot, operator.number),
                state[operator.number],
                tuple(neighbours[operator.number]),
                tuple(takers[operator.number]),
            )
            for operator in plan.operators
        },
        getattr(model, "of_sending", False) is True,
    )


def mean_table(tables: Sequence[CostTable]) -> CostTable:
    """The mean of some tables of the same operators, each at home where the last one says."""
    last = tables[-1]
    costs = {
        p: {n: sum(table.costs[p].get(n, 0.0) for table in tables) / len(tables) for n in last.operators}
        for p in last.processors
    }
    return replace(last, costs=costs)


def home_of(snapshot: Snapshot, operator: int) -> int | None:
    """The processor that an operator is whole on; None if it is on several, or groups of it are diffused."""
    if operator >= len(snapshot.routings):
        return None
    routing = snapshot.routings[operator]
    homes = {*routing.placement}
    return next(iter(homes)) if len(homes) == 1 and not routing.diffused else None


def text_of(model: CostModel, cost: float) -> str:
    """A cost for people, in the words of its model if it has any."""
    told = getattr(model, "text", None)
    return str(told(cost)) if callable(told) else f"{cost:.3g}"
