"""Opening a run on a checkpoint: the one place where queries, plan, checkpoint and sinks are put together.

A run that starts or changes its queries, one that was stopped and is cleaned up without its program, and tests all open
it here. The checkpoint has been taken. Nothing is written before everything has been found to fit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from anabranch.checkpoint.directory import Checkpoint
from anabranch.checkpoint.queries import requests_after
from anabranch.plan.network import Request
from anabranch.plan.query import ContinuousQuery
from anabranch.runtime.compile.document import describe_plan
from anabranch.runtime.compile.prepared import Plan
from anabranch.runtime.driver.context import RunParts, step_context
from anabranch.runtime.driver.step_runner import StepRunner
from anabranch.runtime.sinks.answers import Answers, Target
from anabranch.runtime.sinks.leftovers import take_back_output
from anabranch.state.store import Json

# Requests, and the names of the streams that were read before, as a plan that Spark has analysed.
Prepare = Callable[[Sequence[Request], Sequence[str]], Plan]


@dataclass(frozen=True, slots=True)
class Question:
    """A query that is to be answered: bound, and as its checkpoint describes it.

    `target` says where the answer goes; it is asked when it is known that the query fits, with the name that the query
    has in the run.
    """

    query: ContinuousQuery
    described: Json
    target: Callable[[str], Target]


@dataclass(frozen=True, slots=True)
class OpenedRun:
    """A run whose last step is in force: what makes its steps, its plan, and where answers go, by query."""

    runner: StepRunner
    plan: Plan
    targets: dict[str, Target]


def put_together(
    checkpoint: Checkpoint, questions: Mapping[str, Question], prepare: Prepare, removed: Collection[str] = ()
) -> tuple[Plan, Json]:
    """The plan for these queries on a checkpoint, and its document; refused if they do not fit what it remembers.

    Queries that the checkpoint answers are among them, or `removed`.
    """
    asked = [Request(name, question.query) for name, question in questions.items()]
    described = {name: question.described for name, question in questions.items()}
    requests = requests_after(checkpoint, asked, described, removed)
    read = checkpoint.plan(checkpoint.plan_number)["read"] if checkpoint.last_step() is not None else []
    plan = prepare(requests, [name for name, _, _ in read])
    described = {request.name: described[was.name] for request, was in zip(requests, asked, strict=True)}
    return plan, describe_plan(plan, described)


def open_run(run: RunParts, plan: Plan, document: Json, questions: Mapping[str, Question]) -> OpenedRun:
    """Put a plan in force on a checkpoint, and go on from its last step."""
    checkpoint = run.checkpoint
    checkpoint.claim()
    take_back_output(checkpoint)
    checkpoint.adopt(document)
    pairs = zip(plan.requests, questions.values(), strict=True)
    targets = {request.name: question.target(request.name) for request, question in pairs}
    context = step_context(run, plan, Answers(plan.layout, list(targets.values())))
    context.in_force.resume(context.adaptation.relocator, context.shape.families, run.events)
    return OpenedRun(StepRunner(context), plan, targets)
