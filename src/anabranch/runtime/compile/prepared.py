"""A prepared plan: queries that Spark has analysed and that are ready to run together."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from anabranch.manager.patterns.operator_graph import OperatorGraph
from anabranch.plan.network import Network, Request
from anabranch.plan.placement import Placement
from anabranch.plan.query import StreamSchema
from anabranch.runtime.compile.columns import Columns
from anabranch.runtime.compile.layout import Layout
from anabranch.runtime.compile.packed import PackedLayout
from anabranch.runtime.compile.splitting import Share


@dataclass(frozen=True, slots=True)
class PreparedPlan:
    """Queries, ready to run together. `schemas` are those of their answers, `graph` is what patterns see of them.

    `packing` and `packed` live as long as Spark's streaming query, and so do `read`: the streams in the order in which
    that query has them, with how many sources of Spark's each one consists of and how often it occurs. `shares` are
    what inputs take of packed rows. The program wants operators in their `initial` placements. A plan that
    `continues` is laid out for where they are instead.
    """

    requests: tuple[Request, ...]
    network: Network
    graph: OperatorGraph
    layout: Layout
    streams: dict[str, StreamSchema]
    columns: Columns
    schemas: tuple[T.StructType, ...]
    packing: PackedLayout
    packed: DataFrame
    shares: tuple[Share, ...]
    read: tuple[tuple[str, int, int], ...]
    initial: tuple[Placement, ...]
    continues: bool
