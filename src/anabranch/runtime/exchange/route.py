"""Routing rows in Spark: a routing written as an expression, with its tables as literals of one batch's plan.

Where every group has an owner, the processor of a row is one expression over its tag and key hash. Where rows of a
group are spread, the expression also reads a hash of the whole row: of all columns that travel and that Spark can hash.
Only where some rows go to several processors are rows multiplied, by one `explode` before the exchange.

`plan/routing.processors_of` says the same in NumPy, and a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import types as T

from anabranch.kernel.delta import INPUT
from anabranch.plan.placement import Placement, even_placement
from anabranch.plan.query import RESERVED, quote
from anabranch.plan.routing import SPREAD_BITS, Diffused, Everywhere, PortRouting, Spread
from anabranch.runtime.spark.selection import Partition, Select, SelectionStep
from anabranch.state.groups import group_bits
from anabranch.state.runs.run import HASH

# The column with the processor of a row, where rows are multiplied.
PROCESSOR = f"{RESERVED}processor"

_UNHASHABLE = (T.MapType, T.VariantType)


@dataclass(frozen=True, slots=True)
class Address:
    """Where the rows before a round go: the processor of a row, or all its processors if rows are multiplied."""

    to: str
    multiplies: bool

    @property
    def multiplied(self) -> tuple[SelectionStep, ...]:
        """From rows to rows as they cross the exchange: once for each processor that they go to."""
        return (Select(("*", f"explode({self.to}) AS {quote(PROCESSOR)}")),) if self.multiplies else ()

    def exchanged(self, processors: int) -> tuple[SelectionStep, ...]:
        """From rows, multiplied where they have to be, to one partition per processor."""
        if not self.multiplies:
            return (Partition(self.to, processors),)
        return Partition(quote(PROCESSOR), processors), Select((f"* EXCEPT ({quote(PROCESSOR)})",))


def address(routings: Mapping[int, PortRouting], columns: Mapping[str, T.DataType]) -> Address:
    """Where packed rows go, given the routing of each tag and the columns that travel."""
    tags: dict[PortRouting, list[int]] = {}
    for tag, routing in routings.items():
        tags.setdefault(routing, []).append(tag)
    multiplies = any(routing.multiplies for routing in tags)
    row_hash = _row_hash(columns)
    (first, _), *others = tags.items()
    cases = [
        f"WHEN {INPUT} IN ({', '.join(map(str, those))}) THEN {_target(routing, row_hash, multiplies)}"
        for routing, those in others
    ]
    last = _target(first, row_hash, multiplies)
    return Address(f"CASE {' '.join(cases)} ELSE {last} END" if cases else last, multiplies)


def _row_hash(columns: Mapping[str, T.DataType]) -> str:
    """The hash of a row, by its content alone."""
    return f"xxhash64({', '.join(quote(name) for name, data_type in columns.items() if _is_hashable(data_type))})"


def _is_hashable(data_type: T.DataType) -> bool:
    match data_type:
        case T.ArrayType():
            return _is_hashable(data_type.elementType)
        case T.StructType():
            return all(_is_hashable(field.dataType) for field in data_type)
    return not isinstance(data_type, _UNHASHABLE)


def _target(routing: PortRouting, row_hash: str, multiplies: bool) -> str:
    """The processor of a row of a port; an array of processors if rows are multiplied."""
    group = _group(len(routing.placement))
    owner = _owner(routing.placement, group)
    by_route = routing.by_route()
    cases = [
        f"WHEN {number} THEN {_diffused(route, row_hash, multiplies)}" for number, route in enumerate(by_route, start=1)
    ]
    last = f"array({owner})" if multiplies else owner
    if not cases:
        return last
    numbers = [0] * len(routing.placement)
    for number, groups in enumerate(by_route.values(), start=1):
        for diffused in groups:
            numbers[diffused] = number
    return f"CASE {_looked_up(numbers, group)} {' '.join(cases)} ELSE {last} END"


def _diffused(route: Diffused, row_hash: str, multiplies: bool) -> str:
    if isinstance(route, Everywhere):
        return f"array({', '.join(map(str, route.hosts))})"
    host = _spread(route, row_hash)
    return f"array({host})" if multiplies else host


def _spread(route: Spread, row_hash: str) -> str:
    """The host of a row, by the leading bits of its hash."""
    leading = f"shiftrightunsigned({row_hash}, {64 - SPREAD_BITS})"
    cases = [f"WHEN {leading} < {bound}L THEN {host}" for host, bound in zip(route.hosts, route.bounds, strict=False)]
    return f"CASE {' '.join(cases)} ELSE {route.hosts[-1]} END"


def _owner(placement: Placement, group: str) -> str:
    """The owner of a row's partition group. Contiguous blocks are computed."""
    groups, processors = len(placement), max(placement) + 1
    if len(set(placement)) == 1:
        return str(placement[0])
    if processors <= groups and placement == even_placement(groups, processors):
        return f"CAST({group} * {processors} DIV {groups} AS INT)"
    return _looked_up(placement, group)


def _group(groups: int) -> str:
    bits = group_bits(groups)
    return f"CAST(shiftrightunsigned({HASH}, {64 - bits}) AS INT)" if bits else "0"


def _looked_up(numbers: Sequence[int], group: str) -> str:
    """The number of a row's group in a table.

    The table is written as one text: a table of 256 literals would be walked by every rule of Spark's planner, in every
    batch.
    """
    return f"get(CAST(split('{','.join(map(str, numbers))}', ',') AS ARRAY<INT>), {group})"
