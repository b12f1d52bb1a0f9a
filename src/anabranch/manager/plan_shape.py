"""The plan as policies and actions see it: operators, what feeds them, what they are keyed on, what moves together.

Operators that run fused, one after the other on the same rows, are a *family*: they are placed alike, and a partition
group moves for all of them. A family is called by the number of its first operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from anabranch.kernel.operator import SpillableOperator, answers_later
from anabranch.plan.network import Network
from anabranch.processor.tasks import ProcessorPlan


@dataclass(frozen=True, slots=True)
class Edge:
    """The rows that enter a port of an operator: those of an input, called by its alias, or of another operator.

    `operators` are those whose rows come in: the one below, or those of a sub-query that the input stands for; none if
    it is a stream. Rows are exchanged by the columns in `key`, and can be met for `window` microseconds, None for ever.
    """

    alias: str | None
    operators: tuple[int, ...]
    key: tuple[str, ...] = ()
    window: int | None = None


@dataclass(frozen=True, slots=True)
class OperatorShape:
    """An operator: its number, a name for people, its ports and family, and its number among groupings, if it is one.

    State that is `unbounded` is never purged. An operator that `answers_later` has little to do with a row until it is
    settled, in a later step than it came in. `edges` are per port. Operators with the same number in `kindred` would be
    of one family if they were placed alike. It works for `queries`, in the order in which these began.
    """

    number: int
    name: str
    ports: tuple[int, ...]
    spillable: bool = True
    grouping: int | None = None
    unbounded: bool = True
    family: int = 0
    kindred: int = 0
    answers_later: bool = False
    edges: tuple[Edge, ...] = ()
    queries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanShape:
    """The operators of a plan, by number, and how many partition groups each of them has. It is `migrating` while a
    query runs in two orders of its joins, or beside another one that is to take its place."""

    operators: tuple[OperatorShape, ...] = ()
    groups: int = 0
    migrating: bool = False

    @property
    def families(self) -> tuple[int, ...]:
        """The family of each operator."""
        return tuple(operator.family for operator in self.operators)

    @property
    def owners(self) -> tuple[int, ...]:
        """The operator of each port."""
        pairs = sorted((port, operator.number) for operator in self.operators for port in operator.ports)
        return tuple(number for _, number in pairs)

    @property
    def diffusable(self) -> tuple[int, ...]:
        """The operators whose groups can be diffused as they run: joins by themselves that are answered."""
        return tuple(n for n in self.joins if not self.fused_with(n))

    @property
    def partable(self) -> tuple[int, ...]:
        """The operators whose groups could be diffused if they were set apart from those they run fused with."""
        return () if self.migrating else tuple(n for n in self.joins if self.fused_with(n))

    @property
    def joins(self) -> tuple[int, ...]:
        """The operators that join, and are answered."""
        return tuple(one.number for one in self.operators if len(one.ports) > 1 and one.spillable)

    def fused_with(self, operator: int) -> list[int]:
        """The operators that an operator runs fused with."""
        return [n for n in self.members(self.operators[operator].family) if n != operator]

    def rounds(self, apart: int | None = None) -> int:
        """How many rounds the operators need, if one of them is set apart from its family."""
        rounds = [0] * len(self.operators)
        for upper in self.operators:
            for lower in (self.operators[n] for edge in upper.edges for n in edge.operators):
                fused = lower.family == upper.family and apart not in (lower.number, upper.number)
                rounds[upper.number] = max(rounds[upper.number], rounds[lower.number] + (not fused))
        return max(rounds, default=0) + 1

    @property
    def parted(self) -> tuple[int, ...]:
        """The operators that have a family of their own, or a smaller one, where kin of theirs has another."""
        sizes = {family: self.families.count(family) for family in self.families}
        largest: dict[int, int] = {}
        for operator in self.operators:
            best = largest.setdefault(operator.kindred, operator.family)
            if sizes[operator.family] > sizes[best]:
                largest[operator.kindred] = operator.family
        return tuple(operator.number for operator in self.operators if operator.family != largest[operator.kindred])

    def members(self, family: int) -> list[int]:
        """The operators of a family."""
        return [operator.number for operator in self.operators if operator.family == family]

    def has_groups(self, groups: Iterable[int]) -> bool:
        """Whether there are partition groups of all these numbers."""
        return all(0 <= group < self.groups for group in groups)


def shape_of(
    network: Network,
    plan: ProcessorPlan,
    families: Sequence[int],
    kindred: Sequence[int],
    queries: Sequence[tuple[str, ...]] = (),
) -> PlanShape:
    """The shape of a network as processors run it; `families`, `kindred` and `queries` are per operator."""
    entries = sorted((entry for one in plan.rounds for entry in one.operators), key=lambda entry: entry.number)
    names = _names(network)
    operators = tuple(
        OperatorShape(
            number=entry.number,
            name=names[entry.number],
            ports=entry.ports,
            spillable=isinstance(entry.operator, SpillableOperator)
            and entry.operator.can_spill
            and not network.is_shadow(entry.number),
            grouping=plan.groupings.index(entry.number) if entry.number in plan.groupings else None,
            unbounded=entry.number not in plan.groupings and all(plan.windows[port] is None for port in entry.ports),
            family=families[entry.number],
            kindred=kindred[entry.number],
            answers_later=answers_later(entry.operator),
            edges=_edges(network, entry.number, [plan.windows[port] for port in entry.ports]),
            queries=queries[entry.number] if queries else (),
        )
        for entry in entries
    )
    return PlanShape(operators, plan.groups, any(map(network.is_shadow, range(len(operators)))))


def _names(network: Network) -> list[str]:
    """A name for each operator; where several would have the same, they are numbered from the second on."""
    names: list[str] = []
    for n in range(len(network.operators)):
        name = _name(network, n)
        times = sum(other == name or other.startswith(f"{name} #") for other in names)
        names.append(f"{name} #{times + 1}" if times else name)
    return names


def _name(network: Network, n: int) -> str:
    aliases = [network.inputs[i].entry.alias for i in network.inputs_of(len(network.inputs) + n)]
    return f"{'join' if network.operators[n].grouping is None else 'groups'} of {', '.join(aliases)}"


def _edges(network: Network, n: int, windows: Sequence[int | None]) -> tuple[Edge, ...]:
    edges = []
    for port, window in zip(network.operators[n].ports, windows, strict=True):
        below = network.operator_of(port.node)
        if below is None:
            source = network.inputs[port.node]
            fed = [network.operator_of(feed.node) for feed in source.feeds if feed is not None]
            below_it = tuple(m for m in fed if m is not None)
            edges.append(Edge(source.entry.alias, below_it, port.keys, window))
        else:
            edges.append(Edge(None, (below,), port.keys, window))
    return tuple(edges)
