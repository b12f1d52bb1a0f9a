"""Replace a query of a run that goes on: `Run.change` and `Run.preview`.

The mechanism is `runtime/driver/changes/replacement`. This module checks the new query and whether the sink can take
its answer, makes the change between two batches, and writes the event. If Spark's query has to read more than it does,
it is stopped and started once (`reading_anew`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import DataFrame

from anabranch.errors import ConfigError, did_you_mean
from anabranch.manager.tiers.queries import check_stays
from anabranch.observe.events import EventKind, EventLog
from anabranch.plan.sharing.query_change import ChangePreview
from anabranch.runtime.compile.prepared import PreparedPlan
from anabranch.runtime.driver.changes.migration import MigrationProposal, after_failure, replace_query
from anabranch.runtime.driver.changes.replacement import ChangeProposal, propose_change
from anabranch.runtime.driver.open_run import OpenedRun, Prepare, Question
from anabranch.runtime.driver.step.context import StepContext

if TYPE_CHECKING:
    from anabranch.api.query import Query

REFUSE = "refuse"
ALLOW = "allow"
# Plans a change between two batches, in the context of the last step.
Plan = Callable[[StepContext], MigrationProposal]


class ChangingHost(Protocol):
    """A run whose queries can be changed, between two of its batches."""

    opened: OpenedRun
    events: EventLog

    def questions(self) -> Mapping[str, Question]:
        """The queries that the run answers, by name."""

    def prepare(self, running: PreparedPlan | None = None) -> Prepare:
        """A function that analyses plans, and keeps the streaming query of `running` (by default the run's own) for
        those that it can serve."""

    def no_rows(self) -> DataFrame:
        """An empty batch."""

    def question_of(self, name: str, query: Query) -> Question:
        """The question of a query in the place of another one; its answer goes to that one's target."""

    def check_sink(self, name: str, query: Query) -> None:
        """Refuse a query whose answer cannot go to the target of the query of this name."""

    def reading_anew(self, plan: Plan) -> AbstractContextManager[Plan]:
        """Inside, no batch comes and the plan with both queries is in force. Afterwards Spark reads all that it
        needs."""

    def take_over(self, name: str, query: Query) -> None:
        """Note that a query has taken the place of the one of this name."""


class Changer:
    """Changes the queries of a run. The host makes sure that nothing else changes the run meanwhile."""

    def __init__(self, host: ChangingHost) -> None:
        """Change the queries of a host that has begun."""
        self._host = host

    def preview(self, name: str, query: Query) -> ChangePreview:
        """Preview a change; nothing is changed."""
        return self._proposal(name, query, self._host.opened.runner.context).preview

    def change(self, name: str, query: Query, missing: str = REFUSE) -> ChangePreview:
        """Replace a query. Refused if that cannot be done, or if rows are lacking and `missing` does not allow it."""
        if missing not in (REFUSE, ALLOW):
            raise ConfigError(f"there is no missing={missing!r}; {did_you_mean(str(missing), (REFUSE, ALLOW))}")
        host, started = self._host, time.perf_counter()
        runner = host.opened.runner
        planned_after = runner.status.last_number
        preview, migration = self._planned(name, query, missing, runner.context)

        def plan(context: StepContext) -> MigrationProposal:
            nonlocal preview, migration
            if runner.status.last_number != planned_after:
                preview, migration = self._planned(name, query, missing, context)
            return migration

        try:
            with host.reading_anew(plan) if preview.reads_anew else nullcontext(plan) as planned:
                host.opened = replace_query(host.opened, planned, host.no_rows())
                host.take_over(name, query)
                host.opened.runner.context.run.orders.forget(name)
        except BaseException:
            host.opened = after_failure(host.opened, host.questions, host.prepare)
            raise
        rows = {state.holds: [str(state.fate), state.rows] for state in preview.states}
        fates = ", ".join(f"{holds} {fate} ({count:,} rows)" for holds, (fate, count) in rows.items())
        host.events.add(
            EventKind.CHANGE,
            f"{name}: another query is answered from now on; of its state, {fates}",
            query=name,
            before=preview.before,
            after=preview.after,
            states=rows,
            complete=preview.is_complete,
            seconds=round(time.perf_counter() - started, 3),
        )
        return preview

    def _planned(
        self, name: str, query: Query, missing: str, context: StepContext
    ) -> tuple[ChangePreview, MigrationProposal]:
        """The preview of a change and its migration. Refused if it cannot be done, or if rows are lacking and `missing`
        does not allow it."""
        proposal = self._proposal(name, query, context)
        preview = proposal.preview
        if proposal.migration is None:
            raise ConfigError(f"the query {name!r} cannot be changed: {'; '.join(preview.refused)}")
        if preview.lacks_rows and missing == REFUSE:
            lacking = [f"of {state.holds}, {state.note}" for state in preview.states if state.dropped]
            raise ConfigError(
                f"the new query {name!r} would lack rows: {'; '.join(lacking)}. Say missing='allow' to go on with what "
                "is there, or add() it beside the old one"
            )
        return preview, proposal.migration

    def _proposal(self, name: str, query: Query, context: StepContext) -> ChangeProposal:
        host, questions = self._host, self._host.questions()
        if name not in questions:
            raise ConfigError(f"there is no query {name!r} in this run; {did_you_mean(str(name), list(questions))}")
        host.check_sink(name, query)
        graph, placements = context.plan.graph, context.in_force.distribution.placements
        check_stays(graph, context.run.settings.clusters, placements, name, query._bound.cluster)
        return propose_change(context, questions, host.prepare, name, host.question_of(name, query))
