"""The end of a step: let policies decide, commit, and write events.

The decisions of policies are committed with the step that they looked at. Events are written only after the commit.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from anabranch.checkpoint.step import Delivery, End
from anabranch.errors import InconsistentStepError
from anabranch.manager.actions.change import Change
from anabranch.manager.actions.clean_up_groups import clean_up_sentences
from anabranch.manager.diffusable import diffused_groups, names_in
from anabranch.manager.memory.debt import backlog
from anabranch.manager.memory.manager_use import ManagerUse, known_bytes
from anabranch.manager.runtime_monitor import Moment
from anabranch.observe.events import EventKind
from anabranch.runtime.driver.step.context import StepContext
from anabranch.runtime.driver.step.orders import Orders
from anabranch.runtime.driver.step.result import (
    NO_BATCH,
    StepResult,
    add_totals,
    latest,
    name_reports,
    publish,
    unpublish,
)
from anabranch.runtime.exchange.processors import Reports
from anabranch.state.failpoints import failpoint
from anabranch.state.groups import union_by_operator
from anabranch.state.manifest import Manifest
from anabranch.state.partition import partition_info
from anabranch.state.report import Report, combine


def commit(context: StepContext, orders: Orders, named: Reports, started: float) -> None:
    """Commit a step whose answers have been delivered, and write its events. It `started` at that time."""
    run, in_force, last = context.run, context.in_force, context.in_force.last
    combined = combine((report, manifest) for _, report, manifest in named.values())
    reports, manifests = [report for report, _ in combined], tuple(manifest for _, manifest in combined)
    output_rows = dict(context.answers.rows) if orders.gives_answers else {}
    if orders.gives_answers:
        _publish(context, orders, reports)
    elif any(any(report.results) for report in reports):
        raise InconsistentStepError(f"step {orders.number} gave answers, although nothing has arrived; it is not kept")
    newest = latest([last.newest if last else (None,) * len(context.layout.inputs), *(r.newest for r in reports)])
    begun = time.thread_time()
    change = _adapt(context, orders, reports, manifests, newest)
    deciding = time.thread_time() - begun
    after = change.distribution
    for p in change.touched:
        reports[p].count_state(after.manifests[p])
    adapted = {p: (reports[p], after.manifests[p]) for p in change.touched}
    step = run.checkpoint.next_step(
        last,
        batch_id=orders.batch_id,
        processors=after.processors,
        routings=after.routings,
        reports=name_reports(orders.number, named, adapted, orders.directory),
        newest=tuple(newest),
        totals=add_totals(last.totals if last else {}, reports, output_rows),
        plan=run.checkpoint.plan_number,
        settled=orders.times.limits.settled,
        extra=(last.extra if last else 0) + (orders.gives_answers and not orders.has_batch),
        clean_up=change.clean_up,
        hold=change.hold,
        moving=after.moving,
        diffusions=after.diffusions,
        initial=in_force.initial,
        families=in_force.families,
        apart=in_force.apart,
        parted=in_force.parted,
    )
    failpoint(f"{orders.kind.name}.before_commit")
    run.checkpoint.commit(step)
    failpoint(f"{orders.kind.name}.after_commit")
    before = context.manifests
    in_force.advance(step, after)
    run.migrations.extend(change.migrations)
    run.reallocations.extend(change.reallocations)
    context.counters.add(reports, has_batch=orders.has_batch)
    _write_events(context, orders, change, reports, before, output_rows)
    seconds = time.perf_counter() - started
    if orders.has_batch:
        run.round_cost.note(max(context.layout.rounds) + 1, seconds, max(one.busy_ms for one in reports) / 1000)
    _keep_result(context, orders, reports, output_rows, (seconds, deciding))


def _publish(context: StepContext, orders: Orders, reports: list[Report]) -> None:
    """Put rejected and late rows where the user wants them."""
    settings, tag = context.run.settings, context.run.checkpoint.tag
    if not context.counters.steps:
        unpublish(settings, tag, orders.sink_id)
    publish(reports, settings, tag, orders.sink_id, orders.directory)


def _adapt(
    context: StepContext,
    orders: Orders,
    reports: list[Report],
    manifests: tuple[Manifest, ...],
    newest: Sequence[int | None],
) -> Change:
    """Show policies a snapshot after the step, and apply the actions that they decide on."""
    settled = orders.times.limits.settled
    moment = Moment(
        step=orders.number,
        since=context.times.since(newest, settled, backlog(context.shape, manifests)),
        settled=settled,
        cleaned_up=orders.clean_up,
        arrived=sum(sum(report.received) for report in reports),
        usual=context.counters.usual_rows if orders.has_batch else 0.0,
        awaiting=context.in_force.awaiting,
        orders=context.run.orders.latest,
        parted=frozenset(context.in_force.parted),
        round_seconds=context.run.round_cost.seconds,
        reallocating=frozenset(action.name for action in list(context.run.reallocations)),
    )
    distribution = replace(context.in_force.distribution, manifests=manifests)
    change = context.decision_maker.adapt(moment, distribution, reports)
    if context.feeding is not None:
        change.hold = union_by_operator(change.hold, context.feeding.look(change.distribution))
    return change


def _write_events(
    context: StepContext,
    orders: Orders,
    change: Change,
    reports: Sequence[Report],
    before: Sequence[Manifest],
    output_rows: dict[str, int],
) -> None:
    """Write the events of a step; `before` are the manifests that it opened."""
    events = context.run.events
    rows = _total(output_rows)
    answered = rows if isinstance(orders.kind, Delivery) else None
    cleaned_up = clean_up_sentences(orders.clean_up, answered, reports, before, context.shape)
    for kind, text, details in (*change.sentences, *cleaned_up):
        events.add(kind, text, **details)
    for reason, use in context.shortage.messages(context.memory_uses(), change.pushed):
        events.add(EventKind.MEMORY, reason, **use.details())
    if isinstance(orders.kind, End):
        shown = f"{rows:,} rows of the answer were waiting for it" if rows >= 0 else "all is answered"
        events.add(EventKind.END, f"the input has ended: {shown}", results=rows)


def _keep_result(
    context: StepContext,
    orders: Orders,
    reports: list[Report],
    output_rows: dict[str, int],
    took: tuple[float, float],
) -> None:
    """Keep the result of a step for progress; the statistics of partition groups only for the last step.

    The step `took` so many seconds, and deciding on adaptations so many of CPU time.
    """
    run, step = context.run, context.in_force.last
    seconds, deciding = took
    reading = context.processors.reading
    memory_bytes = context.decision_maker.cuts.nbytes + known_bytes(context.manifests)
    results = run.results
    assert step is not None, "a step was committed"
    if results:
        results.append(results.pop().without_groups())
    shape = context.shape
    groups = tuple(
        {
            operator.name: partition_info(manifest.operators[operator.number], shape.groups)
            for operator in shape.operators
        }
        for manifest in context.manifests
    )
    results.append(
        StepResult(
            orders.batch_id if orders.has_batch else NO_BATCH,
            orders.number,
            tuple(reports),
            output_rows,
            context.answers.plan.aliases,
            tuple(operator.name for operator in shape.operators),
            step.newest,
            step.totals,
            context.memory_uses(),
            groups,
            diffused_groups(step.routings, step.diffusions, names_in(shape), step.parted, run.round_cost.seconds),
            seconds,
            run.clock(),
            ManagerUse(reading.seconds + deciding, reading.bytes, memory_bytes),
            reading.exchanged,
        )
    )


def _total(output_rows: dict[str, int]) -> int:
    """The rows of all answers; -1 if nobody counted those of one."""
    return -1 if -1 in output_rows.values() else sum(output_rows.values())
