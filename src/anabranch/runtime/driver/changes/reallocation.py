"""Reallocate operators to other processors between two batches (paper 5, section 6.3; `manager/allocation`).

The rounds for the new placement are compiled while batches go on. Then state is listed at its new owners, and a step of
its own commits that. Spark's query goes on as it is: packed rows do not depend on the place of operators. If the rounds
stay the same, only routings change.

Diffusion sets operators apart and lets them join again by the same way. What is diffused then is a part of the same
commit: an operator that was set apart in vain is never seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.checkpoint.step import Step
from anabranch.manager.actions.change import Change
from anabranch.manager.allocation.reallocation import Reallocation, ReallocationStep
from anabranch.manager.allocation.wanted import ForDiffusion, Wanted, allocation_after, operators_of
from anabranch.manager.connection_manager import Reallocated
from anabranch.manager.distribution import Distribution
from anabranch.manager.tiers.sending import Sent, allocation_sent, sent_operators, tier_of
from anabranch.observe.events import EventKind
from anabranch.observe.numbers import format_bytes
from anabranch.plan.allocation import Allocation
from anabranch.plan.placement import placement_text
from anabranch.runtime.compile.prepared import PreparedPlan
from anabranch.runtime.driver.open_run import OpenedRun
from anabranch.runtime.driver.step.context import StepContext, reallocated_context
from anabranch.state.failpoints import failpoint

# Compiles the rounds of a running plan for another allocation.
Allocate = Callable[[PreparedPlan, Allocation], PreparedPlan]
# What changes with a reallocation, in the context that comes into force with it.
Edit = Callable[[StepContext, Distribution], Change]


@dataclass(frozen=True, slots=True)
class _Connected:
    """Reallocations after their first three steps, each with the numbers of its operators. `plan` is to come into
    force; None if the rounds stay the same. All was made for a `distribution`."""

    before: StepContext
    distribution: Distribution
    allocation: Allocation
    plan: PreparedPlan | None
    rounds: int
    reallocations: tuple[tuple[Reallocation, tuple[int, ...]], ...]
    is_for_diffusion: bool
    kin: Mapping[int, tuple[int, ...]]

    def is_of(self, context: StepContext) -> bool:
        """Whether nothing that it depends on has changed since."""
        then, now = self.distribution, context.in_force.distribution
        return (
            context is self.before
            and now.routings == then.routings
            and [entry.move for entry in now.moving] == [entry.move for entry in then.moving]
        )

    @property
    def changes_nothing(self) -> bool:
        """Whether all operators are at their wanted places already."""
        now, then = self.before.in_force.allocation, self.allocation
        placed = then.placements == self.distribution.placements
        return self.plan is None and placed and (then.apart, then.parted) == (now.apart, now.parted)


def reallocate(
    opened: OpenedRun, wanted: Sequence[Wanted | Sent], allocate: Allocate, edit: Edit | None = None
) -> OpenedRun:
    """Move operators to their wanted places, or queries to other clusters, and `edit` what is there then, all in one
    step; refused, with nothing done, if one cannot go."""
    runner = opened.runner
    connected = _connect(runner.context, wanted, allocate)
    failpoint("reallocation.connected")
    with runner.between_batches() as context:
        if not connected.is_of(context):
            connected = _connect(context, wanted, allocate)
        if connected.changes_nothing:
            return opened
        return _switch(opened, connected, edit)


def _connect(context: StepContext, wanted: Sequence[Wanted | Sent], allocate: Allocate) -> _Connected:
    """Make the first three steps: name the processors, and connect them with those above and below."""
    clock, distribution, layout = context.run.clock, context.in_force.distribution, context.layout
    now = context.in_force.allocation
    notified = []
    for wish in wanted:
        numbers, now = _wished(context, now, wish)
        names = tuple(context.shape.operators[n].name for n in numbers)
        notified.append((Reallocation(names, wish.reason).make(ReallocationStep.NOTIFY, clock()), numbers))
    rounds = context.plan.graph.flow.rounds(now.placements, now.families)
    same = rounds.of == layout.rounds and rounds.families == layout.families
    plan = None if same else allocate(context.plan, now)
    connected = tuple(
        (
            made.make(ReallocationStep.CONNECT_PARENTS, clock()).make(ReallocationStep.CONNECT_CHILDREN, clock()),
            numbers,
        )
        for made, numbers in notified
    )
    for_diffusion = all(isinstance(wish.to, ForDiffusion) for wish in wanted)
    return _Connected(context, distribution, now, plan, rounds.count, connected, for_diffusion, context.in_force.parted)


def _wished(context: StepContext, now: Allocation, wish: Wanted | Sent) -> tuple[tuple[int, ...], Allocation]:
    """The operators that a wish is for, and the allocation after it."""
    shape, graph, settings = context.shape, context.plan.graph, context.run.settings
    distribution = context.in_force.distribution
    if isinstance(wish, Wanted):
        numbers = operators_of(shape, wish, _answering(context.plan))
        return numbers, allocation_after(shape, distribution, now, numbers, wish, settings.clusters)
    tier = tier_of(settings.pattern)
    numbers = sent_operators(graph, wish, tier, shape, distribution)
    return numbers, allocation_sent(graph, shape, distribution, now, numbers, tier, wish.to)


def _switch(opened: OpenedRun, connected: _Connected, edit: Edit | None) -> OpenedRun:
    """Make the last three steps, between two batches."""
    runner, before, plan = opened.runner, opened.runner.context, connected.plan
    after = before if plan is None else reallocated_context(before, plan, list(opened.targets.values()))
    clock, in_force, last = before.run.clock, before.in_force, before.in_force.last
    stopped, distribution = clock(), in_force.distribution
    moved, settled = after.decision_maker.connections.reallocate(
        distribution, connected.allocation.placements, before.shape
    )
    change = Change(moved) if edit is None else edit(after, moved)
    sent = clock()
    try:
        failpoint("reallocation.sent")
        in_force.reallocate(change.distribution, replace(connected.allocation, families=after.shape.families))
        failpoint("reallocation.committed")
        runner.use(after)
        times = {
            ReallocationStep.DEACTIVATE: stopped,
            ReallocationStep.SEND_STATE: sent,
            ReallocationStep.ACTIVATE: clock(),
        }
        _write_events(connected, after, times, settled, change)
        failpoint("reallocation.activated")
    except BaseException as error:
        if runner.context is not before or _is_committed(before, last):
            runner.break_off(error)
        raise
    return opened if plan is None else OpenedRun(runner, plan, opened.targets)


def _write_events(
    connected: _Connected,
    after: StepContext,
    times: Mapping[ReallocationStep, float],
    settled: Reallocated,
    change: Change,
) -> None:
    """Write the events of all reallocations, whose last steps were made at these times, and of what was done on the
    way."""
    for reallocation, numbers in connected.reallocations:
        for step, time in times.items():
            reallocation = reallocation.make(step, time)
        _write_event(connected, after, reallocation, numbers, settled)
    for kind, text, details in change.sentences:
        after.run.events.add(kind, text, **details)


def _is_committed(context: StepContext, last: Step | None) -> bool:
    """Whether a step lists state at the new places, so that nothing may go on at the old ones."""
    now = context.run.checkpoint.last_step()
    return now is not None and (last is None or now.number > last.number)


def _answering(plan: PreparedPlan) -> set[int]:
    """The operators whose results are the answer of a query, or a part of one."""
    network = plan.network
    nodes = {branch.node for answer in network.answers for branch in answer.branches}
    return {n for n in map(network.operator_of, nodes) if n is not None}


def _write_event(
    connected: _Connected, after: StepContext, made: Reallocation, numbers: Sequence[int], settled: Reallocated
) -> None:
    """Write the event of a reallocation."""
    before, count = connected.before, connected.distribution.processors
    was = [placement_text(connected.distribution.placements[n], count) for n in numbers]
    now = [placement_text(connected.allocation.placements[n], count) for n in numbers]
    size = sum(settled.bytes.get(n, 0) for n in numbers)
    then, rounds = max(before.layout.rounds) + 1, max(after.layout.rounds) + 1
    several = ", ".join(made.operators)
    places = f"{_places_text(now)} from now on, {_places_text(was)} before"
    if connected.is_for_diffusion:
        places = "; ".join(_kin_text(connected, n) for n in numbers)
    text = f"{several}: {places}; {format_bytes(size)} of state moved"
    text += f", {rounds} round{'s' if rounds > 1 else ''}" + (f" instead of {then}" if rounds != then else "")
    cost = before.run.round_cost
    if rounds > then and connected.is_for_diffusion:
        verb = "costs" if cost.is_measured else "is estimated to cost"
        text += f", which {verb} {(rounds - then) * cost.seconds:.2f} s a batch"
    if settled.ended:
        text += f", {settled.ended} relocation{'s' if settled.ended > 1 else ''} under way came to nothing"
    if settled.gathered:
        text += f", {settled.gathered} diffused group{'s' if settled.gathered > 1 else ''} gathered"
    before.run.events.add(
        EventKind.REALLOCATE,
        f"{text}, since {made.reason}",
        operators=list(made.operators),
        before=was,
        after=now,
        bytes=size,
        rounds_before=then,
        rounds=rounds,
        steps=[[step.text, time] for step, time in made.made],
        ended_relocations=settled.ended,
        gathered_groups=settled.gathered,
        round_seconds=cost.seconds,
    )


def _kin_text(connected: _Connected, operator: int) -> str:
    """From which operators one has parted for diffusion, or which of them it has joined again."""
    after, shape = connected.allocation, connected.before.shape
    kin = {**connected.kin, **after.parted}.get(operator, ())
    names = ", the ".join(shape.operators[n].name for n in kin)
    if operator in after.parted:
        return f"set apart from the {names} while groups of it are diffused"
    return f"fused with the {names} again" if names else "not set apart any more"


def _places_text(places: Sequence[str]) -> str:
    """The places of operators as text: one place if it is the same for all of them."""
    return places[0] if len(set(places)) == 1 else "; ".join(places)
