"""The way of rows into the exchange before a round: they are packed, marked if they are too long, multiplied if they go
to several processors, and sent there.

The expressions for it are the same in every batch until a routing changes or a long row turns up, and so they are one
`Selection` per round.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import types as T

from anabranch.kernel.delta import INPUT
from anabranch.plan.routing import PortRouting
from anabranch.processor.arrivals import REJECT
from anabranch.runtime.compile.layout import Layout
from anabranch.runtime.compile.packed import PackedLayout
from anabranch.runtime.compile.splitting import Share
from anabranch.runtime.exchange.long_rows import marking
from anabranch.runtime.exchange.pack import pack_between
from anabranch.runtime.exchange.route import Address, address
from anabranch.runtime.exchange.split import split
from anabranch.runtime.spark.selection import Selection, SelectionStep
from anabranch.state.runs.run import HASH, TS


class Crossing:
    """The way of rows into the exchanges of a plan, by the number of the round that they come before."""

    def __init__(self, layout: Layout, packing: PackedLayout, shares: Sequence[Share]) -> None:
        """The inputs of the plan take these shares of packed rows; nothing is routed yet."""
        self._layout = layout
        self._can_reject = packing.can_reject
        self._packed = [split(layout, packing, shares), *map(pack_between, layout.exchanges)]
        self._addresses: list[Address] = []
        self._processors = 0
        self._sent: dict[tuple[int, bool], Selection] = {}

    def route(self, ports: Sequence[PortRouting], processors: int) -> None:
        """From now on rows go where these routings, one per port, send them."""
        self._addresses = [
            address({tag: ports[arrival.port] for tag, arrival in entry.arrivals.items()}, self._hashed(nth))
            for nth, entry in enumerate(self._layout.processor.rounds)
        ]
        self._processors = processors
        self._sent = {}

    def sent(self, number: int, *, limited: bool) -> Selection:
        """From packed rows, or what the round before yields, to one partition per processor."""
        if (number, limited) not in self._sent:
            exchanged = self._addresses[number].exchanged(self._processors)
            self._sent[number, limited] = Selection(*self._steps(number, limited), *exchanged)
        return self._sent[number, limited]

    def counted(self, number: int, *, limited: bool) -> Selection:
        """From packed rows, or what the round before yields, to as many rows as cross the exchange."""
        return Selection(*self._steps(number, limited))

    def _steps(self, number: int, limited: bool) -> tuple[SelectionStep, ...]:
        marks = () if self._layout.narrow else marking(self.columns(number), limited=limited)
        return (*self._packed[number], *marks, *self._addresses[number].multiplied)

    def columns(self, number: int) -> dict[str, T.DataType]:
        """The columns of rows that cross the exchange before a round."""
        own: dict[str, T.DataType] = {}
        if not number or INPUT in self._layout.exchanges[number - 1].yielded.names:
            own[INPUT] = T.ShortType()
        if not number and self._can_reject:
            own[REJECT] = T.StringType()
        return {**own, **self._hashed(number)}

    def _hashed(self, number: int) -> dict[str, T.DataType]:
        """Those of the columns that a row's hash is of: neither its input nor a note on it."""
        exchange = self._layout.exchanges[number - 1] if number else None
        timed = self._layout.timed if exchange is None else TS in exchange.yielded.names
        slots = self._layout.slots if exchange is None else exchange.slots
        columns: dict[str, T.DataType] = {HASH: T.LongType(), **({TS: T.LongType()} if timed else {})}
        return {**columns, **{slot.name: slot.type for slot in slots}}
