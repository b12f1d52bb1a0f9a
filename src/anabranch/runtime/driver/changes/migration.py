"""Migrating a query to another order of its joins while it is answered (paper 3; DESIGN, "Changing what runs").

The query gets a *shadow*: operators in the new order beside its own. The same rows come to them, and their answers are
dropped. The old operators go on answering. Once the shadow holds all that a later row can meet, it takes over between
two batches, and the old operators are gone. Strategies differ only in how the shadow gets its state:

- *moving state*: all at once, in a step between two batches, from what the old operators hold
  (`manager/shadows/filling`);
- *background*: the same in pieces, a few partition groups per batch;
- *parallel track*: not at all. It begins empty, and is complete when the rows that had come before are dead.

No answer is lost and none comes twice. Up to the change every answer comes from the old operators, which owe nothing
any more when the change is made. Afterwards every answer has a row that came later, and the shadow holds all its other
rows. A crash before the step that makes the change leaves the old plan in force, and the shadow is forgotten.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from anabranch.checkpoint.carry_over import with_inherited_groupings
from anabranch.checkpoint.folder.directory import Checkpoint
from anabranch.errors import ConfigError
from anabranch.manager.shadows.feeding import Feeding, usual_pace
from anabranch.manager.shadows.filling import Filling, Rehashed, filled, planned_filling, rows_at
from anabranch.manager.waiting import joins_are_behind
from anabranch.plan.arrangement import Shape
from anabranch.plan.join_order import rearranged, shape_of
from anabranch.plan.network import Network
from anabranch.plan.watermark import retention
from anabranch.runtime.compile.prepared import PreparedPlan
from anabranch.runtime.driver.open_run import (
    OpenedRun,
    Prepare,
    Proposal,
    Question,
    Shadow,
    propose,
    put_in_force,
    resumed,
    switch,
)
from anabranch.runtime.driver.step.context import StepContext
from anabranch.runtime.exchange.rehash import Rewriting, rehash
from anabranch.state.failpoints import failpoint
from anabranch.state.groups import GroupSet, union_by_operator
from anabranch.state.runs.run import RunFile
from anabranch.state.runs.slice import Slice

MOVING_STATE = "moving-state"
PARALLEL_TRACK = "parallel-track"
BACKGROUND = "background"
STRATEGIES = (MOVING_STATE, PARALLEL_TRACK, BACKGROUND)
REPEATED = "the next batch is one that was begun before a restart; try again after it"


@dataclass(frozen=True, slots=True)
class MigrationProposal:
    """A query in another order of its joins: the plan with it `beside` itself, and the one with it `alone`.

    `before` and `after` are its shapes, `filling` says where the shadow's state comes from.
    """

    query: str
    before: Shape
    after: Shape
    beside: Proposal
    alone: Proposal
    filling: Filling


@dataclass(slots=True)
class ShadowProgress:
    """The progress of a migration that has begun: whether it is ready, and how many rows it has listed and hashed anew.

    For a parallel track, `newest` is the event time of the newest row that had come before, by number of a leaf port.
    """

    proposal: MigrationProposal
    strategy: str
    newest: Mapping[int, int]
    feeding: Feeding | None
    rehashed_rows: int = 0
    listed_rows: int = 0

    def share_done(self, context: StepContext) -> float:
        """The share of the shadow's state that it has already, from 0 to 1."""
        if self.feeding is not None:
            return 1 - self.feeding.waiting / self.feeding.total if self.feeding.total else 1.0
        due = _dead(self, context)
        return sum(due) / len(due) if due else 1.0

    def rows_done(self, context: StepContext) -> int:
        """The rows that were read, and the joined rows that were made, for the shadow's state so far."""
        filling, owners = self.proposal.filling, context.shape.owners
        read = self.rehashed_rows + (self.feeding.total if self.feeding is not None else 0)
        made = filling.computed if self.feeding is not None else _shadow_ports(self.proposal.beside.plan.network)
        pieces = (
            piece
            for manifest in context.manifests
            for port in made
            for run in rows_at(manifest, port, owners)
            for piece in run
        )
        return read + self.rehashed_rows + sum(piece.rows for piece in pieces)

    def state_bytes(self, context: StepContext) -> int:
        """The bytes of the shadow's active state. None of it can be pushed to disk."""
        network = context.plan.network
        shadows = [n for n in range(len(network.operators)) if network.is_shadow(n)]
        return sum(int(manifest.operators[n].statistics.bytes.sum()) for manifest in context.manifests for n in shadows)

    def is_ready(self, context: StepContext) -> bool:
        """Whether the shadow holds all that rows still to come can meet."""
        if self.feeding is None:
            return all(_dead(self, context))
        held = (manifest.operators[n].held for manifest in context.manifests for n in self.feeding.operators)
        return not any(held)


