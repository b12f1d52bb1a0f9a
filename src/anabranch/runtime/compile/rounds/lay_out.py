"""From a network to its layout: which columns are stored and travel where, and what each operator does with them.

Ports are numbered as in `plan/network`; state lies at ports, and rows are exchanged to ports. Names of columns are
those of `columns`. The parts of a layout are made in modules of their own: `inputs`, `lanes`, `operator_plans`,
`outlets`, `event_times`. Here they are put together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from anabranch.plan.allocation import Allocation
from anabranch.plan.network import Network
from anabranch.plan.query import StreamSchema
from anabranch.plan.rounds import Rounds, rounds_of
from anabranch.processor.tasks import Arrival, ProcessorPlan, RoundPlan
from anabranch.runtime.compile.columns import Columns
from anabranch.runtime.compile.layout import AnswerLayout, Exchange, Layout, Outlet
from anabranch.runtime.compile.rounds.event_times import EventTimes, max_span
from anabranch.runtime.compile.rounds.inputs import Inputs, LaidOutSource
from anabranch.runtime.compile.rounds.lanes import Lanes
from anabranch.runtime.compile.rounds.operator_plans import OperatorPlans
from anabranch.runtime.compile.rounds.outlets import outlet
from anabranch.runtime.rows.derived import Sources
from anabranch.state.runs.run import HASH, TS

# What arrives in each round, by tag.
Arrivals = Sequence[dict[int, Arrival]]


def lay_out(
    network: Network,
    columns: Columns,
    sources: Sources,
    streams: Mapping[str, StreamSchema],
    allocation: Allocation,
    *,
    keep_rejected: bool,
    keep_late: bool,
) -> Layout:
    """The layout of a network over the given stream DataFrames, with each operator where it is allocated."""
    rounds = rounds_of(
        network, allocation.placements, in_place=columns.in_place, fused=columns.fused, families=allocation.families
    )
    lanes, times = Lanes(network, columns, rounds), EventTimes(network, streams)
    inputs = Inputs(network, columns, sources, streams, keep_late=keep_late)
    packed = list(inputs.packed())
    exchanges = [lanes.exchange(number) for number in range(1, rounds.count)]
    outlets, answers = _answers(network, columns)
    operators = OperatorPlans(network, columns, lanes, times)
    arrivals = _arrivals(packed, exchanges)
    source_times = tuple(times.source(entry.layout) for entry in packed)
    blocks, ports = times.blocks(), times.ports()
    processor = ProcessorPlan(
        aliases=tuple(entry.layout.label for entry in packed),
        rounds=_round_plans(rounds, operators, arrivals, exchanges, outlets, columns.time_zone),
        stored=tuple(_stored(network, columns, operators, arrivals, number) for number in range(len(ports))),
        max_spans=tuple(max_span(source_times, port, blocks) for port in ports),
        windows=tuple(port.window if port.grouping is None else None for port in ports),
        owners=tuple(n for n, _ in network.ports),
        groupings=times.groupings,
        groups=len(allocation.placements[0]),
        keep_rejected=keep_rejected,
        late_projections=tuple(entry.late for entry in packed) if keep_late else None,
        shadows=frozenset(n for n, entry in enumerate(packed) if network.inputs[entry.layout.leaf].shadow),
    )
    return Layout(
        inputs=tuple(entry.layout for entry in packed),
        slots=tuple(inputs.slots),
        exchanges=tuple(exchanges),
        key_types=tuple(columns.key_types),
        rounds=rounds.of,
        allocation=replace(allocation, families=rounds.families),
        kindred=rounds_of(network, in_place=columns.in_place, fused=columns.fused).families,
        sources=source_times,
        blocks=blocks,
        ports=ports,
        timed=any(entry.timed for entry in network.inputs),
        processor=processor,
        outlets=tuple(outlets),
        answers=tuple(answers),
        argument_types=tuple(
            () if group is None else tuple(data_type for _, data_type in group.arguments) for group in columns.groups
        ),
    )


def _answers(network: Network, columns: Columns) -> tuple[list[Outlet], list[AnswerLayout]]:
    """The outlets of all answers, and which of them belong to each."""
    outlets: list[Outlet] = []
    answers = []
    for answer in network.answers:
        numbers = range(len(outlets), len(outlets) + len(answer.branches))
        outlets += [outlet(network, columns, branch) for branch in answer.branches]
        answers.append(AnswerLayout(answer.name, tuple(numbers)))
    return outlets, answers


def _arrivals(packed: Sequence[LaidOutSource], exchanges: Sequence[Exchange]) -> Arrivals:
    """Rows of sources arrive in the first round, results of operators in later ones."""
    first = {number: Arrival(entry.layout.port, entry.stored) for number, entry in enumerate(packed)}
    return [first, *({lane.tag: Arrival(lane.port, lane.stored) for lane in entry.lanes} for entry in exchanges)]


def _round_plans(
    rounds: Rounds,
    operators: OperatorPlans,
    arrivals: Arrivals,
    exchanges: Sequence[Exchange],
    outlets: Sequence[Outlet],
    time_zone: str,
) -> tuple[RoundPlan, ...]:
    """What a processor does in each round; the last one yields no rows to a further exchange."""
    yielded = [*(_arrow_schema(exchange.yielded, time_zone) for exchange in exchanges), None]
    return tuple(
        RoundPlan(
            tuple(operators.plan(n, exchanges, outlets) for n in rounds.operators(number)),
            arrivals[number],
            yielded[number],
        )
        for number in range(rounds.count)
    )


def _stored(
    network: Network, columns: Columns, operators: OperatorPlans, arrivals: Arrivals, number: int
) -> tuple[str, ...]:
    """The columns of the state at a port, in an order that does not depend on the queries."""
    n, _ = network.ports[number]
    projections = [arrival.stored for of_round in arrivals for arrival in of_round.values() if arrival.port == number]
    names = [name for name, _ in projections[0].columns] if projections else operators.stored_names(number)
    times = [TS] if columns.is_timed(n) else []
    return (HASH, *times, *sorted(set(names) - {HASH, TS}))


def _arrow_schema(schema: T.StructType, time_zone: str) -> pa.Schema:
    """A schema as Spark hands rows over: moments name the session's time zone."""
    return to_arrow_schema(schema, timezone=time_zone, error_on_duplicated_field_names_in_struct=True)
