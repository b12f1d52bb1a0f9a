"""What state belongs to: the document of a plan, and carrying state over from one plan to the next.

A step names the plan it was made under. The plan's document describes every query, so that a checkpoint is not resumed
with another one, and says what is where: operators by identity, ports, sources and groupings in the order in which
manifests and steps list them. When queries are added or removed, what is still there keeps its state; it is found by
identity. Nothing is copied.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from anabranch.checkpoint.directory import Checkpoint, differences
from anabranch.checkpoint.queries import answered_queries
from anabranch.checkpoint.step import Asked, Step
from anabranch.errors import ResumeMismatchError
from anabranch.plan.network import Request
from anabranch.plan.placement import on_processors
from anabranch.plan.query import Applied, ContinuousQuery, Grouping, Source, joined_column
from anabranch.runtime.driver.prepare import Plan
from anabranch.runtime.spark.query_settings import TIME_ZONE, Settings
from anabranch.state.manifest import Manifest, OperatorState
from anabranch.state.spine import Spine
from anabranch.state.store import Json

Value = TypeVar("Value")
Other = TypeVar("Other")


def describe_engine(version: str, groups: int, settings: Settings | None) -> Json:
    """What all plans of a checkpoint have in common."""
    known = dict(settings or {})
    return {
        "engine version": ".".join(version.split(".")[:2]),
        "groups": groups,
        "session time zone": known.pop(TIME_ZONE, None),
        "settings": known,
    }


def describe_plan(plan: Plan, queries: Mapping[str, Json]) -> Json:
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
        "ports": [{"identity": f"{identities[n]}/{p}", "holds": holds(n, p)} for n, p in ports],
        "operators": identities,
        "groupings": [identities[n] for n in layout.processor.groupings],
        "read": [list(entry) for entry in plan.read],
    }


def describe_query(plan: Plan) -> Json:
    """The only query of a plan, as far as another one would be another query."""
    (request,) = plan.requests
    layout = plan.layout
    return {
        "inputs": {
            entry.label: {
                "stream": entry.source.stream,
                "selections": _describe_steps(entry.source),
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
        **_describe_block(request.query),
        "union": [_describe_block(query) for query in request.query.united],
        "key types": [[data_type.simpleString() for data_type in types] for types in layout.key_types],
        "argument types": [[data_type.simpleString() for data_type in types] for types in layout.argument_types],
    }


def _describe_block(query: ContinuousQuery) -> Json:
    """What a query or a sub-query does with its inputs."""

    def aliases(part: int) -> list[str]:
        return [query.inputs[i].alias for i in query.inputs_of(part)]

    return {
        "blocks": {
            entry.alias: [
                {**_describe_block(source.block), "selections": _describe_steps(source)}
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
        "grouping": _describe_grouping(query.grouping),
        "residual predicate": query.residual,
        "select": [f"{output.expression} AS {output.name}" for output in query.outputs],
    }


def _describe_steps(source: Source) -> list[Json]:
    return [
        {
            "where": list(selection.conditions),
            "select": [f"{made.expression} AS {made.name}" for made in selection.outputs],
        }
        for selection in source.steps
    ]


def _describe_grouping(grouping: Grouping | None) -> Json | None:
    if grouping is None:
        return None
    return {
        "operator": None if grouping.applied is None else _describe_operator(grouping.applied),
        "by": list(grouping.keys),
        "aggregates": [f"{call.function}({call.argument or '*'})" for call in grouping.calls],
        "having": list(grouping.conditions),
        "last rows": grouping.rows,
        "distinct": grouping.distinct,
        "emit": "batch" if grouping.once else "tuple",
    }


def _describe_operator(applied: Applied) -> Json:
    """What makes an operator another one, as far as that can be told: its class and what it was made with."""
    return {"is": repr(applied.operator), "keeps": list(applied.columns), "gives": applied.gives}


def requests_after(
    checkpoint: Checkpoint, asked: Sequence[Request], described: Mapping[str, Json], removed: Collection[str] = ()
) -> list[Request]:
    """What is asked now, with when each query began: those that have been answered, as before; new ones, now.

    Refused if a query has changed, or if one is missing that is not `removed`: its state would be lost. A query counts
    if the last step was made with it, and it has not been removed since.
    """
    last = checkpoint.last_step()
    if last is None:
        return [replace(request, since=1) for request in asked]
    before = answered_queries(checkpoint, last)
    where, version = checkpoint.path, checkpoint.next_plan
    names = {request.name: request.name for request in asked}
    if len(before) == 1 and len(asked) == 1 and not removed:
        names = {asked[0].name: next(iter(before))}  # what a single query is called makes no difference
    found = [
        f"{what} was {short(was)} and is now {short(now)}"
        for request in asked
        if names[request.name] in before
        for what, was, now in differences(
            {"query": before[names[request.name]]["query"]}, {"query": described[request.name]}
        )
    ]
    if found:
        raise ResumeMismatchError(
            f"checkpoint {where} cannot be resumed: {'; '.join(found)}. Run the query it was made with, or give the "
            "changed one a new checkpoint directory"
        )
    missing = sorted(before.keys() - set(names.values()) - set(removed))
    if missing:
        raise ResumeMismatchError(
            f"checkpoint {where} cannot be resumed: it also answers the query {missing[0]!r}, which is not started. "
            f"Start it, too, or let it go: start(..., missing='remove'), or: anabranch remove {where} {missing[0]!r}"
        )
    # A query that was added, and that no batch has been made for since, is the same one still.
    in_force = checkpoint.plan(checkpoint.plan_number)["queries"]
    added = {name: entry["since"] for name, entry in in_force.items() if entry["query"] == described.get(name, {})}
    return [
        replace(request, name=name, since=before[name]["since"] if name in before else added.get(name, version))
        for request in asked
        for name in [names[request.name]]
    ]


def carry_over(
    last: Step, manifests: Sequence[Manifest], known: Json, plan: Json, asked: Asked, families: Sequence[int]
) -> tuple[Step, tuple[Manifest, ...]]:
    """A step and its manifests, made under a known plan, as another plan lists them.

    `asked` is what is wanted for the other plan's operators, `families` are theirs. An operator that is new has no
    state. It goes where its family is, or else where it is wanted, on as many processors as there are now. What was on
    its way stays where it is.
    """
    ports = [entry["identity"] for entry in known["ports"]], [entry["identity"] for entry in plan["ports"]]
    sources = [entry["identity"] for entry in known["sources"]], [entry["identity"] for entry in plan["sources"]]
    groupings = known["groupings"], plan["groupings"]
    operators = known["operators"], plan["operators"]
    totals = dict(last.totals)
    for name in ("received", "late", "rejected"):
        totals[name] = _listed(totals[name], *sources, 0)
    totals["results"] = {name: rows for name, rows in totals["results"].items() if name in plan["queries"]}

    there = _listed(last.placements, *operators, None)
    homes = {families[n]: placement for n, placement in enumerate(there) if placement is not None}
    wanted = [on_processors(placement, asked.processors, last.processors) for placement in asked.placements]
    asked_then = zip(asked.placements, _listed(last.asked.placements, *operators, None), strict=True)
    step = replace(
        last,
        newest=tuple(_listed(last.newest, *sources, None)),
        settled=tuple(_listed(last.settled, *groupings, None)),
        placements=tuple(
            homes.get(families[n], wanted[n]) if placement is None else placement for n, placement in enumerate(there)
        ),
        totals=totals,
        clean_up=under(last.clean_up, known, plan),
        hold=under(last.hold, known, plan),
        moving=(),
        asked=Asked(last.asked.processors, tuple(now if then is None else then for now, then in asked_then)),
    )
    return step, tuple(
        Manifest(
            tuple(_listed(manifest.spines, *ports, Spine())),
            tuple(_listed(manifest.operators, *operators, OperatorState())),
        )
        for manifest in manifests
    )


def under(values: Mapping[int, Value], known: Json, plan: Json) -> dict[int, Value]:
    """Values by operator of a known plan, by operator of another."""
    return {
        plan["operators"].index(identity): values[n]
        for n, identity in enumerate(known["operators"])
        if n in values and identity in plan["operators"]
    }


def _listed(values: Sequence[Value], known: Sequence[str], now: Sequence[str], nothing: Other) -> list[Value | Other]:
    """Values that are listed by known identities, listed by others."""
    found = dict(zip(known, values, strict=True))
    return [found.get(identity, nothing) for identity in now]


def short(value: Any) -> str:
    """A value for a message."""
    text = repr(value) if value is not None else "absent"
    return text if len(text) <= 200 else text[:197] + "..."
