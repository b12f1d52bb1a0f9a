"""Prepare bound queries: make their network, its layout and the packed streams; Spark analyses all of it before any
data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from anabranch.errors import ConfigError
from anabranch.manager.patterns.operator_graph import OperatorGraph, operator_graph
from anabranch.manager.tiers import queries
from anabranch.manager.tiers.clusters import Clusters
from anabranch.plan.allocation import Allocation, KnownAllocation, continued
from anabranch.plan.assembly import network_of
from anabranch.plan.network import Request
from anabranch.plan.placement import Placement
from anabranch.plan.query import StreamSchema
from anabranch.runtime.compile.checks import check_answers, check_inputs, check_lanes, check_sources
from anabranch.runtime.compile.columns import Columns
from anabranch.runtime.compile.layout import Layout
from anabranch.runtime.compile.packed import PackedLayout, packed_layout
from anabranch.runtime.compile.prepared import PreparedPlan
from anabranch.runtime.compile.rounds.lay_out import lay_out
from anabranch.runtime.compile.splitting import Share, shares_of
from anabranch.runtime.exchange.pack import pack
from anabranch.runtime.rows.derived import Sources
from anabranch.runtime.sinks.answers import answer_schema


def prepare(
    spark: SparkSession,
    requests: Sequence[Request],
    sources: Sources,
    streams: Mapping[str, StreamSchema],
    *,
    place: Callable[[OperatorGraph], tuple[Placement, ...]],
    clusters: Clusters | None = None,
    processors: int,
    keep_rejected: bool,
    keep_late: bool,
    read_before: Sequence[str] = (),
    known: KnownAllocation | None = None,
    running: PreparedPlan | None = None,
    stays: bool = False,
    checked: bool = False,
) -> PreparedPlan:
    """Put queries together and let Spark analyse their expressions, unless each of them was `checked` by itself.

    If a plan is `running` and its streaming query packs enough for the new plan, that query is kept. Otherwise streams
    are read anew. Those that were `read_before` stay the first ones, needed or not: Spark identifies sources by number.

    Operators are placed on a number of `processors`. Those of a `known` allocation stay where they are if a plan is
    `running` or a run `stays` as it is otherwise; a program that starts may ask for another placement than before. With
    `clusters` of processors, what a query gets new goes to the cluster that the query is in.
    """
    network = network_of(requests, streams)
    all_streams = {**streams, **{schema.name: schema for schema in network.derived}}
    if not checked:
        check_sources(spark, network, sources.registered)
    columns = Columns(spark, network, sources, all_streams)
    if not checked:
        check_inputs(spark, network, columns)
        check_answers(spark, network, columns)
    graph = operator_graph(network, requests, in_place=columns.in_place, fused=columns.fused)
    graph = queries.wanted(graph, clusters, known)
    initial = place(graph)
    allocation = Allocation(initial)
    if known is not None and queries.holds(clusters, known):
        names = [operator.identity for operator in network.operators]
        if stays or running is not None or known.is_wanted(processors, names, initial):
            fresh = place(queries.at_home(graph, clusters, known))
            allocation = continued(known, names, fresh, graph.flow.rounds(fresh).families, processors)
    layout = lay_out(
        network, columns, sources, all_streams, allocation, keep_rejected=keep_rejected, keep_late=keep_late
    )
    if not checked:
        check_lanes(spark, layout)
    schemas = tuple(answer_schema(spark, layout, answer) for answer in layout.answers)
    streaming = None if running is None else _kept(layout, running)
    if streaming is None:
        streaming = _packed_anew(layout, sources, read_before)
    return PreparedPlan(
        requests=tuple(requests),
        network=network,
        graph=graph,
        layout=layout,
        streams=all_streams,
        columns=columns,
        schemas=schemas,
        packing=streaming.packing,
        packed=streaming.packed,
        shares=streaming.shares,
        read=streaming.read,
        initial=initial,
        continues=allocation.families is not None,
    )


def allocate(
    plan: PreparedPlan, sources: Sources, allocation: Allocation, *, keep_rejected: bool, keep_late: bool
) -> PreparedPlan:
    """The same plan with its operators elsewhere: rounds and lanes are compiled anew, packed rows stay the same."""
    layout = lay_out(
        plan.network,
        plan.columns,
        sources,
        plan.streams,
        allocation,
        keep_rejected=keep_rejected,
        keep_late=keep_late,
    )
    shares = shares_of(layout, plan.packing)
    assert shares is not None, "what inputs need of packed rows does not depend on placements"
    return replace(plan, layout=layout, shares=shares)


@dataclass(frozen=True, slots=True)
class _Streaming:
    """The columns and streams that Spark's streaming query packs for a plan; the fields are those of `PreparedPlan`."""

    packing: PackedLayout
    packed: DataFrame
    read: tuple[tuple[str, int, int], ...]
    shares: tuple[Share, ...]


def _kept(layout: Layout, running: PreparedPlan) -> _Streaming | None:
    """The streaming part of the running plan; None if the layout needs more than that packs."""
    shares = shares_of(layout, running.packing)
    return None if shares is None else _Streaming(running.packing, running.packed, running.read, shares)


def _packed_anew(layout: Layout, sources: Sources, read_before: Sequence[str]) -> _Streaming:
    """A streaming part that packs all the layout needs."""
    packing = packed_layout(layout)
    used = [source.stream for source in packing.sources]
    names = tuple(dict.fromkeys([*read_before, *used]))
    for name in names:
        if name not in sources.registered:
            raise ConfigError(
                f"the stream {name!r} is not registered, but the checkpoint says that it is read; register it, too"
            )
    read = tuple((name, _relations(sources.registered[name]), max(used.count(name), 1)) for name in names)
    shares = shares_of(layout, packing)
    assert shares is not None, "what is packed for a plan is enough for it"
    return _Streaming(packing, pack(packing, sources, names), read, shares)


def _relations(stream: DataFrame) -> int:
    """The number of Spark's sources that a stream consists of."""
    return len(streaming_leaves(stream))


def streaming_leaves(stream: DataFrame) -> list[Any]:
    """The sources of a stream: the leaves of Spark's plan that stream."""
    leaves = stream._jdf.queryExecution().analyzed().collectLeaves()
    return [leaf for leaf in map(leaves.apply, range(leaves.size())) if leaf.isStreaming()]