def propose_migration(
    checkpoint: Checkpoint,
    questions: Mapping[str, Question],
    prepare: Prepare,
    name: str,
    shape: Shape | None,
    running: PreparedPlan,
) -> MigrationProposal:
    """Plan a migration; refused if it makes no sense. `prepare` keeps what the streaming query of `running` packs."""
    current = next(request.query for request in running.requests if request.name == name)
    if current.logical is None:
        raise ConfigError(f"the query {name!r} has no joins that could be put in another order")
    after = rearranged(current, shape)
    if shape_of(after) == shape_of(current):
        raise ConfigError(f"the joins of {name!r} are in this order already")
    track = checkpoint.next_plan
    beside = propose(checkpoint, questions, prepare, shadow=Shadow(name, after, track))
    moved = {other: replace(q, query=after, track=track) if other == name else q for other, q in questions.items()}
    alone = propose(checkpoint, moved, prepare)
    if any(proposal.plan.packing is not running.packing for proposal in (beside, alone)):
        raise ConfigError(
            f"the joins of {name!r} cannot be put in this order while it runs: a key that can fail on a row, such as "
            "one with an arithmetic operation, would be evaluated elsewhere"
        )
    called = with_inherited_groupings(beside.document, alone.document)
    if any(grouping not in beside.document["operators"] for grouping in called["groupings"]):
        raise ConfigError(f"in this order the GROUP BY of {name!r} would keep its rows otherwise; choose another one")
    filling = planned_filling(beside.plan.network, name)
    return MigrationProposal(name, shape_of(current), shape_of(after), beside, alone, filling)


def begin_migration(
    opened: OpenedRun, proposal: MigrationProposal, strategy: str, no_rows: DataFrame, pace: int | None = None
) -> tuple[OpenedRun, ShadowProgress]:
    """Begin a migration between two batches: put the shadow in force. `no_rows` is an empty batch of the new plan."""
    with opened.runner.between_batches() as context:
        check_begins(context, proposal, strategy)
        return _begin(opened, proposal, strategy, no_rows, pace)


def check_begins(context: StepContext, proposal: MigrationProposal, strategy: str) -> None:
    """Refuse a migration that cannot begin now by this strategy. Nothing has been changed yet."""
    if strategy == PARALLEL_TRACK:
        check_ends(proposal)
    if context.in_force.last is None:
        raise ConfigError("the query has not answered anything yet, so there is nothing to migrate; start it anew")
    if not context.in_force.may_repeat:
        return
    # Between the batch and its repetition nothing may be decided that changes what it gives under its id.
    network = context.plan.network
    owes = strategy != PARALLEL_TRACK and _lists_joined_rows(proposal)
    owes = owes and joins_are_behind(context.manifests, network.joins_of(proposal.query))
    if owes or (strategy == MOVING_STATE and proposal.filling.fed):
        raise ConfigError(REPEATED)


def end_migration(opened: OpenedRun, progress: ShadowProgress, no_rows: DataFrame) -> OpenedRun | None:
    """Let the shadow take over. None, with nothing changed, if that is not possible yet."""
    with opened.runner.between_batches():
        return _end(opened, progress, no_rows)


def replace_query(opened: OpenedRun, plan: Callable[[StepContext], MigrationProposal], no_rows: DataFrame) -> OpenedRun:
    """Plan, begin and end a migration by moving state between the same two batches: which rows are dead depends on the
    batch before it."""
    with opened.runner.between_batches() as context:
        proposal = plan(context)
        check_begins(context, proposal, MOVING_STATE)
        deliver_owed(opened, proposal, no_rows)
        opened, progress = _begin(opened, proposal, MOVING_STATE, no_rows, None)
        ended = _end(opened, progress, no_rows)
        assert ended is not None, "nothing is owed, and no batch has come since"
    return ended


