"""The document of a plan, as a checkpoint stores it. A run can only be resumed by queries that have the same document.

It holds what makes each query what it is, and which source, port or operator stands where in manifests.
"""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.plan.query import AppliedOperator, ContinuousQuery, Grouping, Source, joined_column
from anabranch.runtime.compile.prepared import PreparedPlan
from anabranch.state.store import Json


def plan_document(plan: PreparedPlan, queries: Mapping[str, Json]) -> Json:
    """The document of a plan; `queries` describes each query by itself."""
    network, layout = plan.network, plan.layout
    ports = network.ports
    nth: dict[int, int] = {}
    places = []
    for entry in layout.inputs:
        n, p = ports[entry.port]
        nth[entry.port] = nth.get(entry.port, -1) + 1
        places.append(f"{network.operators[n].identity}/{p}/{nth[entry.port]}")
    identities = [operator.identity for operator in network.operators]

    def holds(n: int, p: int) -> str:
        inside = network.inputs_of(network.operators[n].ports[p].node)
        return " ".join(network.inputs[i].entry.alias for i in inside)

    return {
        "queries": {r.name: {"since": r.since, "query": queries[r.name]} for r in plan.requests},
        "sources": [
            {
                "identity": place,
                "label": entry.label,
                "stream": entry.source.stream,
                "window (us)": entry.input.window,
                "lateness (us)": plan.streams[entry.source.stream].lateness,
            }
            for place, entry in zip(places, layout.inputs, strict=True)
        ],
        "ports": [
            {
                "identity": f"{identities[n]}/{p}",
                "holds": holds(n, p),
                "state": network.operators[n].ports[p].state.to_json(),
            }
            for n, p in ports
        ],
        "operators": identities,
        "groupings": [identities[n] for n in layout.processor.groupings],
        "read": [list(entry) for entry in plan.read],
    }


def query_document(plan: PreparedPlan) -> Json:
    """The document of the only query of a plan: two queries with equal documents can go on from each other's state."""
    (request,) = plan.requests
    layout = plan.layout
    return {
        "inputs": {
            entry.label: {
                "stream": entry.source.stream,
                "selections": _steps_document(entry.source),
                "window (us)": entry.input.window,
                "key": list(entry.input.key),
                "predicate": entry.input.predicate,
                "time column": plan.streams[entry.source.stream].time,
                "lateness (us)": plan.streams[entry.source.stream].lateness,
                "columns": {
                    column: plan.columns.type_of((entry.input.alias, column)).simpleString()
                    for column in entry.input.columns
                },
            }
            for entry in layout.inputs
        },
        **_block_document(request.query),
        "union": [_block_document(query) for query in request.query.united],
        "key types": [[data_type.simpleString() for data_type in types] for types in layout.key_types],
        "argument types": [[data_type.simpleString() for data_type in types] for types in layout.argument_types],
    }


def _block_document(query: ContinuousQuery) -> Json:
    """The part of a document on the joins, conditions, grouping and columns of a query or a sub-query."""

    def aliases(part: int) -> list[str]:
        return [query.inputs[i].alias for i in query.inputs_of(part)]

    return {
        "blocks": {
            entry.alias: [
                {**_block_document(source.block), "selections": _steps_document(source)}
                for source in entry.sources
                if source.block is not None
            ]
            for entry in query.inputs
            if any(source.block is not None for source in entry.sources)
        },
        "windows (us)": {entry.alias: entry.window for entry in query.inputs},
        "predicates": {entry.alias: entry.predicate for entry in query.inputs},
        "operators": [
            {
                "joins": [aliases(part) for part in operator.parts],
                "keys": [list(keys) for keys in operator.keys],
                "conditions": list(operator.conditions),
                "columns": [joined_column(*column) for column in operator.columns],
            }
            for operator in query.operators
        ],
        "grouping": _grouping_document(query.grouping),
        "residual predicate": query.residual,
        "select": [f"{output.expression} AS {output.name}" for output in query.outputs],
    }


def _steps_document(source: Source) -> list[Json]:
    return [
        {
            "where": list(selection.conditions),
            "select": [f"{made.expression} AS {made.name}" for made in selection.outputs],
        }
        for selection in source.steps
    ]


def _grouping_document(grouping: Grouping | None) -> Json | None:
    if grouping is None:
        return None
    return {
        "operator": None if grouping.applied is None else _operator_document(grouping.applied),
        "by": list(grouping.keys),
        "aggregates": [f"{call.function}({call.argument or '*'})" for call in grouping.calls],
        "having": list(grouping.conditions),
        "last rows": grouping.rows,
        "distinct": grouping.distinct,
        "emit": "batch" if grouping.once else "tuple",
    }


def _operator_document(applied: AppliedOperator) -> Json:
    """The part of a document on a user's operator: its `repr`, which names its class and arguments, and its columns."""
    return {"is": repr(applied.operator), "keeps": list(applied.columns), "gives": applied.result_ddl}
