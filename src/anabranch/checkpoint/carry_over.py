"""Carrying state over from one plan to the next.

A step names the plan it was made under. The plan's document (`runtime/compile/document`) says what is where: operators
by identity, ports, sources and groupings in the order in which manifests and steps list them. When queries are added or
removed, what is still there keeps its state; it is found by identity. Nothing is copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from anabranch.checkpoint.step import InitialPlacement, Step
from anabranch.plan.placement import converted
from anabranch.plan.routing import Routing
from anabranch.state.manifest import Manifest, OperatorState
from anabranch.state.spine import Spine
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
    ports = [entry["identity"] for entry in known["ports"]], [entry["identity"] for entry in plan["ports"]]
    sources = [entry["identity"] for entry in known["sources"]], [entry["identity"] for entry in plan["sources"]]
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
