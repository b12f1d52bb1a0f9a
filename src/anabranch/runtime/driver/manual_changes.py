"""Moving state by hand: what a user asks of a run that goes on, done at once between two batches.

It is a step of its own, without a batch: it lists state otherwise, and nothing is read or copied. What is asked for by
hand may move groups that have spilled state, too; their generations move along.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from anabranch.checkpoint.in_force import Standing
from anabranch.errors import ConfigError, did_you_mean
from anabranch.manager.actions import RelocateGroups, is_whole
from anabranch.manager.adaptation import ASKED, Adaptation, Adapted
from anabranch.manager.budgets import Memory
from anabranch.manager.distribution import Distribution
from anabranch.manager.operators import Known
from anabranch.plan.placement import even_placement, rescaled
from anabranch.state.groups import unite


class ByHand:
    """What can be asked of a run; `whole` operators are not spread over processors when it is rescaled."""

    def __init__(
        self,
        standing: Standing,
        adaptation: Adaptation,
        operators: Sequence[Known],
        memory: Memory,
        whole: bool,
        between_batches: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """Of a run; `between_batches` no step is made, and it is refused if none can follow."""
        self._standing = standing
        self._adaptation = adaptation
        self._operators = operators
        self._memory = memory
        self._between_batches = between_batches
        self._whole = whole

    def relocate(self, groups: Sequence[int], receiver: int, operator: str | None, pace: int | None) -> None:
        """Move groups to a processor, wherever they are: of all operators, or of one and those fused with it."""
        with self._between_batches():
            self._relocate(groups, receiver, operator, pace)

    def rescale(self, processors: int) -> None:
        """Spread state evenly over another number of processors; operators that are whole stay so."""
        with self._between_batches():
            self._rescale(processors)

    def give_memory(self, budget: int | None, processor: int | None) -> None:
        """Change the budget of a processor, or of all, from the next step on."""
        count = self._standing.distribution.processors
        if processor is not None and not (is_whole(processor) and 0 <= processor < count):
            raise ConfigError(f"processors are numbers from 0 to {count - 1}, not {processor!r}")
        with self._between_batches():
            self._memory.give(budget, processor)

    def _relocate(self, groups: Sequence[int], receiver: int, operator: str | None, pace: int | None) -> None:
        found = self._standing.distribution
        self._check(found, groups, receiver)
        adapted, asked = Adapted(found), self._adaptation.now()
        for family in self._families(operator):
            homes = found.routings[family].placement
            for sender in sorted({homes[group] for group in groups} - {receiver}):
                own = tuple(group for group in groups if homes[group] == sender)
                size = self._adaptation.relocator.size(adapted.distribution, family, own, sender)
                move = RelocateGroups(family, own, sender, receiver, size, ASKED, pace)
                after, relocation = self._adaptation.relocator.begin(adapted.distribution, move, asked)
                adapted.relocated(after, [relocation])
        if adapted.moved:
            self._put_in_force(adapted.distribution)
            self._adaptation.tell(adapted)

    def _rescale(self, processors: int) -> None:
        found = self._standing.distribution
        if not is_whole(processors) or processors < 1:
            raise ConfigError(f"processors must be a positive whole number, not {processors!r}")
        even_placement(found.groups, processors)
        if processors == found.processors:
            return
        placements = tuple(
            (operator.family % processors,) * len(placement) if self._whole else rescaled(placement, processors)
            for operator, placement in zip(self._operators, found.placements, strict=True)
        )
        self._put_in_force(self._adaptation.relocator.rescale(found, processors, placements))
        self._adaptation.tell_rescaled(found.processors, processors, len(found.moving))

    def _put_in_force(self, found: Distribution) -> None:
        if self._standing.last is None:
            self._standing.distribution = found
            return
        hold = self._standing.last.hold
        if not self._standing.may_repeat:
            hold = unite(hold, self._adaptation.relocator.held_back(found))
        self._standing.list_anew(found, hold)

    def _families(self, operator: str | None) -> list[int]:
        if operator is None:
            return sorted({known.family for known in self._operators})
        names = {known.name: known.family for known in self._operators}
        if not isinstance(operator, str) or operator not in names:
            raise ConfigError(f"there is no operator {operator!r}; {did_you_mean(str(operator), list(names))}")
        return [names[operator]]

    def _check(self, found: Distribution, groups: Sequence[int], receiver: int) -> None:
        """Refuse what makes no sense."""
        count = found.groups
        if not groups:
            raise ConfigError("no group to move was given")
        for group in groups:
            if not is_whole(group) or not 0 <= group < count:
                raise ConfigError(f"partition groups are numbers from 0 to {count - 1}, not {group!r}")
        if not is_whole(receiver) or not 0 <= receiver < found.processors:
            raise ConfigError(f"processors are numbers from 0 to {found.processors - 1}, not {receiver!r}")
