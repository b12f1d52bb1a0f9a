"""Replace a running query by another one that can go on with its state (docs/migration.md, "Changing a query").

A replacement is made as a migration is (`migration`): the new query is a shadow beside the old one, filled from the
state of the run, and takes its place between two batches. Up to the change every answer is the old query's; afterwards
every answer is the new one's, and has a row that came later. This module plans it: which state goes where, and why a
change is refused.

The new query may lack rows after the change, or have rows that it would not have taken itself. Then it is not the same
as a query that was answered all the time, so its state gets an identity of its own (`Request.lacking`), and no other
query goes on with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from anabranch.checkpoint.carry_over import newest_under, with_sources_of
from anabranch.checkpoint.queries import answered_queries
from anabranch.errors import ConfigError
from anabranch.manager.shadows.changing import PlannedChange, planned_change
from anabranch.manager.shadows.filling import rows_at
from anabranch.plan.join_order import shape_of
from anabranch.plan.network import Request
from anabranch.plan.query import ContinuousQuery
from anabranch.plan.sharing.leaf_state import Fit, LeafState, best_fit, leaf_states
from anabranch.plan.sharing.query_change import ChangePreview
from anabranch.plan.watermark import Thresholds, thresholds
from anabranch.runtime.compile.prepared import PreparedPlan
from anabranch.runtime.driver.changes.migration import MigrationProposal
from anabranch.runtime.driver.open_run import Prepare, Proposal, Question, Shadow, propose
from anabranch.runtime.driver.step.context import StepContext

# Analyses plans that a plan's streaming query can serve, if it can.
PrepareFor = Callable[[PreparedPlan], Prepare]


@dataclass(frozen=True, slots=True)
class ChangeProposal:
    """A planned change: its preview for the user, and the migration that makes it; None if it is refused."""

    preview: ChangePreview
    migration: MigrationProposal | None


def propose_change(
    context: StepContext, questions: Mapping[str, Question], prepare: PrepareFor, name: str, changed: Question
) -> ChangeProposal:
    """Plan to replace a query by another one."""
    checkpoint, last = context.run.checkpoint, context.in_force.last
    if last is None or name not in answered_queries(checkpoint, last):
        raise ConfigError(
            f"the query {name!r} has not seen a batch yet, so it has no state to go on with; wait for its first batch, "
            "or add() the other one and then remove() it"
        )
    current = next(request for request in context.plan.requests if request.name == name)
    preview = ChangePreview(name, current.query.text, changed.query.text)
    refused = [] if questions[name].described != changed.described else ["this is the query that is answered already"]
    refused += [*_not_joins("the old query", current.query), *_not_joins("the new query", changed.query)]
    if refused:
        return ChangeProposal(replace(preview, refused=tuple(refused)), None)
    track = checkpoint.next_plan
    beside, planned = _beside(context, questions, prepare, current, Shadow(name, changed.query, track))
    lacking = current.lacking
    if not planned.is_as_if_new:
        lacking = track
        shadow = Shadow(name, changed.query, track, lacking)
        beside, planned = _beside(context, questions, prepare, current, shadow)
    preview = replace(
        preview,
        states=planned.states,
        forgotten=tuple(_forgotten(current.query, changed.query)),
        refused=planned.refused,
        reads_anew=beside.plan.packing is not context.plan.packing,
    )
    if planned.refused:
        return ChangeProposal(preview, None)
    moved = {**questions, name: replace(changed, track=track, lacking=lacking)}
    alone = propose(checkpoint, moved, prepare(beside.plan), changed=name)
    before, after = shape_of(current.query), shape_of(changed.query)
    return ChangeProposal(preview, MigrationProposal(name, before, after, beside, alone, planned.filling))


def _not_joins(which: str, query: ContinuousQuery) -> Iterator[str]:
    """The reasons why a query cannot be changed; none for a plain join."""
    if query.united:
        yield f"{which} is a UNION ALL; remove() it and add() the new one, which answers what arrives from then on"
    elif query.grouping is not None:
        yield (
            f"{which} groups (GROUP BY, DISTINCT or an operator), and groups that were answered cannot be answered "
            "otherwise; remove() it and add() the new one"
        )
    elif any(entry.is_derived or any(fed.block for fed in entry.sources) for entry in query.inputs):
        yield f"{which} has a sub-query in FROM; remove() it and add() the new one"
    elif query.logical is None:
        yield f"{which} does not join anything"


def _beside(
    context: StepContext, questions: Mapping[str, Question], prepare: PrepareFor, current: Request, shadow: Shadow
) -> tuple[Proposal, PlannedChange]:
    """The plan with the changed query as a shadow, and what becomes of the old query's state."""
    checkpoint = context.run.checkpoint
    beside = propose(checkpoint, questions, prepare(context.plan), shadow=shadow)
    network, layout, columns = beside.plan.network, beside.plan.layout, beside.plan.columns
    hashed = [
        tuple((key, t.simpleString()) for key, t in zip(port.keys, columns.key_types[n], strict=False))
        for n, operator in enumerate(network.operators)
        for port in operator.ports
    ]
    leaves = leaf_states(network, hashed, shadow=True)
    there = leaf_states(network, hashed, shadow=False)
    fits = {leaf.port: best_fit(leaf, there, current.rows_since) for leaf in leaves}
    document = with_sources_of(beside.document, _followed(beside, leaves, fits))
    beside = replace(beside, document=document)
    fallible = frozenset(
        text
        for entry in layout.inputs
        if network.inputs[entry.leaf].shadow
        for text, judged in [
            *((condition.text, condition) for condition in entry.conditions),
            *zip(entry.input.key, entry.keys, strict=True),
        ]
        if judged.can_fail
    )
    limits = _limits(context, beside)
    return beside, planned_change(network, leaves, fits, limits, _rows(context, beside), fallible)


