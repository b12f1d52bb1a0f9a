"""What a processor does with each operator: what it computes, and where the results go.

Results go to a sink, through an exchange, or straight into the state of another operator on the same processor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from anabranch.kernel.aggregate.window_aggregate import WindowAggregate
from anabranch.kernel.operator import EXPIRY, StatefulOperator
from anabranch.plan.network import Network
from anabranch.plan.query import joined_column, quote
from anabranch.processor.tasks import Destination, DestinationKind, OperatorPlan
from anabranch.runtime.compile.columns import Columns, time_name
from anabranch.runtime.compile.layout import Exchange, Outlet
from anabranch.runtime.compile.rounds.event_times import EventTimes
from anabranch.runtime.compile.rounds.joins import window_join
from anabranch.runtime.compile.rounds.lanes import Lanes
from anabranch.state.runs.run import HASH, TS

# Pairs of a new name and a name in the results of an operator.
Picked = tuple[tuple[str, str], ...]


class OperatorPlans:
    """Plans the operators of a network."""

    def __init__(self, network: Network, columns: Columns, lanes: Lanes, times: EventTimes) -> None:
        """Of a network, with the lanes that its rows travel in."""
        self._network = network
        self._columns = columns
        self._lanes = lanes
        self._times = times
        self._ports = network.ports

    def plan(self, n: int, exchanges: Sequence[Exchange], outlets: Sequence[Outlet]) -> OperatorPlan:
        """An operator as a processor runs it."""
        node = len(self._network.inputs) + n
        ports = tuple(number for number, (owner, _) in enumerate(self._ports) if owner == n)
        destinations = []
        for lane in (lane for exchange in exchanges for lane in exchange.lanes if lane.node == node):
            names = self._lanes.result_names(lane)
            picked = (*((column.slot, names[column.name]) for column in lane.columns), *lane.passed)
            destinations.append(Destination(DestinationKind.EXCHANGE, lane.tag, self._with_time(n, picked)))
        staying = [port for port in self._network.consumers(node) if self._ports[port] not in self._lanes.crossing]
        destinations += [self._staying(n, port) for port in staying]
        destinations += [
            Destination(DestinationKind.SINK, number, outlet.picked, outlet.fused, outlet.computed)
            for number, outlet in enumerate(outlets)
            if outlet.node == node
        ]
        if self._network.operators[n].grouping is not None:
            return OperatorPlan(n, ports, self._aggregate(n, destinations), tuple(destinations))
        join = window_join(self._network, self._columns, n, destinations)
        return OperatorPlan(n, ports, join, tuple(destinations))

    def stored_names(self, number: int) -> list[str]:
        """The columns that results of the operator below a port have in the port's state, on the same processor."""
        n, p = self._ports[number]
        lower = self._network.operator_of(self._network.operators[n].ports[p].node)
        assert lower is not None, "rows of streams arrive"
        staying = self._staying(lower, number)
        return [*(name for name, _ in staying.picked), *(name for name, _ in staying.computed)]

    def _staying(self, n: int, number: int) -> Destination:
        """The destination of an operator's results that are stored at a port on the same processor."""
        upper, p = self._ports[number]
        group, computed = self._columns.groups[upper], self._columns.arguments.get(upper, {})
        arguments = [] if group is None else zip(group.names, (text for text, _ in group.arguments), strict=True)
        return Destination(
            DestinationKind.HERE,
            number,
            self._with_time(n, self._picked_for(upper, p)),
            self._columns.fused.get((upper, p), ()),
            tuple((name, computed[text]) for name, text in arguments if text in computed),
        )

    def _picked_for(self, upper: int, p: int) -> Picked:
        """The columns of an operator's results that a port of the operator above stores."""
        port, group = self._network.operators[upper].ports[p], self._columns.groups[upper]
        if group is None:
            keys = tuple((name, name) for name in self._columns.verified(upper))
            columns = tuple(
                (self._columns.stored(port, c), self._columns.result_name(joined_column(*c))) for c in port.columns
            )
            times = tuple((self._columns.stored_time(port, i), time_name(i)) for i in self._columns.timed(port.node))
            return ((HASH, HASH), *keys, *columns, *times)
        names = {quote(field.name): self._columns.result_name(field.name) for field in self._columns.fields(port.node)}
        keys = tuple((f"key.{k}", names[text]) for k, text in enumerate(port.keys))
        texts = zip(group.names, (text for text, _ in group.arguments), strict=True)
        arguments = tuple((name, names[text]) for name, text in texts if text in names)
        return ((HASH, HASH), *keys, *arguments, (EXPIRY, EXPIRY))

    def _with_time(self, n: int, picked: Picked) -> Picked:
        return ((TS, TS), *picked) if self._columns.is_timed(n) and not self._columns.is_user_operator(n) else picked

    def _aggregate(self, n: int, destinations: Sequence[Destination]) -> StatefulOperator | WindowAggregate:
        """The grouping that a processor runs, or the user's operator in its place."""
        group, operator = self._columns.groups[n], self._network.operators[n]
        assert group is not None, "only a grouping has an aggregate"
        assert operator.grouping is not None, "only a grouping has an aggregate"
        if operator.grouping.applied is not None:
            return cast(StatefulOperator, operator.grouping.applied.operator)
        wanted = {name for destination in destinations for name in destination.reads}
        results = tuple((self._columns.result_name(field.name), k) for k, field in enumerate(group.results))
        return WindowAggregate(
            keys=tuple(f"key.{k}" for k in range(len(group.keys))),
            aggregates=group.aggregates,
            results=tuple(result for result in results if result[0] in wanted) or results[:1],
            width=self._times.port(n, 0).window,
            rows=operator.grouping.rows,
            ties=group.names,
            distinct=operator.grouping.distinct,
            last_only=operator.grouping.once,
            timed=TS in wanted,
        )
