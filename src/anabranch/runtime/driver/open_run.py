"""Open a run on a checkpoint: the one place where queries, plan, checkpoint and sinks are put together.

Runs that start, runs that change their queries, stopped runs that are cleaned up without their program, and tests are
all opened here. The caller holds the checkpoint's lock. Nothing is written before everything has been checked to fit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from anabranch.checkpoint.carry_over import known_allocation
from anabranch.checkpoint.folder.directory import Checkpoint
from anabranch.checkpoint.queries import former_queries, requests_after
from anabranch.plan.allocation import KnownAllocation
from anabranch.plan.network import Request
from anabranch.plan.query import ContinuousQuery
from anabranch.runtime.compile.document import plan_document
from anabranch.runtime.compile.prepared import PreparedPlan
from anabranch.runtime.driver.step.context import RunParts, StepContext, step_context
from anabranch.runtime.driver.step_runner import StepRunner
from anabranch.runtime.sinks.answers import Answers, Target
from anabranch.runtime.sinks.leftovers import take_back_output
from anabranch.state.store import Json

# Makes a plan that Spark has analysed from requests, the names of the streams that were read before, and where the
# operators of plans before are.
Prepare = Callable[[Sequence[Request], Sequence[str], KnownAllocation | None], PreparedPlan]


@dataclass(frozen=True, slots=True)
class Question:
    """A query that is to be answered: bound, and as its checkpoint describes it.

    `target` makes the target of its answer from the name that the query has in the run. It is called only after the
    query has been checked to fit. A query that migrates gets a new `track`; any other keeps its track and its order of
    joins. A changed query may be `lacking` rows from before (`plan/network`).
    """

    query: ContinuousQuery
    described: Json
    target: Callable[[str], Target]
    track: int = 0
    lacking: int = 0


@dataclass(frozen=True, slots=True)
class Shadow:
    """A query that is to run beside itself, in another order of its joins or changed; `track` is that of its new
    operators. If `lacking` is None, it lacks what the query lacked before."""

    name: str
    query: ContinuousQuery
    track: int
    lacking: int | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """Queries that fit a checkpoint: their plan and its document. `begun` says whether the checkpoint has a step."""

    plan: PreparedPlan
    document: Json
    questions: Mapping[str, Question]
    begun: bool


@dataclass(frozen=True, slots=True)
class OpenedRun:
    """A run whose last step is in force: the runner of its steps, its plan, and the target of each query."""

    runner: StepRunner
    plan: PreparedPlan
    targets: dict[str, Target]


def propose(
    checkpoint: Checkpoint,
    questions: Mapping[str, Question],
    prepare: Prepare,
    removed: Collection[str] = (),
    shadow: Shadow | None = None,
    changed: str | None = None,
) -> Proposal:
    """Put queries together on a checkpoint; refused if they do not fit it.

    Every query that the checkpoint answers must be among the questions or `removed`. One may be `changed`.
    """
    begun = checkpoint.last_step() is not None
    proposed = [
        Request(name, question.query, track=question.track, lacking=question.lacking)
        for name, question in questions.items()
    ]
    described = {name: question.described for name, question in questions.items()}
    requests = requests_after(checkpoint, proposed, described, removed, changed)
    former = former_queries(checkpoint, changed, "" if changed is None else questions[changed].query.text)
    read = checkpoint.plan(checkpoint.plan_number)["read"] if begun else []
    beside = [] if shadow is None else [_request(shadow, requests)]
    plan = prepare([*requests, *beside], [name for name, _, _ in read], known_allocation(checkpoint))
    described = {request.name: described[before.name] for request, before in zip(requests, proposed, strict=True)}
    former = {request.name: former[request.name] for request in requests if request.name in former}
    return Proposal(plan, plan_document(plan, described, former), questions, begun)


def _request(shadow: Shadow, requests: Sequence[Request]) -> Request:
    """The request of a shadow. It began when its query did, since its operators will hold what the query's hold."""
    own = next(request for request in requests if request.name == shadow.name)
    lacking = own.lacking if shadow.lacking is None else shadow.lacking
    return Request(f"{shadow.name}, arranged anew", shadow.query, own.since, shadow.track, own.name, lacking)


def open_run(run: RunParts, proposal: Proposal) -> OpenedRun:
    """Put a plan in force on a checkpoint, and go on from its last step."""
    run.checkpoint.claim()
    take_back_output(run.checkpoint)
    run.checkpoint.adopt(proposal.document)
    context, targets = resumed(run, proposal)
    return OpenedRun(StepRunner(context), proposal.plan, targets)


def switch(opened: OpenedRun, proposal: Proposal) -> OpenedRun | None:
    """Put another plan in force between two batches, without a restart of Spark's query.

    None, with nothing done, if the first step was made since the proposal: a query that is added to a run which has
    begun shares no state with others, so its plan would be another one.
    """
    with opened.runner.between_batches() as context:
        if proposal.begun != (context.in_force.last is not None):
            return None
        with put_in_force(opened.runner, proposal.document):
            after, targets = resumed(context.run, proposal, context)
        opened.runner.use(after)
    return OpenedRun(opened.runner, proposal.plan, targets)


@contextmanager
def put_in_force(runner: StepRunner, document: Json) -> Iterator[None]:
    """Put a plan in force that Spark's query can serve. If the block fails, the plan before it is in force again.

    If a step was committed under the new plan already, the run ends instead; the next program goes on from that step.
    """
    checkpoint = runner.context.run.checkpoint
    number = checkpoint.plan_number
    checkpoint.adopt(document, same_logs=True)
    try:
        yield
    except BaseException as error:
        last = checkpoint.last_step()
        if last is None or last.plan <= number:
            checkpoint.retreat(number)
        else:
            runner.break_off(error)
        raise


def resumed(
    run: RunParts, proposal: Proposal, before: StepContext | None = None
) -> tuple[StepContext, dict[str, Target]]:
    """The context of steps under a plan that was adopted, with the last step in force; and the target of each query.

    In a run that goes on, the new context replaces the one `before`.
    """
    plan = proposal.plan
    answered = [request for request in plan.requests if not request.shadow]
    pairs = zip(answered, proposal.questions.values(), strict=True)
    targets = {request.name: question.target(request.name) for request, question in pairs}
    context = step_context(run, plan, Answers(plan.layout, list(targets.values())))
    context.in_force.resume(context.decision_maker.connections, run.events, continues=plan.continues)
    if before is not None:
        context.in_force.go_on_from(before.in_force)
    return context, targets
