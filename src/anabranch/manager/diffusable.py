"""Which partition groups can be diffused, and when: rules for actions and policies, and what people call the parts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from anabranch.manager.diffusion import Diffusion, Occasion, master_of
from anabranch.manager.plan_shape import OperatorShape, PlanShape
from anabranch.observe.diffused import DiffusedGroups
from anabranch.plan.routing import Diffused, Routing, Spread
from anabranch.state.generation import spilled_groups
from anabranch.state.groups import GroupSet

if TYPE_CHECKING:
    from anabranch.manager.actions.change import Change


def undiffusable(operator: OperatorShape, plan: PlanShape) -> str | None:
    """Why no group of an operator can ever be diffused; None if groups can."""
    if operator.number not in plan.joins:
        return "only joins can be, since any other group has to be answered at one place"
    fused = [plan.operators[n].name for n in plan.fused_with(operator.number)]
    return f"it is fused with the {', the '.join(fused)}, and has to be set apart first" if fused else None


def obstacles(change: Change, operator: int, groups: Collection[int]) -> Iterator[str]:
    """Why groups of an operator that is no family's cannot be diffused now: some of their state is not active."""
    distribution = change.distribution
    chosen = GroupSet.of(distribution.groups, groups)
    moving = {group for entry in distribution.moving if entry.move.family == operator for group in entry.move.groups}
    if moving & {*groups}:
        yield f"group {min(moving & {*groups})} is on its way to another processor; wait until it has arrived"
    for manifest in distribution.manifests:
        state = manifest.operators[operator]
        on_disk = spilled_groups(state.generations)
        if on_disk is not None and on_disk & chosen:
            yield f"{_first(on_disk & chosen)} has state on disk; clean up first"
        if state.retired is not None and state.retired & chosen:
            yield f"{_first(state.retired & chosen)} has rows that wait for clean-up; clean up first"
        held = (piece.groups for slices in state.held for piece in slices)
        if any(waiting is None or waiting & chosen for waiting in held):
            yield "rows of it are held back; wait until they have gone on"
    hold = change.hold.get(operator)
    if hold is not None and hold & chosen:
        yield f"rows of {_first(hold & chosen)} are to be held back in the next step; wait until they have gone on"


def diffused_among(change: Change, operator: int, groups: Iterable[int]) -> list[int]:
    """Those of some groups of an operator that are diffused."""
    routing = change.distribution.routings[operator]
    return [group for group in groups if routing.routes(group) is not None]


def parties(change: Change, operator: int, groups: Iterable[int]) -> set[int]:
    """The processors that have a part in some groups of an operator."""
    routing = change.distribution.routings[operator]
    return {host for group in groups for host in routing.hosts(group)}


def is_busy(change: Change, taken: set[int], processors: set[int]) -> bool:
    """Whether one of some processors takes part in an action of an earlier policy, or in a relocation under way."""
    return bool(processors & (taken | change.pushed)) or any(map(change.distribution.is_moving, processors))


def aliases_at(plan: PlanShape, operator: int, port: int) -> tuple[str, ...]:
    """The aliases of the inputs whose rows come to a port, alone or joined."""
    edge = plan.operators[operator].edges[port]
    if edge.alias is not None:
        return (edge.alias,)
    below = edge.operators[0]
    return tuple(alias for nth in range(len(plan.operators[below].ports)) for alias in aliases_at(plan, below, nth))


def port_name(plan: PlanShape, operator: int, port: int) -> str:
    """What people call the rows of a port."""
    aliases = aliases_at(plan, operator, port)
    return aliases[0] if len(aliases) == 1 else f"{' '.join(aliases)} joined"


def diffused_groups(
    routings: Sequence[Routing],
    diffusions: Iterable[Diffusion],
    names: Sequence[tuple[str, Sequence[str]]],
    parted: Mapping[int, Sequence[int]],
    round_seconds: float | None = None,
) -> tuple[DiffusedGroups, ...]:
    """What is diffused, for people; per operator there are its name and those of its ports. Groups that are alike in
    all are one entry. Operators that are `parted` from others run in a round of their own, which takes so long."""
    alike: dict[tuple[int, tuple[Diffused, ...], Occasion], list[int]] = {}
    for entry in sorted(diffusions, key=lambda entry: (entry.operator, entry.group)):
        routes = routings[entry.operator].routes(entry.group)
        if routes is not None:
            alike.setdefault((entry.operator, routes, entry.since), []).append(entry.group)
    shown = []
    for (operator, routes, since), groups in alike.items():
        (name, ports), spread = names[operator], next(route for route in routes if isinstance(route, Spread))
        others = list(ports)
        master = others.pop(master_of(routes))
        copies = None if since.copies is None else since.copies * len(groups)
        kin = tuple(names[n][0] for n in parted.get(operator, ()))
        shown.append(
            DiffusedGroups(
                name,
                tuple(groups),
                master,
                tuple(others),
                spread.hosts,
                spread.weights,
                since.step,
                since.time,
                since.reason,
                copies,
                kin,
                round_seconds if kin else None,
            )
        )
    return tuple(shown)


def names_in(plan: PlanShape) -> list[tuple[str, list[str]]]:
    """What people call the operators of a plan and their ports."""
    return [
        (operator.name, [port_name(plan, operator.number, port) for port in range(len(operator.ports))])
        for operator in plan.operators
    ]


def _first(groups: GroupSet) -> str:
    return f"group {groups.numbers()[0]}"
