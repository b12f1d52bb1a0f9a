"""A running query: PySpark's StreamingQuery with Anabranch's additions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from anabranch.api.changes.host import check_quiet
from anabranch.api.changes.migration import Migration
from anabranch.api.changes.migrator import REFUSE
from anabranch.api.changes.plans import explained_plans, plans_of
from anabranch.api.changes.queries import add_query, remove_query
from anabranch.api.changes.replacement import Changer
from anabranch.api.live.deliveries import clean_up, process_all_available
from anabranch.api.live.live_run import LiveRun
from anabranch.api.picture import diffusion_lines, draw, state_lines
from anabranch.api.progress import batches_of, groups, lateness_of, progress_of, with_step
from anabranch.manager.allocation.table import DistributionTable
from anabranch.manager.costs import CostModel
from anabranch.observe.events import Event
from anabranch.observe.numbers import parse_bytes
from anabranch.observe.progress import BatchProgress, Progress
from anabranch.plan.explain import Picture
from anabranch.plan.orders.plan_cost import PlanCost
from anabranch.plan.sharing.query_change import ChangePreview
from anabranch.plan.svg import as_svg
from anabranch.runtime.driver.changes.key_groups import groups_of_keys
from anabranch.runtime.driver.changes.manual import listed

if TYPE_CHECKING:
    from anabranch.api.query import Query
    from anabranch.api.writer import Writer

GRACE = 10.0  # seconds that a batch under way has to come to its end when the run is stopped


class Run:
    """Queries that are being answered. Names that PySpark's StreamingQuery has behave as there."""

    def __init__(self, live: LiveRun) -> None:
        """Show a run to users; `Writer.start` and `Engine.start` make it."""
        self._live = live

    def __repr__(self) -> str:
        """One line: the queries, the last step, and where the state is."""
        how = "active" if self.isActive else "ended" if self.exception() is None else "failed"
        queries, number = ", ".join(map(repr, self._live.writers)), self._live.runner.status.last_number
        return f"<Run of {queries}: {how}, step {number}, checkpoint {str(self._live.checkpoint.path)!r}>"

    @property
    def id(self) -> str:
        """The id of the query, the same after a restart."""
        return str(self._live.spark_query.id)

    @property
    def runId(self) -> str:
        """The id of this run, new after a restart."""
        return str(self._live.spark_query.runId)

    @property
    def name(self) -> str | None:
        """The name that `queryName` set; those of several queries are joined by commas."""
        return self._live.name

    @property
    def isActive(self) -> bool:
        """Whether the run is still going."""
        return self._live.is_active

    @property
    def status(self) -> dict[str, Any]:
        """The status of Spark's streaming query: what it is doing right now."""
        return dict(self._live.spark_query.status)

    @property
    def events(self) -> list[Event]:
        """The events since the checkpoint began, oldest first: adaptations, changes, warnings. The newest 1,000."""
        return self._live.events.all()

    def events_since(self, number: int | None = None) -> list[Event]:
        """The events after the one with this number, oldest first; without a number, those of this run."""
        return self._live.events.since(number)

    @property
    def queries(self) -> tuple[str, ...]:
        """The names of the queries that are answered."""
        return tuple(self._live.writers)

    def add(self, writer: Writer) -> None:
        """Answer one more query, over the rows that arrive from now on. The answers of others do not change.

        A stream that no query has read so far is read from its own beginning, as when a query starts.
        """
        add_query(self._live, writer)

    def remove(self, name: str) -> None:
        """Stop answering a query. Its answers so far stay; state that no other query needs is removed."""
        remove_query(self._live, name)

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        """Progress of the recent batches: Spark's, with `numOutputRows` and our own numbers under `anabranch`."""
        return [self._with_step(progress) for progress in self._live.spark_progress()]

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        """Progress of the last batch, or None before the first. Totals include steps after it."""
        newest = self._live.spark_query.lastProgress or next(reversed(self._live.past), None)
        return None if newest is None else self._with_step(newest, as_of_last=True)

    @property
    def progress(self) -> Progress | None:
        """The last step, with a batch or without one, as a value; `lastProgress` shows it as a dict."""
        results = list(self._live.results)
        return progress_of(results[-1], lateness_of(self._live.plan.layout)) if results else None

    def batches_since(self, number: int = -1) -> list[BatchProgress]:
        """The recent batches after the one with this number that became steps, as values, oldest first."""
        newest = self._live.spark_query.lastProgress  # enough for whoever follows a run, and much less than all
        recent = [newest] if newest and newest.batchId <= number + 1 else self._live.spark_progress()
        return batches_of(recent, list(self._live.results), lateness_of(self._live.plan.layout), number)

    def groups(self) -> list[dict[str, Any]]:
        """The partition groups that have state now: a dict for each processor, operator and group."""
        return groups(self._live.results[-1]) if self._live.results else []

    def awaitTermination(self, timeout: int | None = None) -> bool | None:
        """Wait until the run ends; an error in it is raised here. With a timeout: whether it has ended."""
        if not self._live.wait_for_end(timeout):
            return False
        failure = self.exception()
        if failure is not None:
            raise failure
        return None if timeout is None else True

    def processAllAvailable(self) -> None:
        """Wait until everything that has arrived is processed."""
        process_all_available(self._live)

    def clean_up(self) -> None:
        """Deliver all results that spilling has postponed so far, and wait until that is done.

        Between two calls, batches deliver some of these results in passing, so that no batch takes long. Spilled state
        becomes active again as far as memory allows. A run that ends by itself (`availableNow`) delivers all of them.
        """
        clean_up(self._live)

    def relocate(
        self, groups: int | Iterable[int], *, to: int, operator: str | None = None, pace: int | str | None = None
    ) -> None:
        """Move partition groups to a processor, between two batches, while the run goes on. Nothing is copied.

        Args:
            groups: their numbers, from 0 on.
            to: the number of the processor.
            operator: the name of an operator in events and progress: its groups move, and those of operators that run
                fused with it. By default the groups of all operators move.
            pace: how many bytes per step, such as "256m", the processor reads ahead before the groups are its own. Rows
                that arrive for them in the meantime are held back. By default it reads state when it is needed.
        """
        with self._live.between_batches("moved", "no state can be"):
            self._live.expect_end()
            self._live.runner.manual.relocate(listed(groups), to, operator, None if pace is None else parse_bytes(pace))

    def diffuse(
        self, groups: int | Iterable[int], *, master: str, over: Iterable[int], operator: str | None = None
    ) -> None:
        """Diffuse hot partition groups of a join, between two batches, while the run goes on (docs/diffusion.md).

        Nothing is copied. Groups that are diffused already get the new master and processors. A join that runs fused
        with other operators is set apart from them until no group of it is diffused. That costs every batch a round.

        Args:
            groups: their numbers, from 0 on; `groups_of` gives those of a key.
            master: the alias of the input whose rows are spread, each to one processor. The rows of the other inputs go
                to all of them, so the fastest input is the cheapest master.
            over: the numbers of two or more processors.
            operator: the name of a join in events and progress; may be left out if only one can be diffused.
        """
        with self._live.between_batches("diffused", "no group can be"):
            self._live.reallocator.diffuse(listed(groups), master, listed(over), operator)

    def undiffuse(self, groups: int | Iterable[int], *, to: int | None = None, operator: str | None = None) -> None:
        """Bring diffused groups back to one processor: `to`, or by default the one that has the rest of their state."""
        with self._live.between_batches("gathered", "no group can be"):
            self._live.reallocator.undiffuse(listed(groups), to, operator)

    def groups_of(self, operator: str | None = None, *, key: Any) -> list[int]:
        """The partition groups of the rows with a key. The operator may be left out if there is only one.

        The `key` is a value, or a tuple if the key has several columns. A list is several keys.
        """
        return groups_of_keys(self._live.runner.context, operator, key)

    def rescale(self, processors: int) -> None:
        """Go on with another number of processors from the next batch on; state is spread evenly. Nothing is copied.

        A program that resumes the checkpoint keeps this number, unless it asks for another one than it did before.
        """
        with self._live.between_batches("rescaled", "the run cannot be"):
            self._live.runner.manual.rescale(processors)

    def reallocate(
        self, operators: str | Sequence[str], *, to: int | str | None, subplan: bool = False, apart: bool = False
    ) -> None:
        """Let operators go on at another processor, with their state, between two batches (docs/placement.md).

        Nothing is copied, and Spark's query is not restarted. The rounds of the plan are compiled for the new places:
        operators that run fused with others need a round of their own elsewhere, which the event tells.

        Args:
            operators: the name of an operator in events and progress, or several.
            to: the number of the processor, or None for all processors; "stay" for none other than now.
            subplan: whether whatever only feeds these operators goes along.
            apart: whether they run in rounds of their own, whatever else is at their place.
        """
        with self._live.between_batches("reallocated", "no operator can be"):
            self._live.reallocator.reallocate(operators, to, subplan=subplan, apart=apart)

    def send(self, queries: str | Sequence[str], *, to: str) -> None:
        """Let a query go on in another cluster of processors, with its state, between two batches (docs/placement.md).

        That is a reallocation of all its operators: nothing is copied, and Spark's query is not restarted.

        Args:
            queries: the name of a query, or of several, as those that share operators go together.
            to: the name of a cluster of the `ab.Tier` that the engine has as its `placement`.
        """
        with self._live.between_batches("sent", "no query can be"):
            self._live.reallocator.send(queries, to)

    def distribution(self, cost: CostModel | None = None) -> DistributionTable:
        """Where operators are now: the distribution table, with state, rates of the last step, and cost; it can be
        printed.

        `cost` is a cost model such as `ab.CpuTime()`, by default that of the run's policies.
        """
        return self._live.runner.status.distribution(cost)

    def migrate(
        self,
        joins: str,
        strategy: str = "auto",
        query: str | None = None,
        *,
        pace: int | None = None,
        meanwhile: str = REFUSE,
    ) -> Migration:
        """Go on with a query's joins in another order, such as "((B C) D) A" or "multiway" (docs/migration.md).

        The `strategy` is "moving-state" (at once), "background" (in pieces of `pace` rows per batch, while the old
        order answers), "parallel-track" (the new order begins empty beside the old one), or "auto". If a migration is
        under way, `meanwhile` says whether to "refuse" this one or to "replace" it.
        """
        with self._live.between_batches("migrated", "no query can be"):
            self._live.expect_end()
            return self._live.migrator.begin(joins, strategy, query, pace=pace, meanwhile=meanwhile)

    def plans(self, query: str | None = None) -> list[PlanCost]:
        """The orders in which a query's joins could run, with their costs, least work first (docs/migration.md).

        Costs are estimated from a sample of the state. It is taken now, unless the last one is recent or the run has
        ended.
        """
        if not self._live.spark_query.isActive:
            return plans_of(self._live.migrator, query, measure=False)
        with self._live.between_batches("compared", "orders of joins cannot be"):
            return plans_of(self._live.migrator, query)

    def change(self, name: str, query: Query, *, missing: str = REFUSE) -> ChangePreview:
        """Replace a query by another one, which goes on with its state from the next batch on (docs/migration.md).

        The new query may need rows that the old one dropped. `missing` says whether to "refuse" or to "allow" that.
        """
        with self._live.between_batches("changed", "no query can be"):
            check_quiet(self._live, "changed")
            self._live.expect_end()
            return Changer(self._live.host).change(name, query, missing)

    def preview(self, name: str, query: Query) -> ChangePreview:
        """Preview `change`: the state it would keep, compute and lack, or why it is refused. It can be printed."""
        with self._live.between_batches("changed", "no query can be"):
            return Changer(self._live.host).preview(name, query)

    def set_memory(self, memory: int | str | None, *, processor: int | None = None) -> None:
        """Change the budget for active state of a processor, or of all, until the run ends."""
        budget = None if memory is None else parse_bytes(memory)
        with self._live.between_batches("changed", "memory cannot be"):
            self._live.runner.manual.give_memory(budget, processor)

    def stop(self, *, grace: float = GRACE) -> None:
        """Stop; the last committed step stays and the checkpoint can be resumed.

        A batch under way is finished first, unless that takes more than `grace` seconds: then it is interrupted, and
        computed again after a restart. Once the input has ended, stopping waits until the rows that waited for the end
        are answered. A `foreachBatch` function may call it, too; there it returns at once.
        """
        self._live.stop(grace)

    def leave_open(self) -> None:
        """Do not treat the input as ended when Spark's query stops: rows that wait go on waiting."""
        self._live.leave_open()

    def exception(self) -> BaseException | None:
        """The error that ended the run; None if there is none."""
        return self._live.exception()

    def explain(self) -> None:
        """Print the plan with its measured rows and times, the state per processor, and the costs of other orders of
        joins."""
        print(self._picture())
        if self._live.results:
            last = self._live.results[-1]
            print(*state_lines(last), *diffusion_lines(last), self.distribution(), sep="\n")
        measure = self._live.spark_query.isActive and self._live.runner.can_change
        for line in explained_plans(self._live.migrator, measure=measure):
            print(line)

    def _repr_html_(self) -> str:
        """The plan as a picture with its measured rows and times, in notebooks."""
        return as_svg(self._picture())

    def _picture(self) -> Picture:
        status = self._live.runner.status
        clusters = status.context.run.settings.clusters
        return draw(self._live.plan, status.placements, status.processors, status.measured(), clusters)

    def _with_step(self, progress: Any, *, as_of_last: bool = False) -> dict[str, Any]:
        # Spark's query keeps the name that it was started with.
        batch = {**json.loads(progress.json), "name": self.name}
        return with_step(batch, list(self._live.results), lateness_of(self._live.plan.layout), as_of_last=as_of_last)
