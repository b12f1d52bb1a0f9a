"""Event time in a layout: the lateness of each source, and what the rows at each port can still meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.plan.network import Network
from anabranch.plan.query import StreamSchema
from anabranch.plan.watermark import BlockTime, PortTime, SourceTime, retention
from anabranch.runtime.compile.layout import InputLayout

# A run covers at most this part of the time that rows are kept, so that most of them can be dropped whole.
SPANS_PER_RETENTION = 4


class EventTimes:
    """The times of one network over its streams."""

    def __init__(self, network: Network, streams: Mapping[str, StreamSchema]) -> None:
        """Of a network; `streams` are those that it reads and those that its blocks give."""
        self._network = network
        self._streams = streams
        self._groupings = [n for n, operator in enumerate(network.operators) if operator.grouping is not None]

    @property
    def groupings(self) -> tuple[int, ...]:
        """The operators that group, ascending."""
        return tuple(self._groupings)

    def source(self, entry: InputLayout) -> SourceTime:
        """The time of a source."""
        n, _ = self._network.ports[entry.port]
        late = self._network.inputs[entry.leaf].late
        lateness = self._streams[entry.source.stream].lateness if late else None
        return SourceTime(entry.leaf, lateness, self._grouping(n))

    def ports(self) -> tuple[PortTime, ...]:
        """The times of all ports, in their order."""
        return tuple(self.port(n, p) for n, p in self._network.ports)

    def port(self, n: int, p: int) -> PortTime:
        """The time of a port of an operator."""
        ports, network = self._network.operators[n].ports, self._network
        inside = network.inputs_of(ports[p].node)
        others = network.joined_with(ports[p].node) - set(inside)
        windows = [w for i in inside if (w := network.inputs[i].entry.window) is not None]
        grouping = self._grouping(n)
        feeding = [port.node for other, port in enumerate(ports) if other != p or grouping is not None]
        debtors = tuple(m for node in feeding for m in network.operators_of(node))
        return PortTime(inside, tuple(sorted(others)), min(windows, default=None), grouping, debtors, n)

    def blocks(self) -> tuple[BlockTime, ...]:
        """The times of the rows with which blocks feed inputs."""
        return tuple(
            self._block(number, feed.node)
            for number, entry in enumerate(self._network.inputs)
            for feed in entry.feeds
            if feed is not None
        )

    def _block(self, number: int, node: int) -> BlockTime:
        """The time of the rows that a node feeds an input with."""
        network = self._network
        n = network.operator_of(node)
        assert n is not None, "a block has an operator"
        timed = self._streams[network.inputs[number].entry.stream].time is not None
        return BlockTime(number, network.inputs_of(node), self._grouping(n), timed, network.operators_of(node))

    def _grouping(self, n: int) -> int | None:
        return self._groupings.index(n) if n in self._groupings else None


def max_span(sources: Sequence[SourceTime], port: PortTime, blocks: Sequence[BlockTime]) -> int | None:
    """How much time one run of a port may cover; None where rows are kept for ever."""
    kept = retention(sources, port, blocks)
    return None if kept is None else max(kept // SPANS_PER_RETENTION, 1)
