"""One step: from the rows of a batch to a committed step.

Order: processors write runs and reports -> the sink writes under the batch id -> rejected and late rows are
published -> the step is committed -> Spark commits the batch. A crash anywhere before the commit leaves the
previous step in force and the batch is computed again; one after it makes Spark repeat a batch that is skipped.

All processors are done, and what they report adds up, before any sink is given an answer.
"""

from __future__ import annotations

import time

from pyspark.sql import DataFrame, SparkSession

from anabranch.checkpoint.step import StepKind
from anabranch.runtime.driver.step.commit import commit
from anabranch.runtime.driver.step.context import StepContext
from anabranch.runtime.driver.step.orders import Orders, compose, tasks
from anabranch.runtime.exchange.processors import Reports
from anabranch.state.failpoints import failpoint
from anabranch.state.report import combine


def take_step(context: StepContext, kind: StepKind, packed: DataFrame, sink_session: SparkSession) -> None:
    """Make one step, with a batch of Spark's or without one; sinks get their answers in `sink_session`."""
    started = time.perf_counter()
    orders = compose(context, kind)
    distribution = context.in_force.distribution
    context.processors.route(distribution.routings, distribution.processors)
    context.run.checkpoint.prepare_step(orders.number)
    failpoint(f"{kind.name}.before_sink")
    reports = _deliver(context, orders, packed, sink_session)
    failpoint(f"{kind.name}.after_sink")
    commit(context, orders, reports, started)
    context.counters.took(time.perf_counter() - started)


def _deliver(context: StepContext, orders: Orders, packed: DataFrame, sink_session: SparkSession) -> Reports:
    """Run the processors, all of them to their end, and give the sinks their results; the reports of the step."""
    if not orders.gives_answers:
        nowhere = (None,) * len(context.layout.outlets)
        return context.processors.run(packed, tasks(context, orders, nowhere))
    folders = context.answers.folders(orders.directory, orders.sink_id)
    reports = context.processors.run(packed, tasks(context, orders, folders))
    failpoint("step.processed")
    context.run.checkpoint.check_epoch()  # before anybody sees what another run may have given already
    combined = combine((report, manifest) for _, report, manifest in reports.values())
    context.answers.deliver([report for report, _ in combined], orders.sink_id, folders, sink_session)
    return reports
