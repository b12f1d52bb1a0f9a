"""The moment when `demo migration` changes the order of joins, and the effect of that, read off the batches.

A join below the answer has turned if, for several batches in a row, it makes many times the rows that it made at first
and more rows than there are answers. Several, so that a single burst decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median

from anabranch.observe.story import BatchSummary

FIRST_BATCHES = 4
BATCHES_IN_A_ROW = 3
GROWTH = 5


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the run, with medians per batch; None where there was no batch."""

    name: str
    batches: int
    intermediate: float | None
    answers: float | None
    seconds: float | None


def reason_to_migrate(batches: Sequence[BatchSummary]) -> str | None:
    """A sentence on the join that has turned; None as long as none has."""
    if len(batches) < FIRST_BATCHES + BATCHES_IN_A_ROW:
        return None
    last = batches[-1]
    recent = [batches[n] for n in range(-BATCHES_IN_A_ROW, 0)]
    worst = max(_made(last), key=lambda name: _made(last)[name], default="")
    first = median(_made(batch).get(worst, 0) for batch in islice(batches, FIRST_BATCHES))
    bounds = [max(GROWTH * first, batch.combinations) for batch in recent]
    if any(_made(batch).get(worst, 0) <= bound for batch, bound in zip(recent, bounds, strict=True)):
        return None
    rows = median(_made(batch).get(worst, 0) for batch in recent)
    return (
        f"the {worst} makes {rows:,.0f} rows per batch, {rows / max(first, 1):.0f} times as many as at first, for "
        f"{median(batch.combinations for batch in recent):,.0f} answers per batch"
    )


def parts_of_run(batches: Sequence[BatchSummary], turn: int) -> tuple[Part, ...]:
    """The parts of a run: before batch `turn`, after it, while the query migrates, and after that. The operators at
    work show where the last two begin."""
    old = set(_made(batches[0])) if batches else set()
    parts: dict[str, list[BatchSummary]] = {
        "before the turn": [],
        "after the turn": [],
        "while it migrates": [],
        "after the migration": [],
    }
    for batch in batches:
        names = set(_made(batch))
        if names == old:
            parts["before the turn" if batch.number < turn else "after the turn"].append(batch)
        else:
            parts["while it migrates" if names > old else "after the migration"].append(batch)
    return tuple(_part(name, part) for name, part in parts.items())


def _part(name: str, batches: Sequence[BatchSummary]) -> Part:
    if not batches:
        return Part(name, 0, None, None, None)
    return Part(
        name,
        len(batches),
        median(batch.intermediate for batch in batches),
        median(batch.combinations for batch in batches),
        median(batch.seconds for batch in batches),
    )


def _made(batch: BatchSummary) -> dict[str, int]:
    """Rows that each operator made, by its name."""
    return {operator.name: operator.results for operator in batch.operators}
