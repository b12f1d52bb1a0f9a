"""Moving and spilling state by hand: what is asked of a run that goes on, done at once between two batches.

It is a step of its own, without a batch: it lists state otherwise, and nothing is read or copied. What is asked for by
hand may move groups that have spilled state, too; their generations move along. Only tests spill by hand so far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from anabranch.checkpoint.step import Step
from anabranch.errors import ConfigError, did_you_mean
from anabranch.manager.actions import RelocateGroups, SpillGroups
from anabranch.manager.actions.change import Change, Context
from anabranch.manager.actions.numbers import is_whole
from anabranch.manager.distribution import Distribution
from anabranch.manager.plan_shape import OperatorShape
from anabranch.manager.policies.clean_up import ON_REQUEST
from anabranch.observe.events import EventKind
from anabranch.plan.placement import even_placement, rescaled
from anabranch.runtime.driver.step.context import StepContext
from anabranch.state.groups import union_by_operator


class ManualChanges:
    """What can be asked of a run by hand, between two of its batches."""

    def __init__(
        self, context: StepContext, between_batches: Callable[[], AbstractContextManager[StepContext]]
    ) -> None:
        """Of a run; `between_batches` no step is made, and it is refused if none can follow."""
        self._context = context
        self._between_batches = between_batches

    def relocate(self, groups: Sequence[int], receiver: int, operator: str | None, pace: int | None) -> None:
        """Move groups to a processor, wherever they are: of all operators, or of one and those fused with it."""
        with self._between_batches():
            self._relocate(groups, receiver, operator, pace)

    def spill(self, groups: Sequence[int] | None, operator: str | None) -> None:
        """Push groups to disk, wherever they are: some or all, of one operator or of all that can be spilled."""
        with self._between_batches():
            self._spill(groups, operator)

    def rescale(self, processors: int) -> None:
        """Spread state evenly over another number of processors; operators that are whole stay so."""
        with self._between_batches():
            self._rescale(processors)

    def give_memory(self, budget: int | None, processor: int | None) -> None:
        """Change the budget of a processor, or of all, from the next step on."""
        count = self._context.in_force.distribution.processors
        if processor is not None and not (is_whole(processor) and 0 <= processor < count):
            raise ConfigError(f"processors are numbers from 0 to {count - 1}, not {processor!r}")
        with self._between_batches():
            self._context.run.memory.set_budget(budget, processor)

    def _relocate(self, groups: Sequence[int], receiver: int, operator: str | None, pace: int | None) -> None:
        adaptation, distribution = self._context.adaptation, self._context.in_force.distribution
        self._check(distribution, groups, receiver)
        change, context = Change(distribution), adaptation.context()
        for family in self._families(operator):
            homes = distribution.routings[family].placement
            for sender in sorted({homes[group] for group in groups} - {receiver}):
                own = tuple(group for group in groups if homes[group] == sender)
                size = adaptation.relocator.size(change.distribution, family, own, sender)
                move = RelocateGroups(family, own, sender, receiver, size, ON_REQUEST, pace)
                problem = move.problem(change, context)
                if problem is not None:
                    raise ConfigError(problem)
                move.apply(change, context)
        self._commit(change)

    def _spill(self, groups: Sequence[int] | None, operator: str | None) -> None:
        in_force, distribution = self._context.in_force, self._context.in_force.distribution
        chosen = range(distribution.groups) if groups is None else groups
        self._check_groups(distribution, chosen)
        operators = self._spillable(operator)
        if in_force.last is None:
            return
        if in_force.may_repeat:
            raise ConfigError("nothing can be spilled before the batch that was under way in a crash has come again")
        change, context = Change(distribution), self._context_after(in_force.last)
        for shape in operators:
            for p, manifest in enumerate(distribution.manifests):
                sizes = manifest.operators[shape.number].statistics.dense(distribution.groups).bytes
                own = tuple(group for group in chosen if sizes[group])
                push = SpillGroups(p, shape.number, own, int(sizes[list(own)].sum()), ON_REQUEST)
                if own and push.must_wait(change, set()):
                    raise ConfigError(f"groups are on their way to or from processor {p}; spill when they have arrived")
                if own:
                    push.apply(change, context)
        self._commit(change)

    def _context_after(self, last: Step) -> Context:
        """What actions may look at in the step that is made between two batches."""
        since = self._context.times.since(last.newest, last.settled, self._context.backlog())
        return self._context.adaptation.context(self._context.run.checkpoint.next_number, since)

    def _commit(self, change: Change) -> None:
        """Put a change in force, if there is any, and tell of it."""
        if change.touched:
            self._put_in_force(change.distribution)
        for kind, text, details in change.sentences:
            self._context.run.events.add(kind, text, **details)

    def _rescale(self, processors: int) -> None:
        before = self._context.in_force.distribution
        if not is_whole(processors) or processors < 1:
            raise ConfigError(f"processors must be a positive whole number, not {processors!r}")
        even_placement(before.groups, processors)
        if processors == before.processors:
            return
        whole = self._context.run.settings.whole
        placements = tuple(
            (operator.family % processors,) * len(placement) if whole else rescaled(placement, processors)
            for operator, placement in zip(self._context.shape.operators, before.placements, strict=True)
        )
        self._put_in_force(self._context.adaptation.relocator.rescale(before, processors, placements))
        text = f"state of {before.processors} processors is now listed on {processors}, since {ON_REQUEST}"
        if before.moving:
            several = "s" if len(before.moving) > 1 else ""
            text += f"; {len(before.moving)} relocation{several} under way came to nothing by that"
        self._context.run.events.add(EventKind.RESCALE, text, before=before.processors, after=processors)

    def _put_in_force(self, distribution: Distribution) -> None:
        in_force = self._context.in_force
        if in_force.last is None:
            in_force.distribution = distribution
            return
        hold = in_force.last.hold
        if not in_force.may_repeat:
            hold = union_by_operator(hold, self._context.adaptation.relocator.held_back(distribution))
        in_force.list_anew(distribution, hold)

    def _families(self, operator: str | None) -> list[int]:
        if operator is None:
            return sorted(set(self._context.shape.families))
        names = {shape.name: shape.family for shape in self._context.shape.operators}
        if not isinstance(operator, str) or operator not in names:
            raise ConfigError(f"there is no operator {operator!r}; {did_you_mean(str(operator), list(names))}")
        return [names[operator]]

    def _spillable(self, operator: str | None) -> list[OperatorShape]:
        shapes = self._context.shape.operators
        chosen = [shape for shape in shapes if operator in (None, shape.name)]
        if not chosen:
            raise ConfigError(
                f"there is no operator {operator!r}; {did_you_mean(str(operator), [s.name for s in shapes])}"
            )
        spillable = [shape for shape in chosen if shape.spillable]
        if not spillable:
            raise ConfigError(f"the state of {chosen[0].name!r} cannot be spilled: all of it has to be at hand")
        return spillable

    def _check(self, distribution: Distribution, groups: Sequence[int], receiver: int) -> None:
        """Refuse what makes no sense."""
        self._check_groups(distribution, groups)
        if not is_whole(receiver) or not 0 <= receiver < distribution.processors:
            raise ConfigError(f"processors are numbers from 0 to {distribution.processors - 1}, not {receiver!r}")

    def _check_groups(self, distribution: Distribution, groups: Sequence[int]) -> None:
        count = distribution.groups
        if not groups:
            raise ConfigError("no group was given")
        for group in groups:
            if not is_whole(group) or not 0 <= group < count:
                raise ConfigError(f"partition groups are numbers from 0 to {count - 1}, not {group!r}")
