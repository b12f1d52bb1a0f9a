"""The document of a plan, as a checkpoint stores it. A run can only be resumed by queries that have the same document.

It holds what makes each query what it is, and which source, port or operator stands where in manifests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from anabranch.plan.join_order import rearranged, shape_of
from anabranch.plan.query import AppliedOperator, ContinuousQuery, Grouping, Source, joined_column
from anabranch.plan.sharing.port_state import digest
from anabranch.runtime.compile.prepared import PreparedPlan
from anabranch.state.store import Json


def plan_document(plan: PreparedPlan, queries: Mapping[str, Json], former: Mapping[str, Json] | None = None) -> Json:
    """The document of a plan; `queries` describes each query by itself, `former` what those were that were changed."""
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
        "queries": {
            r.name: {
                "since": r.since,
                "track": r.track,
                "joins": _joins(r.query),
                "query": queries[r.name],
                **({"lacking": r.lacking} if r.lacking else {}),
                **({"changed": former[r.name]} if former and r.name in former else {}),
            }
            for r in plan.requests
            if not r.shadow
        },
        "sources": [
            {
                "identity": place,
                "rows": _rows_of(plan, entry.port, place),
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
                **({"groups": _groups_document(plan, n)} if network.operators[n].grouping is not None else {}),
            }
            for n, p in ports
        ],
        "operators": identities,
        "groupings": [identities[n] for n in layout.processor.groupings],
        "read": [list(entry) for entry in plan.read],
    }


def _joins(query: ContinuousQuery) -> Json | None:
    """The shape of a query's joins, over the numbers of its inputs; None if there is none to choose."""
    shape: Json | None = json.loads(json.dumps(shape_of(query))) if query.logical is not None else None
    return shape


def _rows_of(plan: PreparedPlan, port: int, place: str) -> str:
    """Which rows a source brings, whatever operator they come to."""
    n, p = plan.network.ports[port]
    return f"{digest(plan.network.operators[n].ports[p].state.identity.holds)}/{place.rpartition('/')[2]}"


def _groups_document(plan: PreparedPlan, n: int) -> Json:
    """What the state of a grouping depends on beside the rows that come to it: how they are hashed, and what for."""
    operator, columns = plan.network.operators[n], plan.columns
    grouping, (port,) = operator.grouping, operator.ports
    assert grouping is not None, "only a grouping groups"
    lower = plan.network.operator_of(port.node)
    in_place = columns.in_place.get(n)
    types = columns.key_types[n] if in_place is None or lower is None else columns.key_types[lower]
    texts = [text for text, _ in port.state.identity.key]
    groups = columns.groups[n]
    assert groups is not None, "only a grouping has groups"
    stored = [data_type.simpleString() for _, data_type in groups.arguments]
    return {
        "stored": dict(zip(groups.names, stored, strict=True)),
        "hashed": [[texts[k], types[j].simpleString()] for j, k in enumerate(in_place or range(len(texts)))],
        "nulls apart": in_place is None and len(texts) > 1,
        **(_grouping_document(grouping) or {}),
        "by": texts,
        "aggregates": [[aggregate.function, aggregate.column] for aggregate in groups.aggregates],
        "having": [],
    }


def query_document(plan: PreparedPlan) -> Json:
    """The document of the only query of a plan: two queries with equal documents can go on from each other's state.

    Nothing in it depends on the order of its joins, which may change while it runs.
    """
    (request,) = plan.requests
    query, layout = request.query, plan.layout
    plain = query if query.logical is None else rearranged(query, None)
    node = plan.network.answers[0].branches[0].node
    own = dict(zip(sorted(plan.network.inputs_of(node)), plain.inputs, strict=True))
    return {
        "inputs": {
            entry.label: {
                "stream": entry.source.stream,
                "selections": _steps_document(entry.source),
                "window (us)": entry.input.window,
                "key": list(own.get(entry.leaf, entry.input).key),
                "predicate": own.get(entry.leaf, entry.input).predicate,
                "time column": plan.streams[entry.source.stream].time,
                "lateness (us)": plan.streams[entry.source.stream].lateness,
                "columns": {
                    column: plan.columns.type_of((entry.input.alias, column)).simpleString()
                    for column in own.get(entry.leaf, entry.input).columns
                },
            }
            for entry in layout.inputs
        },
        **_block_document(plain),
        "union": [_block_document(query) for query in query.united],
        "key types": _key_types(plan),
        "argument types": [[data_type.simpleString() for data_type in types] for types in layout.argument_types],
    }


def _key_types(plan: PreparedPlan) -> dict[str, list[str]]:
    """The types of the columns that are compared, by input; those of groups are said by the types of their keys."""
    types: dict[str, list[str]] = {}
    for n, operator in enumerate(plan.network.operators):
        if operator.grouping is not None:
            types[f"group {n}"] = [data_type.simpleString() for data_type in plan.columns.key_types[n]]
    for query in (request.query for request in plan.requests):
        for term in {term for pair in (query.logical.equalities if query.logical else ()) for term in pair}:
            schema = plan.columns.frame(term.alias).schema
            types[f"{term.alias}.{term.below}"] = [
                schema[name].dataType.simpleString() for name in sorted(term.columns)
            ]
    return types


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
