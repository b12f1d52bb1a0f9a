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
        lasting = max(round(estimate.lasting), 1)
        predicted.append(
            f"save {format_seconds(estimate.per_batch)} of {format_seconds(estimate.before)} per batch, for "
            f"{f'about {lasting} batches' if lasting > 1 else 'a batch'}"
        )
    if estimate.pressing:
        predicted.append("keep to the memory that there is")
    elif estimate.once > 0:
        predicted.append("make memory last longer")
    text = (
        f"{_where(proposal)}{' would be done' if dry_run else ''}: predicted to {' and to '.join(predicted)}, for "
        f"{format_seconds(estimate.costs)} of work, since {proposal.reason}"
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
    details = {
        **_details(proposal),
        "decided": step,
        "predicted": {"per batch": outcome.per_batch, "gain": outcome.gain},
        "measured": {"per batch": outcome.measured_per_batch, "gain": outcome.measured},
        "trust": trust,
    }
    text = f"{_where(proposal)} after step {step}: {_told(outcome)}; trust {trust:.2f}"
    return Sentence(EventKind.OUTCOME, text, details)


def refused_sentence(record: Record) -> Sentence:
    """A wish that was not carried out."""
    predicted = {"per batch": record.proposal.estimate.per_batch, "gain": record.proposal.estimate.gain}
    details = {**_details(record.proposal), "decided": record.step, "predicted": predicted, "measured": None}
    text = f"{_where(record.proposal)} after step {record.step}: it was not carried out"
    return Sentence(EventKind.OUTCOME, text, details)


def _told(outcome: Outcome) -> str:
    if not outcome.per_batch:
        return "memory was kept to" if outcome.measured >= outcome.gain else "memory was not kept to"
    if outcome.measured < 0:
        return f"{format_seconds(-outcome.measured)} lost, a gain of {format_seconds(outcome.gain)} was predicted"
    return f"{format_seconds(outcome.measured)} gained, {format_seconds(outcome.gain)} were predicted"


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
