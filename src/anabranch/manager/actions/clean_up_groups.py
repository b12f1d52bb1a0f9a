"""Clean up spilled partition groups in the next step: deliver the results that spilling has postponed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.manager.actions.numbers import to_python_numbers
from anabranch.manager.actions.sentence import Sentence
from anabranch.observe.events import EventKind
from anabranch.observe.numbers import format_bytes, format_quantity
from anabranch.state.generation import spilled_groups
from anabranch.state.groups import GroupSet
from anabranch.state.manifest import Manifest
from anabranch.state.report import Report
from anabranch.state.spill import CleanUp, spilled_bytes

if TYPE_CHECKING:
    from anabranch.manager.actions.change import Change, Context
    from anabranch.manager.plan_shape import PlanShape


@dataclass(frozen=True, slots=True)
class CleanUpGroups:
    """Join the generations of some partition groups of an operator; those in `back` are active afterwards."""

    processor: int
    operator: int
    groups: tuple[int, ...]
    back: tuple[int, ...]
    reason: str

    def __post_init__(self) -> None:
        """Refuse what is no number."""
        to_python_numbers(self, "processor", "operator", lists=("groups", "back"))

    def problem(self, change: Change, context: Context) -> str | None:
        """Why this makes no sense; None if it does."""
        plan = context.plan
        possible = (
            0 <= self.operator < len(plan.operators)
            and plan.operators[self.operator].spillable
            and plan.has_groups(self.groups)
            and set(self.back) <= set(self.groups)
        )
        return None if possible else "it is not there or cannot be cleaned up"

    def must_wait(self, change: Change, taken: set[int]) -> bool:
        """Never: clean-up is done by the processor that has the groups when the next step begins."""
        return False

    def apply(self, change: Change, context: Context) -> None:
        """Note the groups for the next step, with those of other processors."""
        change.clean_up = merged(change.clean_up, [self], context.plan.groups)


def merged(clean_up: Mapping[int, CleanUp], actions: Sequence[CleanUpGroups], groups: int) -> dict[int, CleanUp]:
    """Add actions to what a step cleans up, by operator; of several reasons the first is kept."""
    after = dict(clean_up)
    for action in actions:
        own, back = GroupSet.of(groups, action.groups), GroupSet.of(groups, action.back)
        before = after.get(action.operator)
        if before is None:
            after[action.operator] = CleanUp(own, back, action.reason)
        else:
            after[action.operator] = CleanUp(before.groups | own, before.back | back, before.reason)
    return after


def clean_up_sentences(
    done: Mapping[int, CleanUp],
    answered: int | None,
    reports: Sequence[Report],
    before: Sequence[Manifest],
    plan: PlanShape,
) -> Iterator[Sentence]:
    """One sentence per operator and processor on what a step has cleaned up; `before` are the manifests that it opened.

    `answered` is the number of rows of answers if the step did nothing but clean up, and -1 if they were not counted.
    It is None if the step did more.
    """
    for number, cleaning in done.items():
        operator = plan.operators[number]
        for report, manifest in zip(reports, before, strict=True):
            state, count = manifest.operators[number], plan.groups
            own = (spilled_groups(state.generations) or GroupSet(count, 0)) & cleaning.groups
            if not own:
                continue
            sizes = spilled_bytes(state.generations, count) + state.statistics.dense(count).bytes
            read, back = int(sizes[own.numbers()].sum()), len(own & cleaning.back)
            text = (
                f"{operator.name}: {report.owed[number]:,} postponed results of {format_quantity(len(own), 'group')} "
                f"of processor {report.processor} ({format_bytes(read)}){f', {back} active again' if back else ''}, "
                f"since {cleaning.reason}"
            )
            details = {
                "processor": report.processor,
                "operator": operator.name,
                "groups": own.numbers().tolist(),
                "results": report.owed[number],
                "bytes": read,
                "answered": answered,
            }
            yield Sentence(EventKind.CLEAN_UP, text, details)
            answered = None if answered is None else 0
