"""Changes by hand while a run goes on: relocate, diffuse, spill, rescale, give memory.

Each is made between two batches. `manager/manual` computes the change. A step of its own puts it in force; such a step
only lists state in other manifests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager

from anabranch.errors import ConfigError
from anabranch.manager.actions.change import Change
from anabranch.manager.distribution import Distribution
from anabranch.manager.manual import (
    check_processor,
    diffusion,
    gathering,
    relocation,
    rescaled_placements,
    rescaling_sentence,
    spilling,
)
from anabranch.manager.tiers.clusters import Clusters
from anabranch.runtime.driver.step.context import StepContext
from anabranch.state.groups import union_by_operator


class ManualChanges:
    """The changes of a run that a user can ask for by name. Each waits for the step under way."""

    def __init__(self, between_batches: Callable[[], AbstractContextManager[StepContext]]) -> None:
        """Take the context manager inside which no step is made; it refuses if the run is about to end."""
        self._between_batches = between_batches

    def relocate(self, groups: Sequence[int], receiver: int, operator: str | None, pace: int | None) -> None:
        """Move groups to a processor, wherever they are: of all operators, or of one and those fused with it."""
        with self._between_batches() as step:
            distribution, context = step.in_force.distribution, step.decision_maker.context()
            change = relocation(distribution, context, groups, receiver, operator, pace, _clusters(step))
            _put_change_in_force(step, change)

    def diffuse(self, groups: Sequence[int], master: str, hosts: Sequence[int], operator: str | None) -> None:
        """Diffuse groups: spread the rows of their input `master` over the hosts, and send those of other inputs to
        all of them."""
        with self._between_batches() as step:
            distribution = step.in_force.distribution
            _put_change_in_force(step, diffused(step, distribution, groups, master, hosts, operator))

    def undiffuse(self, groups: Sequence[int], receiver: int | None, operator: str | None) -> None:
        """Bring groups that are diffused to one processor: their home, or another one."""
        with self._between_batches() as step:
            context = step.decision_maker.context(step.run.checkpoint.next_number)
            change = gathering(step.in_force.distribution, context, groups, receiver, operator, _clusters(step))
            _put_change_in_force(step, change)

    def spill(self, groups: Sequence[int] | None, operator: str | None) -> None:
        """Push groups to disk, wherever they are: some or all, of one operator or of all that can be spilled."""
        with self._between_batches() as step:
            in_force, number = step.in_force, step.run.checkpoint.next_number
            if in_force.may_repeat:
                raise ConfigError(
                    "nothing can be spilled before the batch that was under way in a crash has come again"
                )
            last = in_force.last
            since = () if last is None else step.times.since(last.newest, last.settled, step.backlog())
            change = spilling(in_force.distribution, step.decision_maker.context(number, since), groups, operator)
            _put_change_in_force(step, change)

    def rescale(self, processors: int) -> None:
        """Spread state evenly over another number of processors; what the pattern has whole stays so."""
        with self._between_batches() as step:
            before, settings = step.in_force.distribution, step.run.settings
            if settings.clusters is not None:
                raise ConfigError(
                    "a run with clusters cannot be rescaled, since each processor is of a cluster; stop it, and start "
                    "it anew with an ab.Tier that lists the processors that there are to be"
                )
            placements = rescaled_placements(before, step.shape, processors, settings.pattern, step.plan.graph)
            if processors == before.processors:
                return
            _put_in_force(step, step.decision_maker.connections.rescale(before, processors, placements))
            kind, text, details = rescaling_sentence(before, processors)
            step.run.events.add(kind, text, **details)

    def give_memory(self, budget: int | None, processor: int | None) -> None:
        """Change the budget of a processor, or of all, from the next step on."""
        with self._between_batches() as step:
            if processor is not None:
                check_processor(step.in_force.distribution, processor)
            step.run.memory.set_budget(budget, processor)


def _clusters(step: StepContext) -> Clusters | None:
    """The clusters of processors, if there are some."""
    return step.run.settings.clusters


def listed(numbers: int | Iterable[int]) -> list[int]:
    """Numbers as users give them: one, or several."""
    return list(numbers) if isinstance(numbers, Iterable) else [numbers]


def diffused(
    step: StepContext,
    distribution: Distribution,
    groups: Sequence[int],
    master: str,
    hosts: Sequence[int],
    operator: str | None,
) -> Change:
    """The change of a distribution that diffuses groups after the last step."""
    last, number = step.in_force.last, step.run.checkpoint.next_number
    context, hold = step.decision_maker.context(number), {} if last is None else last.hold
    return diffusion(distribution, context, groups, master, hosts, operator, hold, _clusters(step))


def _put_change_in_force(step: StepContext, change: Change) -> None:
    """Put a change in force, if anything is changed, and write its events."""
    if change.touched:
        _put_in_force(step, change.distribution)
    for kind, text, details in change.sentences:
        step.run.events.add(kind, text, **details)


def _put_in_force(step: StepContext, distribution: Distribution) -> None:
    """List state by another distribution, and commit that. Before the first step there is no state to list."""
    in_force = step.in_force
    if in_force.last is None:
        in_force.distribution = distribution
        return
    hold = in_force.last.hold
    if not in_force.may_repeat:
        hold = union_by_operator(hold, step.decision_maker.connections.held_back(distribution))
    in_force.list_anew(distribution, hold)
