"""Measure the costs of all orders of a run's joins between two batches, also of those that do not run.

Arrivals per second come from the reports of recent steps, stored rows from manifests, and sizes of joins from a sample
of the stored rows (`exchange/sample`). No step is made meanwhile, since steps remove files; `manager/order_statistics`
says how seldom this is done. The costs are put on record in the checkpoint, for people.

The results that running operators have really made are not used: an order would look better or worse for being the one
in force.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from anabranch.manager.order_costs import OrderCosts, QueryOrders
from anabranch.manager.shadows.filling import rows_at
from anabranch.plan.join_order import shape_of
from anabranch.plan.network import Request
from anabranch.plan.orders.join_estimates import MeasuredEstimates
from anabranch.plan.orders.join_sample import InputSample, JoinSample, sampled_estimates
from anabranch.plan.orders.plan_cost import compared_plans
from anabranch.plan.query import LogicalQuery
from anabranch.plan.sharing.leaf_ports import leaf_ports
from anabranch.runtime.driver.step.context import StepContext
from anabranch.runtime.driver.step.result import NO_BATCH, StepResult
from anabranch.runtime.driver.step_runner import StepRunner
from anabranch.runtime.exchange.sample import HashRange, SampledPort, sample
from anabranch.runtime.rows.keys import key_type
from anabranch.state.runs.slice import Slice

# About how many rows of an input are kept for each of its classes.
KEPT_ROWS = 20_000
# Where a range has no row of some input the next one is so much wider.
WIDER = 16
# Over how many batches arrivals are counted.
RECENT_BATCHES = 20
# How many orders are listed for each wish.
LISTED = 10
# Ranges are at another place each time, as far from all earlier ones as can be: the golden ratio.
_GOLDEN = 0.6180339887498949


def measure_orders(runner: StepRunner, no_rows: DataFrame) -> OrderCosts:
    """Sample the state of all queries with joins between two batches, and compare their orders."""
    with runner.between_batches() as context:
        context.run.checkpoint.check_epoch()
        statistics = context.run.orders
        started = time.perf_counter()
        costs: dict[str, QueryOrders] = {}
        estimates: dict[str, MeasuredEstimates] = {}
        for request in context.plan.requests:
            if request.query.logical is not None and not request.shadow:
                place = (statistics.measured + 1) * _GOLDEN % 1
                costs[request.name], estimates[request.name] = _measured(context, no_rows.sparkSession, request, place)
        seconds = time.perf_counter() - started
        statistics.note(runner.status.last_number, context.run.clock(), seconds, costs, estimates)
        assert statistics.latest is not None, "it was noted"
        context.run.checkpoint.records.write_orders(statistics.latest.to_json())
        return statistics.latest


def _measured(
    context: StepContext, session: SparkSession, request: Request, place: float
) -> tuple[QueryOrders, MeasuredEstimates]:
    query, plan = request.query, context.plan
    assert query.logical is not None, "it has joins"
    ports = leaf_ports(plan.network, request, plan.streams)
    rates = arrivals(context, ports)
    sampled = _sampled(
        context, session, [_sampled_port(context, session, request, ports, n) for n in range(len(ports))], place
    )
    estimates = sampled_estimates(query.logical, rates, sampled, _alive(context, query.logical, ports))
    plans = compared_plans(query.logical, shape_of(query), estimates, latenesses(context, request), LISTED)
    aliases = query.logical.aliases
    stored = dict(zip(aliases, (one.stored for one in sampled.inputs), strict=True))
    return QueryOrders(plans, dict(zip(aliases, rates, strict=True)), stored), estimates


def _alive(context: StepContext, query: LogicalQuery, ports: Sequence[int]) -> list[float]:
    """Per input, about which share of its stored rows the next rows can still meet: its window, of all the event time
    from its oldest stored row to the newest one of any input. The others are kept for late rows."""
    owners, manifests = context.shape.owners, context.in_force.distribution.manifests
    files = [
        [piece.file for manifest in manifests for run in rows_at(manifest, port, owners) for piece in run]
        for port in ports
    ]
    newest = max((file.max_ts for port in files for file in port if file.max_ts is not None), default=None)
    shares = []
    for entry, own in zip(query.inputs, files, strict=True):
        oldest = min((file.min_ts for file in own if file.min_ts is not None), default=None)
        if entry.window is None or newest is None or oldest is None or newest <= oldest:
            shares.append(1.0)
        else:
            shares.append(min(1.0, entry.window / (newest - oldest)))
    return shares


def latenesses(context: StepContext, request: Request) -> list[int | None]:
    """The lateness of a query's streams."""
    streams = {**context.plan.streams, **{schema.name: schema for schema in request.query.derived}}
    return [streams[entry.stream].lateness for entry in request.query.inputs]


