"""Carry state over from one plan to the next.

A step names the plan it was made under. The plan's document (`runtime/compile/document`) has the identities of
operators, ports, sources and groupings, in the order in which manifests and steps list them. When queries are added or
removed, whatever both plans have keeps its state: it has the same identity. Nothing is copied.

A query that migrates to another order of its joins has other operators. Its inputs bring the same rows as before, so
they go on with the same watermarks and counts; its grouping goes on with its state. The migration fills the state at
its joins (`manager/shadows/filling`). A query that is changed may select other rows of a stream; then the plan says
which source goes on with the watermark of which other (`with_sources_of`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from anabranch.checkpoint.folder.directory import Checkpoint
from anabranch.checkpoint.step import InitialPlacement, Step
from anabranch.plan.allocation import KnownAllocation, renumbered
from anabranch.plan.placement import Placement
from anabranch.plan.routing import Routing
from anabranch.state.manifest import Manifest, OperatorState
from anabranch.state.runs.spine import Spine
from anabranch.state.store import Json

Value = TypeVar("Value")
Other = TypeVar("Other")


def carry_over(
    last: Step,
    manifests: Sequence[Manifest],
    before: Json,
    plan: Json,
    initial: InitialPlacement,
    families: Sequence[int],
    new: Sequence[Placement],
) -> tuple[Step, tuple[Manifest, ...]]:
    """List a step and its manifests, made under the plan `before`, as another plan does.

    `initial` is the placement that the program asks for the other plan's operators, `families` are theirs. A new
    operator has no state. It goes where its family is or, without one, to its placement in `new`, which is on the
    present number of processors. Groups that were on their way stay where they are.
    """
    plan = with_inherited_groupings(before, plan)
    ports = [entry["identity"] for entry in before["ports"]], [entry["identity"] for entry in plan["ports"]]
    sources = _source_names(before, plan)
    groupings = before["groupings"], plan["groupings"]
    operators = before["operators"], plan["operators"]
    former_initial = _listed(last.initial.placements, *operators, None)
    kept_initial = tuple(
        new if former is None else former for new, former in zip(initial.placements, former_initial, strict=True)
    )
    step = replace(
        last,
        newest=tuple(_listed(last.newest, *sources, None)),
        settled=tuple(_listed(last.settled, *groupings, None)),
        routings=_with_new_operators(_listed(last.routings, *operators, None), families, new),
        totals=_totals(last.totals, sources, plan["queries"]),
        clean_up=under(last.clean_up, before, plan),
        hold=under(last.hold, before, plan),
        moving=(),
        initial=InitialPlacement(last.initial.processors, kept_initial),
        families=tuple(families),
        apart=tuple(n for n, name in enumerate(operators[1]) if name in {operators[0][m] for m in last.apart}),
        parted=renumbered(_by_identity(last, operators[0]), {name: n for n, name in enumerate(operators[1])}),
    )
    return step, tuple(
        Manifest(
            tuple(_listed(manifest.spines, *ports, Spine())),
            tuple(_listed(manifest.operators, *operators, OperatorState())),
        )
        for manifest in manifests
    )


def _with_new_operators(
    routings: Sequence[Routing | None], families: Sequence[int], new: Sequence[Placement]
) -> tuple[Routing, ...]:
    """Give new operators, those without a routing, the placement of their family or else that in `new`."""
    homes = {families[n]: routing.placement for n, routing in enumerate(routings) if routing is not None}
    return tuple(
        Routing(homes.get(families[n], new[n])) if routing is None else routing for n, routing in enumerate(routings)
    )


def _totals(
    before: Mapping[str, Any], sources: tuple[list[str], list[str]], queries: Collection[str]
) -> dict[str, Any]:
    """Totals of the sources and the queries of another plan."""
    listed = {name: _listed(before[name], *sources, 0) for name in ("received", "late", "rejected")}
    return {**before, **listed, "results": {name: rows for name, rows in before["results"].items() if name in queries}}


def known_allocation(checkpoint: Checkpoint) -> KnownAllocation | None:
    """The allocation of operators, by identity, after the last step of a checkpoint; None before the first."""
    last = checkpoint.last_step()
    if last is None:
        return None
    operators = checkpoint.plan(last.plan)["operators"]
    return KnownAllocation(
        last.processors,
        {name: routing.placement for name, routing in zip(operators, last.routings, strict=True)},
        dict(zip(operators, last.families, strict=True)),
        frozenset(operators[n] for n in last.apart),
        last.initial.processors,
        dict(zip(operators, last.initial.placements, strict=True)),
        _by_identity(last, operators),
        {name: _hosts(last, n) for n, name in enumerate(operators)},
    )


def _by_identity(last: Step, operators: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The parted operators of a step, with their kin, by identity."""
    return {operators[n]: tuple(operators[m] for m in kin) for n, kin in last.parted.items()}


def _hosts(last: Step, operator: int) -> frozenset[int]:
    """The processors that have a part in an operator, or will have when its groups have arrived."""
    routing = last.routings[operator]
    receivers = {each.move.receiver for each in last.moving if each.move.family == last.families[operator]}
    return frozenset(receivers.union(*(routing.hosts(group) for group in range(len(routing.placement)))))


def under(values: Mapping[int, Value], before: Json, plan: Json) -> dict[int, Value]:
    """Number values by operator of the plan `before` as another plan numbers its operators."""
    operators = with_inherited_groupings(before, plan)["operators"]
    return {
        operators.index(identity): values[n]
        for n, identity in enumerate(before["operators"])
        if n in values and identity in operators
    }


def with_inherited_groupings(before: Json, plan: Json) -> Json:
    """A plan in which a new grouping has the identity of a former one with the same state, if the plan has that one no
    longer. So it goes on with that state."""
    left = [identity for identity in before["groupings"] if identity not in plan["operators"]]
    names: dict[str, str] = {}
    for identity in plan["groupings"]:
        if identity not in before["operators"]:
            same = next((old for old in left if _state_of(before, old) == _state_of(plan, identity)), None)
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


def newest_under(last: Step, before: Json, plan: Json) -> list[int | None]:
    """The greatest event time so far per source of a plan, by a step that was made under the plan `before`."""
    return _listed(last.newest, *_source_names(before, plan), None)


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
    """The state at the port of a grouping, and the groups that it is for, as a plan describes them."""
    return [
        [entry["state"], entry["groups"]] for entry in plan["ports"] if entry["identity"].rpartition("/")[0] == grouping
    ]


def _source_names(before: Json, plan: Json) -> tuple[list[str], list[str]]:
    """The names of the sources of both plans. A new source has the name of a former one that brought the same rows."""
    former = {entry["identity"]: entry["rows"] for entry in before["sources"]}
    same = {rows: identity for identity, rows in reversed(former.items())}
    names = [
        entry["identity"] if entry["identity"] in former else same.get(entry["rows"], entry["identity"])
        for entry in plan["sources"]
    ]
    return list(former), names


def _listed(
    values: Sequence[Value], before: Sequence[str], after: Sequence[str], nothing: Other
) -> list[Value | Other]:
    """Reorder values from one list of identities to another; `nothing` stands for those that are new."""
    by_identity = dict(zip(before, values, strict=True))
    return [by_identity.get(identity, nothing) for identity in after]
