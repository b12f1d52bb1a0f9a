"""The thesis's plans of 5 and 20 operators (sections 4.3.1 and 5.1.4 of paper 5), and what a placement of them costs.

Plan 1 has 5 operators, one above the other: single-stream operators in figure 5.4, joins in figure 5.12. Plan 2 has
20, of which 5 are joins; it takes 6 streams, is 9 operators deep and 6 wide. Its picture is not in the text, so this is
a plan with these numbers: the streams, through 2 to 4 single-stream operators each, into joins one above the other.

All joins are on one key, because in the thesis where an operator is has nothing to do with keys: what costs a
connection there is two neighbours on different processors, and what costs a round here is the same. Only what comes to
or from a single-stream operator costs a round wherever it is, since it is a user's own, whose results only Spark can
send on (docs/operators.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np

from anabranch.bench.experiments.dcape.input import Counts, Input
from anabranch.bench.experiments.dcape.stateless import GIVES, Stateless
from anabranch.language.binder import parse_query
from anabranch.manager.patterns import OperatorGraph, Pattern
from anabranch.manager.patterns.operator_graph import JOIN, operator_graph
from anabranch.manager.patterns.pattern import placements_of
from anabranch.plan.assembly import network_of
from anabranch.plan.network import Network, Request
from anabranch.plan.placement import Placement
from anabranch.plan.query import Application, AppliedOperator, StreamSchema

GROUPS = 16
ALIASES = "ABCDEFGH"


@dataclass(frozen=True, slots=True)
class Applied:
    """A single-stream operator of a plan: its name, its number, and the stream or operator that it is `over`."""

    name: str
    number: int
    over: str

    @property
    def operator(self) -> Stateless:
        """The operator itself."""
        return Stateless(self.number)


@dataclass(frozen=True, slots=True)
class ThesisPlan:
    """A plan: so many single-stream operators above each stream, and joins of what the last of these give."""

    name: str
    chains: tuple[int, ...]

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the streams."""
        return tuple(f"s{n}" for n in range(1, len(self.chains) + 1))

    @property
    def applied(self) -> tuple[Applied, ...]:
        """The single-stream operators, lower ones first."""
        made: list[Applied] = []
        for stream, length in zip(self.streams, self.chains, strict=True):
            names = [stream, *(f"{stream}_{nth}" for nth in range(1, length + 1))]
            for over, name in pairwise(names):
                made.append(Applied(name, len(made), over))
        return tuple(made)

    @property
    def tops(self) -> tuple[str, ...]:
        """What is joined: of each stream the last operator above it, or the stream itself."""
        return tuple(
            f"{stream}_{length}" if length else stream for stream, length in zip(self.streams, self.chains, strict=True)
        )

    @property
    def joins(self) -> str:
        """The order of the joins: one above the other, the stream with the longest way first."""
        shape = "A"
        for alias in ALIASES[1 : len(self.chains)]:
            shape = f"({shape} {alias})"
        return shape if len(self.chains) > 1 else "auto"

    @property
    def query(self) -> str:
        """The query, as CQL."""
        if len(self.chains) == 1:
            return f"SELECT v AS v0 FROM {self.tops[0]}"
        columns = ", ".join(f"{alias}.v AS v{n}" for n, alias in enumerate(ALIASES[: len(self.chains)]))
        streams = ", ".join(f"{top} {alias}" for top, alias in zip(self.tops, ALIASES, strict=False))
        keys = " AND ".join(f"A.k = {alias}.k" for alias in ALIASES[1 : len(self.chains)])
        return f"SELECT {columns} FROM {streams} WHERE {keys}"

    def input(self, rows: int, life: int = 1) -> Input:
        """An input of so many rows per stream and batch."""
        return Input(len(self.chains), rows, life)


SINGLES = ThesisPlan("5 single-stream", (5,))
JOINS = ThesisPlan("5 joins", (0,) * 6)
TWENTY = ThesisPlan("20 operators", (4, 3, 2, 2, 2, 2))
PLANS = (SINGLES, JOINS, TWENTY)


@dataclass(frozen=True)
class PlacedPlan:
    """A plan with its operators as patterns see them, and the rows that an input makes at each, without running it."""

    plan: ThesisPlan
    network: Network = field(repr=False)
    graph: OperatorGraph = field(repr=False)

    @classmethod
    def of(cls, plan: ThesisPlan) -> PlacedPlan:
        """Compile the plan as far as that takes no Spark."""
        streams = {name: StreamSchema(name, ("k", "v")) for name in plan.streams}
        for one in plan.applied:
            applied = AppliedOperator(one.name, one.operator, ("v",), GIVES)
            streams[one.name] = StreamSchema(
                one.name, ("k", "v"), application=Application(one.over, ("k",), None, applied)
            )
        query = parse_query(plan.query, streams, plan.joins)
        network = network_of([Request("query", query)], streams)
        return cls(plan, network, operator_graph(network))

    @cached_property
    def heights(self) -> tuple[int, ...]:
        """By operator, how many operators a row has gone through after it, at most."""
        heights: list[int] = []
        for n in range(len(self.graph.operators)):
            heights.append(1 + max((heights[lower] for lower in self.graph.below(n)), default=0))
        return tuple(heights)

    def place(self, pattern: Pattern, processors: int) -> tuple[Placement, ...]:
        """The placements that a pattern gives."""
        return placements_of(pattern, self.graph, GROUPS, processors)

    def made(self, given: Input, batches: int) -> Counts:
        """The rows that each operator makes, by batch and operator."""
        joined, columns = given.joined(batches), []
        arrived = [[given.batch(n, stream).num_rows for n in range(batches)] for stream in range(given.streams)]
        joins = iter(range(given.streams - 1))
        for n, operator in enumerate(self.graph.operators):
            columns.append(joined[:, next(joins)] if operator.kind == JOIN else np.array(arrived[self._stream(n)]))
        return np.array(columns).T

    def costs(self, placements: Sequence[Placement], made: Counts) -> PlacementCosts:
        """What a placement costs, given the rows that operators make, each counted once per edge that it takes."""
        rounds = self.graph.flow.rounds(placements)
        counts = self.graph.flow.count(placements)
        return PlacementCosts(
            counts.rounds,
            counts.crossing,
            int(sum(made[edge.lower] for edge in rounds.crossing)),
            int(sum(made[lower] for lower in counts.senders)),
        )

    def _stream(self, n: int) -> int:
        """The number of the stream whose rows a single-stream operator has."""
        below = self.graph.below(n)
        return self._stream(below[0]) if below else self.plan.streams.index(self.graph.operators[n].streams[0])


@dataclass(frozen=True, slots=True)
class PlacementCosts:
    """What a placement costs: rounds, edges that cross processors, rows that Spark exchanges between operators, and
    rows on edges that cross."""

    rounds: int
    crossing: int
    exchanged: int
    sent: int