def deliver_owed(opened: OpenedRun, proposal: MigrationProposal, no_rows: DataFrame) -> None:
    """Deliver what the query's joins owe, and answer the rows that they hold back; to be called between two batches."""
    if not opened.runner.extra.settle(no_rows, opened.plan.network.joins_of(proposal.query)):
        raise ConfigError(REPEATED)


def _begin(
    opened: OpenedRun, proposal: MigrationProposal, strategy: str, no_rows: DataFrame, pace: int | None
) -> tuple[OpenedRun, ShadowProgress]:
    before = opened.runner.context
    run = before.run
    if strategy != PARALLEL_TRACK and _lists_joined_rows(proposal):
        # What is owed below joined rows that are listed would come to the old ones only.
        deliver_owed(opened, proposal, no_rows)
    with put_in_force(opened.runner, proposal.beside.document):
        context, targets = resumed(run, proposal.beside, before)
        progress = ShadowProgress(proposal, strategy, {}, None)
        if strategy == PARALLEL_TRACK:
            progress.newest = _newest(context)
            context.in_force.list_anew(context.in_force.distribution)
        else:
            rows = usual_pace(before.counters.usual_rows) if pace is None else pace
            context = _fill(context, progress, no_rows, rows)
        # An error up to here ends the run if a step was committed, since no step may follow in the context of before.
        failpoint("migration.begun")
        opened.runner.use(context)
    if strategy == MOVING_STATE and not progress.is_ready(context):
        opened.runner.extra.replay(no_rows, _others_wait(context))
        failpoint("migration.replayed")
    return OpenedRun(opened.runner, proposal.beside.plan, targets), progress


def _end(opened: OpenedRun, progress: ShadowProgress, no_rows: DataFrame) -> OpenedRun | None:
    proposal, context = progress.proposal, opened.runner.context
    if not progress.is_ready(context):
        return None
    if not opened.runner.extra.settle(no_rows, _joins(proposal)) or not progress.is_ready(context):
        return None
    failpoint("migration.settled")
    with put_in_force(opened.runner, proposal.alone.document):
        failpoint("migration.adopted")
        after, targets = resumed(context.run, proposal.alone, context)
        after.in_force.list_anew(after.in_force.distribution)
    opened.runner.use(after)
    failpoint("migration.ended")
    return OpenedRun(opened.runner, proposal.alone.plan, targets)


def drop_shadow(opened: OpenedRun, questions: Mapping[str, Question], prepare: Prepare) -> OpenedRun:
    """Go on without the shadow that is in force, in the order that its query has."""
    proposal = propose(opened.runner.context.run.checkpoint, questions, prepare)
    switched = switch(opened, proposal)
    assert switched is not None, "what has a shadow has been answered before"
    return switched


def after_failure(
    opened: OpenedRun, questions: Callable[[], Mapping[str, Question]], prepare: Callable[[], Prepare]
) -> OpenedRun:
    """Go on without the shadow after a change that has failed, if the run goes on.

    The change may have left a plan in force that `opened` does not have. If that cannot be mended, the run ends.
    """
    runner = opened.runner
    is_mixed = runner.context.plan is not opened.plan
    if runner.failure is not None or not (is_mixed or any(request.shadow for request in opened.plan.requests)):
        return opened
    try:
        return drop_shadow(opened, questions(), prepare())
    except Exception as error:
        if is_mixed and runner.failure is None:
            runner.break_off(error)
        return opened


def _fill(context: StepContext, progress: ShadowProgress, no_rows: DataFrame, pace: int) -> StepContext:
    """List the shadow's state, write the rows that need another hash anew, and commit that."""
    filling, distribution = progress.proposal.filling, context.in_force.distribution
    owners, cuts = context.shape.owners, context.decision_maker.context().cuts
    rehashed: Rehashed = {port: _rehashed(context, filling, port, no_rows) for port in filling.rehashed}
    for files in rehashed.values():
        progress.rehashed_rows += sum(file.rows for own in files for file in own)
    after = filled(distribution, filling, owners, rehashed, cuts, time.time())
    feeding = Feeding(filling.fed, owners, cuts, pace)
    hold = feeding.look(after)
    progress.feeding = feeding
    progress.listed_rows = sum(
        piece.rows
        for manifest in distribution.manifests
        for of in filling.listed.values()
        for run in rows_at(manifest, of, owners)
        for piece in run
    )
    last = context.in_force.last
    assert last is not None, "there was a step"
    context.in_force.list_anew(after, union_by_operator(last.hold, hold))
    return replace(context, feeding=feeding)


