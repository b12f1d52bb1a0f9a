"""Relocating, diffusing, spilling and rescaling as a user asks for it: which change of the distribution that is, or a
refusal.

Groups that a user moves may have spilled state, too; their generations move along. Nothing is read or copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.errors import ConfigError, did_you_mean
from anabranch.manager.actions import Action, DiffuseGroups, GatherGroups, RelocateGroups, SpillGroups
from anabranch.manager.actions.change import Change, Context
from anabranch.manager.actions.numbers import is_whole
from anabranch.manager.actions.sentence import Sentence
from anabranch.manager.diffusable import aliases_at, port_name
from anabranch.manager.distribution import Distribution
from anabranch.manager.patterns.operator_graph import OperatorGraph
from anabranch.manager.patterns.pattern import Pattern, check_placed
from anabranch.manager.plan_shape import OperatorShape, PlanShape
from anabranch.manager.policies.clean_up import ON_REQUEST
from anabranch.manager.tiers.clusters import Clusters
from anabranch.manager.tiers.within import crossing
from anabranch.observe.events import EventKind
from anabranch.observe.numbers import numbered
from anabranch.plan.placement import Placement, converted, even_placement, spread_over
from anabranch.state.groups import GroupSet


def relocation(
    distribution: Distribution,
    context: Context,
    groups: Sequence[int],
    receiver: int,
    operator: str | None,
    pace: int | None,
    clusters: Clusters | None = None,
) -> Change:
    """Move groups to a processor, wherever they are: of all operators, or of one and those fused with it. With
    `clusters` all operators are those in the cluster of the processor."""
    _check_groups(distribution, groups)
    check_processor(distribution, receiver)
    change = Change(distribution)
    families = _families(context.plan, operator)
    if operator is None and clusters is not None:
        families = _beside(families, distribution, receiver, clusters)
    for family in families:
        homes = distribution.routings[family].placement
        for sender in sorted({homes[group] for group in groups} - {receiver}):
            own = tuple(group for group in groups if homes[group] == sender)
            size = context.connections.size(change.distribution, family, own, sender)
            move = RelocateGroups(family, own, sender, receiver, size, ON_REQUEST, pace)
            _check(move, change, context, clusters)
            move.apply(change, context)
    return change


def diffusion(
    distribution: Distribution,
    context: Context,
    groups: Sequence[int],
    master: str,
    hosts: Sequence[int],
    operator: str | None,
    hold: Mapping[int, GroupSet],
    clusters: Clusters | None = None,
) -> Change:
    """Diffuse groups of a join over processors, `master` being the input whose rows are spread; rows of groups in
    `hold` wait in the next step."""
    _check_groups(distribution, groups)
    for host in hosts:
        check_processor(distribution, host)
    shape = join_named(context.plan, operator)
    change = Change(distribution, hold=dict(hold))
    chosen = tuple(sorted({*groups}))
    even = (1.0,) * len(hosts)
    port = _port(context.plan, shape, master)
    diffuse = DiffuseGroups(shape.number, chosen, port, tuple(hosts), even, ON_REQUEST)
    apply_diffusion(diffuse, change, context, clusters)
    return change


def apply_diffusion(action: DiffuseGroups, change: Change, context: Context, clusters: Clusters | None = None) -> None:
    """Diffuse groups; refused if that makes no sense, or if it cannot be done now."""
    _check(action, change, context, clusters)
    obstacle = action.obstacle(change)
    if obstacle is not None:
        name = context.plan.operators[action.operator].name
        raise ConfigError(f"groups of the {name} cannot be diffused now: {obstacle}")
    action.apply(change, context)


def gathering(
    distribution: Distribution,
    context: Context,
    groups: Sequence[int],
    receiver: int | None,
    operator: str | None,
    clusters: Clusters | None = None,
) -> Change:
    """Bring groups that are diffused back to one processor: their home, or another one. Without an operator those of
    all joins that have some of the groups diffused."""
    _check_groups(distribution, groups)
    if receiver is not None:
        check_processor(distribution, receiver)
    chosen = tuple(sorted({*groups}))
    change = Change(distribution)
    for number in _diffused_in(distribution, context.plan, chosen, operator):
        routing = distribution.routings[number]
        own = chosen if operator is not None else tuple(group for group in chosen if routing.routes(group) is not None)
        gather = GatherGroups(number, own, receiver, ON_REQUEST)
        _check(gather, change, context, clusters)
        gather.apply(change, context)
    return change


def spilling(
    distribution: Distribution, context: Context, groups: Sequence[int] | None, operator: str | None
) -> Change:
    """Push groups to disk, wherever they are: some, or all but those that are diffused; of one operator or of all that
    can be spilled."""
    chosen = range(distribution.groups) if groups is None else groups
    _check_groups(distribution, chosen)
    change = Change(distribution)
    for shape in _spillable(context.plan, operator):
        diffused = {group for group, _ in distribution.routings[shape.number].diffused}
        named = sorted(diffused & {*(groups or ())})
        if named:
            raise ConfigError(f"{numbered(named)} of the {shape.name} cannot be spilled while diffused; gather first")
        for p, manifest in enumerate(distribution.manifests):
            sizes = manifest.operators[shape.number].statistics.dense(distribution.groups).bytes
            own = tuple(group for group in chosen if sizes[group] and group not in diffused)
            push = SpillGroups(p, shape.number, own, int(sizes[list(own)].sum()), ON_REQUEST)
            if own and push.must_wait(change, set()):
                raise ConfigError(f"groups are on their way to or from processor {p}; spill when they have arrived")
            if own:
                push.apply(change, context)
    return change


def rescaled_placements(
    distribution: Distribution, plan: PlanShape, processors: int, pattern: Pattern, graph: OperatorGraph
) -> tuple[Placement, ...]:
    """The placements on another number of processors: where the pattern puts them, families as their first operator.

    What it spreads over all processors stays where it is as far as an even spread allows; an operator that was
    reallocated to one processor stays whole.
    """
    if not is_whole(processors) or processors < 1:
        raise ConfigError(f"processors must be a positive whole number, not {processors!r}")
    even_placement(distribution.groups, processors)
    everybody = tuple(range(processors))
    homes = check_placed(pattern, graph, everybody, pattern.place(graph, everybody))
    return tuple(
        converted(placement, distribution.processors, processors)
        if hosts is None
        else spread_over(hosts, len(placement))
        for hosts, placement in zip((homes[n] for n in plan.families), distribution.placements, strict=True)
    )


def rescaling_sentence(before: Distribution, processors: int) -> Sentence:
    """The event that the state of a distribution is listed on another number of processors."""
    text = f"state of {before.processors} processors is now listed on {processors}, since {ON_REQUEST}"
    diffused = sum(len(routing.diffused) for routing in before.routings)
    if diffused:
        text += f"; {diffused} diffused group{'s' if diffused > 1 else ''} gathered by that"
    if before.moving:
        several = "s" if len(before.moving) > 1 else ""
        text += f"; {len(before.moving)} relocation{several} under way came to nothing by that"
    return Sentence(EventKind.RESCALE, text, {"before": before.processors, "after": processors})


def check_processor(distribution: Distribution, processor: int) -> None:
    """Refuse a processor that there is not."""
    if not is_whole(processor) or not 0 <= processor < distribution.processors:
        raise ConfigError(f"processors are numbers from 0 to {distribution.processors - 1}, not {processor!r}")


def _check(action: Action, change: Change, context: Context, clusters: Clusters | None) -> None:
    """Refuse an action that makes no sense, or would leave a cluster."""
    problem = action.problem(change, context)
    if problem is None and clusters is not None:
        problem = crossing(action, clusters, change.distribution)
    if problem is not None:
        raise ConfigError(problem)


def _check_groups(distribution: Distribution, groups: Sequence[int]) -> None:
    count = distribution.groups
    if not groups:
        raise ConfigError("no group was given")
    for group in groups:
        if not is_whole(group) or not 0 <= group < count:
            raise ConfigError(f"partition groups are numbers from 0 to {count - 1}, not {group!r}")


def _families(plan: PlanShape, operator: str | None) -> list[int]:
    if operator is None:
        return sorted(set(plan.families))
    names = {shape.name: shape.family for shape in plan.operators}
    if not isinstance(operator, str) or operator not in names:
        raise ConfigError(f"there is no operator {operator!r}; {did_you_mean(str(operator), list(names))}")
    return [names[operator]]


def _beside(families: Sequence[int], distribution: Distribution, receiver: int, clusters: Clusters) -> list[int]:
    """The families in the cluster of a processor; refused if there is none."""
    beside = [n for n in families if receiver in clusters.beside(distribution.routings[n].placement)]
    name = clusters.of_processor(receiver)
    if not beside and name is not None:
        raise ConfigError(
            f"no operator is in {clusters.text(name)}, so no group can go there; send a query there first: "
            f"run.send(query, to={name!r})"
        )
    return beside


def operator_named(plan: PlanShape, operator: str | None) -> OperatorShape:
    """The operator of a name; without a name the only one."""
    names = {shape.name: shape for shape in plan.operators}
    if operator is None and len(names) == 1:
        return plan.operators[0]
    if operator is None:
        raise ConfigError(f"there are several operators; name one with operator=...: {', '.join(map(repr, names))}")
    if not isinstance(operator, str) or operator not in names:
        raise ConfigError(f"there is no operator {operator!r}; {did_you_mean(str(operator), list(names))}")
    return names[operator]


def join_named(plan: PlanShape, operator: str | None) -> OperatorShape:
    """The operator of a name; without a name the only one of which groups can be diffused, or the only join."""
    for numbers in (plan.diffusable, plan.joins):
        if operator is None and len(numbers) == 1:
            return plan.operators[numbers[0]]
    return operator_named(plan, operator)


def _port(plan: PlanShape, shape: OperatorShape, master: str) -> int:
    """The port that the rows of an input come to; what is joined below is named by all its aliases."""
    ports = range(len(shape.ports))
    named = {" ".join(aliases_at(plan, shape.number, port)): port for port in ports}
    named |= {port_name(plan, shape.number, port): port for port in ports}
    if isinstance(master, str) and master in named:
        return named[master]
    joined = [name for name in named if isinstance(master, str) and master in name.split() and " " in name]
    if joined:
        raise ConfigError(f"rows of {master} come to the {shape.name} joined with others; write master={joined[0]!r}")
    known = did_you_mean(str(master), [" ".join(aliases_at(plan, shape.number, port)) for port in ports])
    raise ConfigError(f"master is an input of the {shape.name}, and {master!r} is none; {known}")


def _diffused_in(distribution: Distribution, plan: PlanShape, groups: Sequence[int], operator: str | None) -> list[int]:
    """The operator of a name; without a name those that have some of the groups diffused."""
    if operator is not None:
        return [operator_named(plan, operator).number]
    numbers = [n for n, routing in enumerate(distribution.routings) if any(map(routing.routes, groups))]
    if not numbers:
        raise ConfigError(f"{numbered(groups)} cannot be gathered: nothing of it is diffused")
    return numbers


def _spillable(plan: PlanShape, operator: str | None) -> list[OperatorShape]:
    chosen = [shape for shape in plan.operators if operator in (None, shape.name)]
    if not chosen:
        names = [shape.name for shape in plan.operators]
        raise ConfigError(f"there is no operator {operator!r}; {did_you_mean(str(operator), names)}")
    spillable = [shape for shape in chosen if shape.spillable]
    if not spillable:
        raise ConfigError(f"the state of {chosen[0].name!r} cannot be spilled: all of it has to be at hand")
    return spillable
