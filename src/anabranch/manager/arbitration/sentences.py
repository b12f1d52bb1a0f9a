"""What events say about proposals that were taken, and about their outcomes."""

from __future__ import annotations

from typing import Any

from anabranch.manager.actions.sentence import Sentence
from anabranch.manager.arbitration.proposal import Proposal
from anabranch.manager.arbitration.record import Outcome, Record
from anabranch.observe.events import EventKind
from anabranch.observe.numbers import format_seconds

# What kinds of adaptation are called.
NAMES = {
    "spill": "spilling",
    "relocation": "relocation",
    "load_balancing": "load balancing",
    "skew_buffer": "skew buffer",
    "diffusion": "diffusion",
    "migration": "migration",
    "reallocation": "reallocation",
}


def decided_sentence(proposal: Proposal, trust: float, *, dry_run: bool) -> Sentence:
    """A proposal that was taken, with what is predicted of it; in a dry run what would have been done."""
    estimate = proposal.estimate
    predicted = []
    if estimate.per_batch > 0:
        predicted.append(
            f"{format_seconds(estimate.per_batch)} of {format_seconds(estimate.before)} less per batch, for about "
            f"{max(round(estimate.lasting), 1)} batches"
        )
    if estimate.once > 0:
        predicted.append(f"{format_seconds(estimate.once)} once, as memory is relieved")
    text = (
        f"{_where(proposal)}{' would be done' if dry_run else ''}: predicted are "
        f"{' and '.join(predicted) or 'no gain'}, for {format_seconds(estimate.costs)} of work, since {proposal.reason}"
    )
    details = {
        **_details(proposal),
        "predicted": {
            "before": estimate.before,
            "after": estimate.after,
            "lasting": estimate.lasting,
            "once": estimate.once,
            "costs": estimate.costs,
        },
        "trust": trust,
        "pressing": estimate.pressing,
        "dry run": dry_run,
    }
    return Sentence(EventKind.ADAPT, text, details)


def outcome_sentence(proposal: Proposal, step: int, outcome: Outcome, trust: float) -> Sentence:
    """What has come of an adaptation, beside what was predicted."""
    told = f"{format_seconds(max(outcome.measured, 0.0))} gained, {format_seconds(outcome.gain)} were predicted"
    if outcome.measured < 0:
        told = f"{format_seconds(-outcome.measured)} lost, a gain of {format_seconds(outcome.gain)} was predicted"
    details = {
        **_details(proposal),
        "decided": step,
        "predicted": {"per batch": outcome.per_batch, "gain": outcome.gain},
        "measured": {"per batch": outcome.measured_per_batch, "gain": outcome.measured},
        "trust": trust,
    }
    return Sentence(EventKind.OUTCOME, f"{_where(proposal)} after step {step}: {told}; trust {trust:.2f}", details)


def disturbed_sentence(record: Record) -> Sentence:
    """An adaptation whose outcome cannot be told, since there was another one of its processors."""
    return _untold(record, "what it has gained cannot be told, since a budget had to be kept")


def refused_sentence(record: Record) -> Sentence:
    """A wish that was not carried out."""
    return _untold(record, "it was not carried out")


def _untold(record: Record, told: str) -> Sentence:
    predicted = {"per batch": record.proposal.estimate.per_batch, "gain": record.proposal.estimate.gain}
    details = {**_details(record.proposal), "decided": record.step, "predicted": predicted, "measured": None}
    return Sentence(EventKind.OUTCOME, f"{_where(record.proposal)} after step {record.step}: {told}", details)


def _where(proposal: Proposal) -> str:
    numbers = sorted(proposal.processors)
    named = ", ".join(map(str, numbers[:8])) + (f" and {len(numbers) - 8} more" if len(numbers) > 8 else "")
    return f"{NAMES[proposal.kind]} on processor{'s' if len(numbers) > 1 else ''} {named}"


def _details(proposal: Proposal) -> dict[str, Any]:
    return {
        "adaptation": proposal.kind,
        "processors": sorted(proposal.processors),
        "actions": [type(action).__name__ for action in proposal.actions],
    }
