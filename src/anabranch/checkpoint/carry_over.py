"""Carrying state over from one plan to the next.

A step names the plan it was made under. The plan's document (`runtime/compile/document`) says what is where: operators
by identity, ports, sources and groupings in the order in which manifests and steps list them. When queries are added or
removed, what is still there keeps its state; it is found by identity. Nothing is copied.

A query that migrates to another order of its joins has other operators. Its inputs bring the same rows as before, so
they go on with the same watermarks and counts; its grouping goes on with its state. What lies at its joins is filled in
by the migration (`manager/shadows/filling`). A query that is changed may select other rows of a stream; there the plan
says which source goes on with the watermark of which (`with_sources_of`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from anabranch.checkpoint.folder.directory import Checkpoint
from anabranch.checkpoint.step import InitialPlacement, Step
from anabranch.plan.allocation import KnownAllocation
from anabranch.plan.placement import converted
from anabranch.plan.routing import Routing
from anabranch.state.manifest import Manifest, OperatorState
from anabranch.state.runs.spine import Spine
from anabranch.state.store import Json

Value = TypeVar("Value")
Other = TypeVar("Other")


def carry_over(
    last: Step, manifests: Sequence[Manifest], known: Json, plan: Json, asked: InitialPlacement, families: Sequence[int]
) -> tuple[Step, tuple[Manifest, ...]]:
    """A step and its manifests, made under a known plan, as another plan lists them.

    `asked` is what is wanted for the other plan's operators, `families` are theirs. An operator that is new has no
    state. It goes where its family is, or else where it is wanted, on as many processors as there are now. What was on
    its way stays where it is.
    """
    plan = with_inherited_groupings(known, plan)
    ports = [entry["identity"] for entry in known["ports"]], [entry["identity"] for entry in plan["ports"]]
    sources = _source_names(known, plan)
    groupings = known["groupings"], plan["groupings"]
    operators = known["operators"], plan["operators"]
    totals = dict(last.totals)
    for name in ("received", "late", "rejected"):
        totals[name] = _listed(totals[name], *sources, 0)
    totals["results"] = {name: rows for name, rows in totals["results"].items() if name in plan["queries"]}

    there = _listed(last.routings, *operators, None)
    homes = {families[n]: routing.placement for n, routing in enumerate(there) if routing is not None}
    wanted = [converted(placement, asked.processors, last.processors) for placement in asked.placements]
    asked_then = zip(asked.placements, _listed(last.asked.placements, *operators, None), strict=True)
    step = replace(
        last,
        newest=tuple(_listed(last.newest, *sources, None)),
        settled=tuple(_listed(last.settled, *groupings, None)),
        routings=tuple(
            Routing(homes.get(families[n], wanted[n])) if routing is None else routing
            for n, routing in enumerate(there)
        ),
        totals=totals,
        clean_up=under(last.clean_up, known, plan),
        hold=under(last.hold, known, plan),
        moving=(),
        asked=InitialPlacement(last.asked.processors, tuple(now if then is None else then for now, then in asked_then)),
        families=tuple(families),
        apart=tuple(n for n, name in enumerate(operators[1]) if name in {operators[0][m] for m in last.apart}),
    )
    return step, tuple(
        Manifest(
            tuple(_listed(manifest.spines, *ports, Spine())),
            tuple(_listed(manifest.operators, *operators, OperatorState())),
        )
        for manifest in manifests
    )


def known_allocation(checkpoint: Checkpoint) -> KnownAllocation | None:
    """Where operators are after the last step of a checkpoint, by identity; None before the first."""
    last = checkpoint.last_step()
    if last is None:
        return None
    operators = checkpoint.plan(last.plan)["operators"]
    return KnownAllocation(
        last.processors,
        {name: routing.placement for name, routing in zip(operators, last.routings, strict=True)},
        dict(zip(operators, last.families, strict=True)),
        frozenset(operators[n] for n in last.apart),
        last.asked.processors,
        dict(zip(operators, last.asked.placements, strict=True)),
    )


def under(values: Mapping[int, Value], known: Json, plan: Json) -> dict[int, Value]:
    """Values by operator of a known plan, by operator of another."""
    operators = with_inherited_groupings(known, plan)["operators"]
    return {
        operators.index(identity): values[n]
        for n, identity in enumerate(known["operators"])
        if n in values and identity in operators
    }


def with_inherited_groupings(known: Json, plan: Json) -> Json:
    """A plan in which groupings that go on with the state of others, which it has no more, are called as these are."""
    left = [identity for identity in known["groupings"] if identity not in plan["operators"]]
    names: dict[str, str] = {}
    for identity in plan["groupings"]:
        if identity not in known["operators"]:
            same = next((old for old in left if _state_of(known, old) == _state_of(plan, identity)), None)
            if same is not None:
                left.remove(same)
                names[identity] = same
    if not names:
        return plan

    def port(entry: Json) -> Json:
        operator, _, number = entry["identity"].rpartition("/")
        return {**entry, "identity": f"{names.get(operator, operator)}/{number}"}

    return {
        **plan,
        "ports": list(map(port, plan["ports"])),
        "operators": [names.get(identity, identity) for identity in plan["operators"]],
        "groupings": [names.get(identity, identity) for identity in plan["groupings"]],
    }


def newest_under(last: Step, known: Json, plan: Json) -> list[int | None]:
    """The greatest event time seen per source of a plan, by a step that was made under a known one."""
    return _listed(last.newest, *_source_names(known, plan), None)


def with_sources_of(plan: Json, sources: Mapping[int, int]) -> Json:
    """A plan in which some sources, by number, go on with the times and counts of others."""
    listed = plan["sources"]
    return {
        **plan,
        "sources": [
            {**entry, "rows": listed[sources[n]]["rows"]} if n in sources else entry for n, entry in enumerate(listed)
        ],
    }


def _state_of(plan: Json, grouping: str) -> list[list[Json]]:
    """What lies at the port of a grouping, and what for."""
    return [
        [entry["state"], entry["groups"]] for entry in plan["ports"] if entry["identity"].rpartition("/")[0] == grouping
    ]


def _source_names(known: Json, plan: Json) -> tuple[list[str], list[str]]:
    """What the sources of both plans are called; one that is new as another one that brought the same rows."""
    before = {entry["identity"]: entry["rows"] for entry in known["sources"]}
    same = {rows: identity for identity, rows in reversed(before.items())}
    now = [
        entry["identity"] if entry["identity"] in before else same.get(entry["rows"], entry["identity"])
        for entry in plan["sources"]
    ]
    return list(before), now


def _listed(values: Sequence[Value], known: Sequence[str], now: Sequence[str], nothing: Other) -> list[Value | Other]:
    """Values that are listed by known identities, listed by others."""
    found = dict(zip(known, values, strict=True))
    return [found.get(identity, nothing) for identity in now]
