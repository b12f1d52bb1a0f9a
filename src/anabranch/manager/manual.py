"""Relocating, spilling and rescaling as a user asks for it: which change of the distribution that is, or a refusal.

Groups that a user moves may have spilled state, too; their generations move along. Nothing is read or copied.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.errors import ConfigError, did_you_mean
from anabranch.manager.actions import RelocateGroups, SpillGroups
from anabranch.manager.actions.change import Change, Context
from anabranch.manager.actions.numbers import is_whole
from anabranch.manager.actions.sentence import Sentence
from anabranch.manager.distribution import Distribution
from anabranch.manager.plan_shape import OperatorShape, PlanShape
from anabranch.manager.policies.clean_up import ON_REQUEST
from anabranch.observe.events import EventKind
from anabranch.plan.placement import Placement, even_placement, rescaled


def relocation(
    distribution: Distribution,
    context: Context,
    groups: Sequence[int],
    receiver: int,
    operator: str | None,
    pace: int | None,
) -> Change:
    """Move groups to a processor, wherever they are: of all operators, or of one and those fused with it."""
    _check_groups(distribution, groups)
    check_processor(distribution, receiver)
    change = Change(distribution)
    for family in _families(context.plan, operator):
        homes = distribution.routings[family].placement
        for sender in sorted({homes[group] for group in groups} - {receiver}):
            own = tuple(group for group in groups if homes[group] == sender)
            size = context.relocator.size(change.distribution, family, own, sender)
            move = RelocateGroups(family, own, sender, receiver, size, ON_REQUEST, pace)
            problem = move.problem(change, context)
            if problem is not None:
                raise ConfigError(problem)
            move.apply(change, context)
    return change


def spilling(
    distribution: Distribution, context: Context, groups: Sequence[int] | None, operator: str | None
) -> Change:
    """Push groups to disk, wherever they are: some or all, of one operator or of all that can be spilled."""
    chosen = range(distribution.groups) if groups is None else groups
    _check_groups(distribution, chosen)
    change = Change(distribution)
    for shape in _spillable(context.plan, operator):
        for p, manifest in enumerate(distribution.manifests):
            sizes = manifest.operators[shape.number].statistics.dense(distribution.groups).bytes
            own = tuple(group for group in chosen if sizes[group])
            push = SpillGroups(p, shape.number, own, int(sizes[list(own)].sum()), ON_REQUEST)
            if own and push.must_wait(change, set()):
                raise ConfigError(f"groups are on their way to or from processor {p}; spill when they have arrived")
            if own:
                push.apply(change, context)
    return change


def rescaled_placements(
    distribution: Distribution, plan: PlanShape, processors: int, *, whole: bool
) -> tuple[Placement, ...]:
    """The placements on another number of processors: state is spread evenly, a `whole` operator stays on one."""
    if not is_whole(processors) or processors < 1:
        raise ConfigError(f"processors must be a positive whole number, not {processors!r}")
    even_placement(distribution.groups, processors)
    return tuple(
        (operator.family % processors,) * len(placement) if whole else rescaled(placement, processors)
        for operator, placement in zip(plan.operators, distribution.placements, strict=True)
    )


def rescaling_sentence(before: Distribution, processors: int) -> Sentence:
    """The event that the state of a distribution is listed on another number of processors."""
    text = f"state of {before.processors} processors is now listed on {processors}, since {ON_REQUEST}"
    if before.moving:
        several = "s" if len(before.moving) > 1 else ""
        text += f"; {len(before.moving)} relocation{several} under way came to nothing by that"
    return Sentence(EventKind.RESCALE, text, {"before": before.processors, "after": processors})


def check_processor(distribution: Distribution, processor: int) -> None:
    """Refuse a processor that there is not."""
    if not is_whole(processor) or not 0 <= processor < distribution.processors:
        raise ConfigError(f"processors are numbers from 0 to {distribution.processors - 1}, not {processor!r}")


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


def _spillable(plan: PlanShape, operator: str | None) -> list[OperatorShape]:
    chosen = [shape for shape in plan.operators if operator in (None, shape.name)]
    if not chosen:
        names = [shape.name for shape in plan.operators]
        raise ConfigError(f"there is no operator {operator!r}; {did_you_mean(str(operator), names)}")
    spillable = [shape for shape in chosen if shape.spillable]
    if not spillable:
        raise ConfigError(f"the state of {chosen[0].name!r} cannot be spilled: all of it has to be at hand")
    return spillable
