"""The operators of a plan as patterns see them: what is known of them before they run.

Operators are numbered from the streams upwards, so each comes after all that it takes rows from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch.plan.network import Input, Network, Request
from anabranch.plan.placement import families_of
from anabranch.plan.rounds import Dataflow, dataflow_of

JOIN = "join"
GROUPS = "groups"
DISTINCT = "distinct"
APPLIED = "operator"  # a user's own


@dataclass(frozen=True, slots=True)
class GraphOperator:
    """An operator: its number, its identity in checkpoints, its kind, and the queries that it works for.

    `windows` are per port, in microseconds, None where rows can be met for ever. A port that a stream feeds is among
    the `streams`, as the name of that stream.
    """

    number: int
    identity: str
    kind: str
    windows: tuple[int | None, ...]
    queries: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()

    @property
    def owner(self) -> str | None:
        """The first of the queries that it works for; None if there is none."""
        return next(iter(self.queries), None)

    @property
    def fan_in(self) -> int:
        """How many inputs it has."""
        return len(self.windows)


@dataclass(frozen=True, slots=True)
class OperatorGraph:
    """Operators by number, and how rows flow between them.

    `wishes` are the queries in the order in which they began, each with the cluster that it wants to be in, None if it
    wants none (`patterns/tier`).
    """

    operators: tuple[GraphOperator, ...]
    flow: Dataflow
    wishes: Mapping[str, str | None] = field(default_factory=dict)

    def part(self, numbers: Sequence[int]) -> OperatorGraph:
        """The graph of some operators alone, which are numbered anew, in the same order."""
        new = {number: n for n, number in enumerate(numbers)}
        edges = (
            replace(edge, lower=new[edge.lower], upper=new[edge.upper])
            for edge in self.flow.edges
            if edge.lower in new and edge.upper in new
        )
        return OperatorGraph(
            tuple(replace(self.operators[number], number=n) for number, n in new.items()),
            Dataflow(tuple(self.flow.partitioned_on[number] for number in numbers), tuple(edges)),
            self.wishes,
        )

    @property
    def queries(self) -> tuple[tuple[str, ...], ...]:
        """Per operator, the queries that it works for."""
        return tuple(operator.queries for operator in self.operators)

    def below(self, number: int) -> tuple[int, ...]:
        """The operators that an operator takes rows from, one entry per edge."""
        return tuple(edge.lower for edge in self.flow.edges if edge.upper == number)

    def above(self, number: int) -> tuple[int, ...]:
        """The operators that take rows of an operator, one entry per edge."""
        return tuple(edge.upper for edge in self.flow.edges if edge.lower == number)

    def families(self) -> tuple[int, ...]:
        """Per operator, the first one of those that run fused with it if all of them are placed alike."""
        local = self.flow.rounds().local
        return families_of(len(self.operators), [(edge.lower, edge.upper) for edge in local])

    def by_query(self) -> list[int]:
        """All operators, those of the first query before those of the second; one that is shared comes once."""
        names = list(dict.fromkeys(name for operator in self.operators for name in operator.queries))
        first = {op.number: min(map(names.index, op.queries), default=len(names)) for op in self.operators}
        return sorted(first, key=lambda number: (first[number], number))


def operator_graph(
    network: Network,
    requests: Sequence[Request] = (),
    *,
    in_place: Collection[int] = (),
    fused: Collection[tuple[int, int]] = (),
) -> OperatorGraph:
    """The graph of the network that was made for some requests; `in_place` and `fused` are as in `plan/rounds`.

    The operators of a shadow work for the query that it is the shadow of.
    """
    queries: dict[int, list[str]] = {}
    for answer in network.answers:
        for n in sorted({n for branch in answer.branches for n in _reached(network, branch.node)}):
            queries.setdefault(n, []).append(answer.name)
    shadowed = next((request.shadow_of for request in requests if request.shadow_of is not None), None)
    if shadowed is not None:
        for n in filter(network.is_shadow, range(len(network.operators))):
            queries.setdefault(n, [shadowed])
    operators = tuple(
        GraphOperator(
            number=n,
            identity=operator.identity,
            kind=_kind(network, n),
            windows=tuple(_window(network, port.node) for port in operator.ports),
            queries=tuple(queries.get(n, ())),
            streams=tuple(
                stream
                for port in operator.ports
                if network.operator_of(port.node) is None
                for stream in _streams(network.inputs[port.node])
            ),
        )
        for n, operator in enumerate(network.operators)
    )
    wishes = {request.name: request.query.cluster for request in requests if not request.shadow}
    return OperatorGraph(operators, dataflow_of(network, in_place=in_place, fused=fused), wishes)


def _kind(network: Network, n: int) -> str:
    grouping = network.operators[n].grouping
    if grouping is None:
        return JOIN
    if grouping.applied is not None:
        return APPLIED
    return DISTINCT if grouping.distinct else GROUPS


def _window(network: Network, node: int) -> int | None:
    """The longest window among the inputs whose rows a node has."""
    windows = [network.inputs[i].entry.window for i in network.inputs_of(node)]
    known = [window for window in windows if window is not None]
    return max(known) if len(known) == len(windows) else None


def _streams(entry: Input) -> Iterator[str]:
    """The streams that feed an input directly; other operators may, too."""
    if not entry.entry.sources:
        yield entry.entry.stream
    for nth, source in enumerate(entry.entry.sources):
        if not entry.feeds or entry.feeds[nth] is None:
            yield source.stream


def _reached(network: Network, node: int) -> Iterator[int]:
    """The operators that the rows of a node have gone through, those of blocks below included."""
    n = network.operator_of(node)
    if n is None:
        feeds = [feed for feed in network.inputs[node].feeds if feed is not None]
        for feed in feeds:
            yield from _reached(network, feed.node)
        return
    yield n
    for port in network.operators[n].ports:
        yield from _reached(network, port.node)