def arrivals(context: StepContext, ports: Sequence[int]) -> list[float]:
    """The rows per second that came to some ports in recent batches; per second of work if the clock stands still."""
    recent = [result for result in list(context.run.results) if result.batch_id != NO_BATCH][-RECENT_BATCHES:]
    if not recent:
        return [0.0] * len(ports)
    seconds = recent[-1].time - recent[0].time
    # The first has brought what came before it.
    counted = recent[1:] if seconds > 0 else recent
    seconds = seconds if seconds > 0 else sum(result.seconds for result in recent)
    received = [_received(context, counted, port) for port in ports]
    return [rows / max(seconds, 1e-9) for rows in received]


def _received(context: StepContext, results: Sequence[StepResult], port: int) -> int:
    """The rows that came to a port from streams and from the operators of a sub-query, before it selects."""
    network = context.plan.network
    n, p = network.ports[port]
    feeds = [feed for feed in network.inputs[network.operators[n].ports[p].node].feeds if feed is not None]
    operators = {context.shape.operators[m].name for feed in feeds if (m := network.operator_of(feed.node)) is not None}
    labels = {entry.label for entry in context.layout.inputs if entry.port == port}
    return sum(
        sum(count for label, count in zip(result.labels, report.received, strict=True) if label in labels)
        + sum(count for name, count in zip(result.operators, report.produced, strict=True) if name in operators)
        for result in results
        for report in result.reports
    )


def _sampled(context: StepContext, session: SparkSession, ports: Sequence[SampledPort], place: float) -> JoinSample:
    """Sample the ports. Ranges of hashes are widened until every input that has rows is in the sample."""
    ranges = {c: HashRange.of(_share(ports, c), place) for port in ports for c in port.terms}
    while True:
        samples = sample(session, ports, ranges, context.run.checkpoint.state, context.shape.groups)
        empty = {
            c for port, one in zip(ports, samples, strict=True) if port.rows for c in port.terms if not _has(one, c)
        }
        narrow = {c for c in empty if not ranges[c].is_all}
        if not narrow:
            return JoinSample(samples, {c: one.share for c, one in ranges.items()})
        ranges |= {c: HashRange.of(ranges[c].share * WIDER, place) for c in narrow}


def _share(ports: Sequence[SampledPort], c: int) -> float:
    """The share of rows to be kept for a class."""
    return min(1.0, KEPT_ROWS / max(1, *(port.rows for port in ports if c in port.terms)))


def _has(one: InputSample, c: int) -> bool:
    return any(len(hashes) for hashes in one.kept[c].values())


def _sampled_port(
    context: StepContext, session: SparkSession, request: Request, ports: Sequence[int], n: int
) -> SampledPort:
    """The port of an input with the columns and hashes that a sample of it needs."""
    query, plan, distribution = request.query, context.plan, context.in_force.distribution
    owners, port = context.shape.owners, ports[n]
    pieces: list[list[Slice]] = [
        [piece for run in rows_at(manifest, port, owners) for piece in run] for manifest in distribution.manifests
    ]
    shared = {c: terms for c, terms in enumerate(query.classes) if len({alias for alias, _ in terms}) > 1}
    own = {
        c: next(text for alias, text in terms if alias == query.inputs[n].alias)
        for c, terms in shared.items()
        if any(alias == query.inputs[n].alias for alias, _ in terms)
    }
    if len(own) == 1:
        # It can be joined on nothing else, so this is what it is hashed on.
        (c,) = own
        return SampledPort(pieces, {c: ("", T.LongType())}, c, {})
    networks = {entry.alias: _network_alias(context, ports[m]) for m, entry in enumerate(query.inputs)}
    frames = {alias: plan.columns.frame(alias) for alias in networks.values()}
    types = {c: key_type(session, [(networks[alias], text) for alias, text in shared[c]], frames) for c in own}
    stored = [name.removeprefix("col.") for name in plan.layout.processor.stored[port] if name.startswith("col.")]
    columns = {name: plan.columns.type_of((networks[query.inputs[n].alias], name)) for name in stored}
    return SampledPort(pieces, {c: (own[c], types[c]) for c in own}, None, columns)


def _network_alias(context: StepContext, port: int) -> str:
    n, p = context.plan.network.ports[port]
    network = context.plan.network
    return network.inputs[network.operators[n].ports[p].node].entry.alias