def _followed(beside: Proposal, leaves: list[LeafState], fits: Mapping[int, Fit | None]) -> dict[int, int]:
    """By number of a source of the shadow: the source whose times and counts it goes on with."""
    sources: dict[int, list[int]] = {}
    for number, entry in enumerate(beside.plan.layout.inputs):
        sources.setdefault(entry.port, []).append(number)
    pairs = ((leaf.port, fit.of.port) for leaf in leaves if (fit := fits[leaf.port]) is not None)
    return {new: old for port, of in pairs for new, old in zip(sources[port], sources[of], strict=True)}


def _limits(context: StepContext, beside: Proposal) -> Thresholds:
    """The thresholds at all ports by the present watermarks. Debts, which only keep more rows, are left out."""
    checkpoint, last, layout = context.run.checkpoint, context.in_force.last, beside.plan.layout
    assert last is not None, "there was a step"
    newest = newest_under(last, checkpoint.plan(checkpoint.plan_number), beside.document)
    return thresholds(layout.sources, layout.ports, newest, (None,) * layout.groupings, layout.blocks)


def _rows(context: StepContext, beside: Proposal) -> dict[int, int]:
    """The number of stored rows per port of a plan, for ports that the run has already."""
    checkpoint, owners = context.run.checkpoint, context.shape.owners
    now = [entry["identity"] for entry in checkpoint.plan(checkpoint.plan_number)["ports"]]
    number = {entry["identity"]: n for n, entry in enumerate(beside.document["ports"])}
    return {
        number[identity]: sum(
            piece.rows for manifest in context.manifests for run in rows_at(manifest, port, owners) for piece in run
        )
        for port, identity in enumerate(now)
        if identity in number
    }


def _forgotten(before: ContinuousQuery, after: ContinuousQuery) -> Iterator[str]:
    """The aliases of streams that the new query does not read any more."""
    left = Counter(entry.stream for entry in after.inputs)
    for entry in before.inputs:
        if left[entry.stream] == 0:
            yield entry.alias
        else:
            left[entry.stream] -= 1
