"""The attempt of a processor at one round of one step, as one value that all its parts are given.

An attempt has a name of its own, which its files and its report begin with, so repeated and speculative attempts never
meet.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from anabranch.kernel.operator import Settled
from anabranch.processor.outlets import Outlets
from anabranch.processor.parked import round_prefix
from anabranch.processor.run_files import RunFiles
from anabranch.processor.tasks import OperatorPlan, ProcessorPlan, RoundPlan, StepTask
from anabranch.state.groups import GroupSet
from anabranch.state.report import Report
from anabranch.state.runs.run import FileCuts


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at round `number` of a step: its plan and task, and where it reads, writes and counts."""

    plan: ProcessorPlan
    task: StepTask
    number: int
    name: str
    files: RunFiles
    cuts: FileCuts
    report: Report
    outlets: Outlets

    @property
    def round(self) -> RoundPlan:
        """The operators of the round, and where arriving rows go."""
        return self.plan.rounds[self.number]

    @property
    def is_last_round(self) -> bool:
        """Whether no exchange follows."""
        return self.number == len(self.plan.rounds) - 1

    @property
    def no_groups(self) -> GroupSet:
        """The empty set of partition groups."""
        return GroupSet(self.plan.groups, 0)

    def is_grouping(self, operator: OperatorPlan) -> bool:
        """Whether an operator groups."""
        return operator.number in self.plan.groupings

    def settled(self, operator: OperatorPlan) -> Settled:
        """Between which event times an operator answers in this step; unbounded if it does not group."""
        groupings = self.plan.groupings
        return self.task.settled[groupings.index(operator.number)] if operator.number in groupings else Settled()


def new_attempt(plan: ProcessorPlan, task: StepTask, number: int) -> Attempt:
    """Name an attempt at a round; nothing is read or written yet."""
    name = f"{round_prefix(task, number)}{uuid.uuid4().hex[:8]}"
    files = RunFiles(task.state, name, task.processor, plan.stored, plan.groups)
    report = Report.empty(task.processor, len(plan.aliases), plan.operators, len(plan.written), number)
    outlets = Outlets(plan, task, report, name[-8:])
    return Attempt(plan, task, number, name, files, files.cuts, report, outlets)
