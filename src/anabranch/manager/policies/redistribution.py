"""What redistribution policies have in common: when they look, which operators they may move, and how they keep calm.

A policy such as `Balance` is given a cost table and says where operators should go. Everything around that is here:

- Costs are means over `SAMPLE` batches since anything was reallocated. A single batch says little.
- While what was decided on is being done nothing else is decided. If it is not done any more, or not after `PATIENCE`
  batches, it was refused, and counts as a move, so that it is not asked for again soon.
- An operator that was decided on rests for `FIRST_REST` batches, and twice as long after each further time. So in n
  batches it moves at most 1 + log2(1 + n / FIRST_REST) times, whatever the load does: never to and fro.

A reallocation puts another plan in force, and operators may have other numbers in it. So what is remembered goes by
their names, and the policy itself goes on from plan to plan (`spans_plans`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from anabranch.errors import ConfigError
from anabranch.manager.actions import ReallocateOperator
from anabranch.manager.costs.cost_table import CostModel, CostTable, OperatorCost, cost_table, mean_table
from anabranch.manager.policies.arguments import is_number
from anabranch.manager.snapshot import Snapshot
from anabranch.observe.numbers import parse_bytes

SAMPLE = 4
PATIENCE = 16
FIRST_REST = 16

# From a size to a size, as people write them, or up to a size.
StateSize = int | str | tuple[int | str, int | str]


class Move(NamedTuple):
    """An operator goes to a processor, for a reason."""

    operator: int
    processor: int
    reason: str


@dataclass(frozen=True, slots=True)
class Eligible:
    """What may be touched: operators by name and processors by number, None for all; and state of some sizes only.

    Operators in `resting` stay where they are.
    """

    operators: frozenset[str] | None = None
    processors: frozenset[int] | None = None
    least: int = 0
    most: int | None = None
    resting: frozenset[str] = frozenset()

    def is_eligible(self, operator: OperatorCost) -> bool:
        """Whether an operator may be moved."""
        named = self.operators is None or operator.name in self.operators
        fits = self.least <= operator.bytes and (self.most is None or operator.bytes <= self.most)
        return named and fits and operator.home is not None and operator.name not in self.resting

    def except_for(self, resting: frozenset[str]) -> Eligible:
        """The same, where some operators rest."""
        return replace(self, resting=resting)

    def receivers(self, table: CostTable) -> list[int]:
        """The processors that may take part."""
        return [p for p in table.processors if self.processors is None or p in self.processors]


def check_eligible(
    operators: Sequence[str] | None, processors: Sequence[int] | None, state_size: StateSize | None
) -> Eligible:
    """What a user allows, checked."""
    for what, listed, kind in (("operators", operators, str), ("processors", processors, int)):
        if listed is not None and (
            isinstance(listed, str)
            or not isinstance(listed, Sequence)
            or not all(isinstance(one, kind) for one in listed)
        ):
            raise ConfigError(f"{what} must be a list of those that may take part, or None for all, not {listed!r}")
    least, most = state_size if isinstance(state_size, tuple) else (0, state_size)
    sizes = (parse_bytes(least) if least else 0, None if most is None else parse_bytes(most))
    if sizes[1] is not None and sizes[0] > sizes[1]:
        raise ConfigError(f"state_size is from a size to a larger one, such as ('1m', '1g'), not {state_size!r}")
    return Eligible(
        None if operators is None else frozenset(operators),
        None if processors is None else frozenset(processors),
        *sizes,
    )


def check_share(name: str, share: float) -> None:
    """Refuse what is no share from 0 to 1."""
    if not is_number(share) or not 0 <= share <= 1:
        raise ConfigError(f"{name} is a share from 0 (any difference) to 1 (never), not {share!r}")


@dataclass(frozen=True, slots=True)
class Asked:
    """Where an operator was to go, since which batch; how often it was decided on so far."""

    processor: int
    batch: int
    times: int = 1


@dataclass(slots=True)
class Calm:
    """When a redistribution policy looks, and what rests. Names and numbers of operators as in the tables it makes."""

    batch: int = 0
    tables: list[CostTable] = field(default_factory=list)
    homes: dict[str, int | None] = field(default_factory=dict)
    pending: dict[str, Asked] = field(default_factory=dict)
    asked: dict[str, Asked] = field(default_factory=dict)

    def look(self, model: CostModel, snapshot: Snapshot) -> CostTable | None:
        """The mean costs of the last batches; None while there are too few, or while operators are on their way."""
        if snapshot.arrived == 0:
            return None
        self.batch += 1
        table = cost_table(model, snapshot)
        here = (one for one in table.operators.values() if one.home is None or one.home in table.costs)
        homes = {operator.name: operator.home for operator in here}
        if homes != self.homes or (self.tables and table.processors != self.tables[-1].processors):
            self.homes, self.tables = homes, []
        self.pending = {
            name: asked
            for name, asked in self.pending.items()
            if homes.get(name) != asked.processor
            and self.batch - asked.batch < PATIENCE
            and (snapshot.reallocating is None or name in snapshot.reallocating)
        }
        if self.pending:
            return None
        self.tables = [*self.tables, table][-SAMPLE:]
        return mean_table(self.tables) if len(self.tables) == SAMPLE else None

    @property
    def resting(self) -> frozenset[str]:
        """The operators that stay where they are for now."""
        return frozenset(
            name for name, asked in self.asked.items() if self.batch - asked.batch < FIRST_REST * 2 ** (asked.times - 1)
        )

    def decided(self, moves: Sequence[Move], table: CostTable) -> Iterator[ReallocateOperator]:
        """Note moves, and make actions of them."""
        for move in moves:
            name = table.operators[move.operator].name
            before = self.asked.get(name)
            self.asked[name] = Asked(move.processor, self.batch, 1 if before is None else before.times + 1)
            self.pending[name] = self.asked[name]
            yield ReallocateOperator(move.operator, name, move.processor, move.reason)
        if moves:
            self.tables = []
