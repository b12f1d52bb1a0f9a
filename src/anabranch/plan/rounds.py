"""Put the operators of a plan into rounds, with one exchange of rows before each, according to their placement.

An exchange is a Spark shuffle, the dearest thing in a small batch, so a plan should need as few as possible that follow
each other. All rows of streams are shuffled in the first round, to where their operator is, even if it runs later: they
wait there (`parked`). A later round moves only what operators of earlier rounds produced.

An edge between two operators needs no exchange if what the lower one produces for a partition group is needed where
it is: both are partitioned on the same key and placed alike. Such operators run *fused*, in one round, one after the
other. So an operator's round is the greatest, over the operators below it, of their round, plus one where the edge
crosses.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from anabranch.plan.network import Network
from anabranch.plan.placement import Placement, families_of


@dataclass(frozen=True, slots=True)
class Edge:
    """Operator `lower` feeds a port of operator `upper`; an edge that `crosses` needs an exchange wherever they are
    placed."""

    lower: int
    upper: int
    port: int
    crosses: bool = False


@dataclass(frozen=True, slots=True)
class Rounds:
    """Per operator its round, counted from 0, and the edges that cross processors and those that do not."""

    of: tuple[int, ...]
    crossing: tuple[Edge, ...]
    local: tuple[Edge, ...]

    @property
    def count(self) -> int:
        """The number of rounds, each of which begins with an exchange."""
        return max(self.of, default=-1) + 1

    @property
    def families(self) -> tuple[int, ...]:
        """The family of each operator: those that run fused."""
        return families_of(len(self.of), [(edge.lower, edge.upper) for edge in self.local])

    def operators(self, number: int) -> tuple[int, ...]:
        """The operators of a round, lower ones first."""
        return tuple(n for n, round_ in enumerate(self.of) if round_ == number)


def compile_rounds(
    partitioned_on: Sequence[object],
    edges: Sequence[Edge],
    placements: Sequence[Placement] | None = None,
    families: Sequence[int] | None = None,
) -> Rounds:
    """The fewest rounds for operators that are numbered from the streams upwards.

    `partitioned_on[n]` stands for the key of operator n: operators whose keys are equal give tuples that join the same
    hash. `placements[n]` is the processor of each of its partition groups; without placements all are placed alike.
    With `families`, only operators of one family run fused.
    """
    local: list[Edge] = []
    crossing: list[Edge] = []
    rounds = [0] * len(partitioned_on)
    for edge in sorted(edges, key=lambda edge: edge.upper):
        if edge.lower >= edge.upper:
            raise ValueError(f"operator {edge.upper} is numbered before its input, operator {edge.lower}")
        together = (
            not edge.crosses
            and partitioned_on[edge.lower] == partitioned_on[edge.upper]
            and (placements is None or placements[edge.lower] == placements[edge.upper])
            and (families is None or families[edge.lower] == families[edge.upper])
        )
        (local if together else crossing).append(edge)
        rounds[edge.upper] = max(rounds[edge.upper], rounds[edge.lower] + (not together))
    return Rounds(tuple(rounds), tuple(crossing), tuple(local))


@dataclass(frozen=True, slots=True)
class Dataflow:
    """What decides about rounds besides placements: what operators are partitioned on, and the edges between them."""

    partitioned_on: tuple[object, ...]
    edges: tuple[Edge, ...]

    def rounds(self, placements: Sequence[Placement] | None = None, families: Sequence[int] | None = None) -> Rounds:
        """The fewest rounds; without placements all operators are placed alike. With `families`, only operators of one
        family run fused."""
        return compile_rounds(self.partitioned_on, self.edges, placements, families)

    def count(self, placements: Sequence[Placement]) -> PlacementCounts:
        """What a placement costs, by counts.

        An edge between operators that are whole on one and the same processor does not cross, even if it takes a round.
        """
        rounds = self.rounds(placements)
        crossing = [edge for edge in rounds.crossing if len({*placements[edge.lower], *placements[edge.upper]}) > 1]
        return PlacementCounts(rounds.count, len(crossing), tuple(edge.lower for edge in crossing))


@dataclass(frozen=True, slots=True)
class PlacementCounts:
    """The rounds that a placement needs, and the edges that cross processors: the network connections of paper 5.

    `senders` are the operators at the lower ends of these edges, one entry per edge.
    """

    rounds: int
    crossing: int
    senders: tuple[int, ...] = ()


def rounds_of(
    network: Network,
    placements: Sequence[Placement] | None = None,
    *,
    in_place: Collection[int] = (),
    fused: Collection[tuple[int, int]] = (),
    families: Sequence[int] | None = None,
) -> Rounds:
    """The rounds of a network; without placements all operators are placed alike. With `families`, only operators of
    one family run fused."""
    return dataflow_of(network, in_place=in_place, fused=fused).rounds(placements, families)


def dataflow_of(
    network: Network, *, in_place: Collection[int] = (), fused: Collection[tuple[int, int]] = ()
) -> Dataflow:
    """The dataflow of a network.

    What is selected between two operators is a Spark expression, so there they need an exchange, but for the `fused`
    ports, whose conditions processors evaluate themselves. So are the keys and arguments of a grouping, but for those
    that group `in_place`, where their rows are joined. With `families`, only operators of one family run fused.
    """
    partitioned_on: list[object] = []
    edges = []
    for n, operator in enumerate(network.operators):
        crosses = operator.grouping is not None and n not in in_place
        for p, port in enumerate(operator.ports):
            lower = network.operator_of(port.node)
            if lower is not None:
                selected = bool(port.conditions) and (n, p) not in fused
                edges.append(Edge(lower, n, p, crosses=crosses or selected))
                continue
            # What feeds an input is selected and projected.
            below = [network.operator_of(feed.node) for feed in network.inputs[port.node].feeds if feed is not None]
            edges += [Edge(lower, n, p, crosses=True) for lower in below if lower is not None]
        joined = network.operator_of(operator.ports[0].node)
        if operator.grouping is None:
            partitioned_on.append(tuple(map(frozenset, operator.terms)))
        else:
            partitioned_on.append(("grouping", n) if crosses or joined is None else partitioned_on[joined])
    return Dataflow(tuple(partitioned_on), tuple(edges))