def _others_wait(context: StepContext) -> dict[int, GroupSet]:
    """By operator that is not the shadow's, the groups whose rows must go on waiting, as the next batch has them."""
    network, everything = context.plan.network, GroupSet.all(context.shape.groups)
    return {n: everything for n in range(len(network.operators)) if not network.is_shadow(n)}


def _rehashed(context: StepContext, filling: Filling, port: int, no_rows: DataFrame) -> list[list[RunFile]]:
    of = filling.rehashed[port]
    distribution, owners = context.in_force.distribution, context.shape.owners
    pieces: list[list[Slice]] = [
        [piece for run in rows_at(manifest, of, owners) for piece in run] for manifest in distribution.manifests
    ]
    _, p = context.plan.network.ports[port]
    files, cuts = rehash(
        no_rows.sparkSession,
        context.plan,
        Rewriting(port, pieces, filling.selected.get(port, ()), port in filling.same_key),
        distribution.routings[owners[port]].port(p),
        processors=distribution.processors,
        state=context.run.checkpoint.state,
        epoch=context.run.checkpoint.epoch,
    )
    context.decision_maker.learn_cuts(cuts)
    return files


def _joins(proposal: MigrationProposal) -> list[int]:
    """The joins of a query and of its shadow, side by side.

    A join that another query shares stays, but what it owes is owed to the old order, too. And what waits for the
    shadow has been answered in the old one, so it must not come as new rows after the change.
    """
    network = proposal.beside.plan.network
    shadows = [n for n in range(len(network.operators)) if network.is_shadow(n)]
    return [*network.joins_of(proposal.query), *shadows]


def _lists_joined_rows(proposal: MigrationProposal) -> bool:
    """Whether a state of joined rows is taken over as it is."""
    leaves = _leaf_ports(proposal.beside.plan.network)
    return any(port not in leaves for port in proposal.filling.listed)


def _shadow_ports(network: Network) -> list[int]:
    return [number for number, (n, _) in enumerate(network.ports) if network.is_shadow(n)]


def _leaf_ports(network: Network) -> dict[int, int]:
    """The ports of the shadow that rows of an input come to; by port, the number of that input."""
    return {
        number: network.operators[n].ports[p].node
        for number, (n, p) in enumerate(network.ports)
        if network.is_shadow(n) and network.operator_of(network.operators[n].ports[p].node) is None
    }


def _newest(context: StepContext) -> dict[int, int]:
    """The newest event time of each input of the shadow, by its port; those without rows are left out."""
    last = context.in_force.last
    assert last is not None, "there was a step"
    newest: dict[int, int] = {}
    ports = {leaf: port for port, leaf in _leaf_ports(context.plan.network).items()}
    for entry, seen in zip(context.layout.inputs, last.newest, strict=True):
        if entry.leaf in ports and seen is not None:
            newest[ports[entry.leaf]] = max(seen, newest.get(ports[entry.leaf], seen))
    return newest


def _dead(progress: ShadowProgress, context: StepContext) -> list[bool]:
    """Per input that had rows: whether all of them are dead."""
    purge = context.times.of_step(context.in_force.last, context.backlog(), ending=False).limits.purge
    thresholds = ((purge[port], newest) for port, newest in progress.newest.items())
    return [threshold is not None and threshold > newest for threshold, newest in thresholds]


def check_ends(proposal: MigrationProposal) -> None:
    """Refuse a parallel track that would never end, or whose end cannot be seen."""
    plan = proposal.beside.plan
    for port, leaf in _leaf_ports(plan.network).items():
        entry = plan.network.inputs[leaf]
        alias = entry.entry.alias.lstrip(":")
        if any(feed is not None for feed in entry.feeds):
            raise ConfigError(f"a parallel track does not end where {alias} is a sub-query; choose another strategy")
        if retention(plan.layout.sources, plan.layout.ports[port], plan.layout.blocks) is None:
            raise ConfigError(
                f"a parallel track never ends here: rows of {alias} are kept for ever, since it or a stream that it is "
                "joined with has no window or no lateness; choose another strategy"
            )
