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
from anabranch.api.picture import draw, state_lines
from anabranch.api.progress import batches_of, groups, lateness_of, progress_of, with_step
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
        """Made by `Writer.start` and `Engine.start`."""
        self._live = live

    def __repr__(self) -> str:
        """One line: what is answered, how far it is, and where its state is."""
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
        """The name given with `queryName`; those of several queries are joined by commas."""
        return self._live.name

    @property
    def isActive(self) -> bool:
        """Whether the run is still going."""
        return self._live.is_active

    @property
    def status(self) -> dict[str, Any]:
        """What Spark is doing right now."""
        return dict(self._live.spark_query.status)

    @property
    def events(self) -> list[Event]:
        """What happened since the checkpoint began that is worth telling, oldest first; the newest 1,000."""
        return self._live.events.all()

    def events_since(self, number: int | None = None) -> list[Event]:
        """The events after the one with this number, oldest first; without a number those of this run."""
        return self._live.events.since(number)

    @property
    def queries(self) -> tuple[str, ...]:
        """The names of the queries that are answered."""
        return tuple(self._live.writers)

    def add(self, writer: Writer) -> None:
        """Answer one more query, over the rows that arrive from now on; the others do not notice.

        A stream that no query has read so far is read from its own beginning, as when a query starts.
        """
        add_query(self._live, writer)

    def remove(self, name: str) -> None:
        """Answer a query no longer. What it wrote stays; state that no other query needs is removed."""
        remove_query(self._live, name)

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        """Progress of the recent batches: Spark's, with `numOutputRows` and our own numbers under `anabranch`."""
        return [self._with_step(progress) for progress in self._live.spark_progress()]

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        """Progress of the last batch, or None before the first; totals with what came after it."""
        newest = self._live.spark_query.lastProgress or next(reversed(self._live.past), None)
        return None if newest is None else self._with_step(newest, as_of_last=True)

    @property
    def progress(self) -> Progress | None:
        """The last step, with a batch or without one, as a value; `lastProgress` shows it as a dict."""
        results = list(self._live.results)
        return progress_of(results[-1], lateness_of(self._live.plan.layout)) if results else None

    def batches_since(self, number: int = -1) -> list[BatchProgress]:
        """The batches after the one with this number that became steps, as values, oldest first; of the recent ones."""
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

        While batches come they do it in passing, so that none takes long; what was spilled becomes active again as far
        as memory allows. A run that ends by itself (`availableNow`) has done this.
        """
        clean_up(self._live)

    def relocate(
        self, groups: int | Iterable[int], *, to: int, operator: str | None = None, pace: int | str | None = None
    ) -> None:
        """Move partition groups to a processor, between two batches, while the run goes on. Nothing is copied.

        Args:
            groups: their numbers, from 0 on.
            to: the number of the processor.
            operator: of which operator, by its name in events and progress, and of those that run fused with it; by
                default of all.
            pace: how many bytes per step, such as "256m", the processor reads ahead before the groups are its own. Rows
                that arrive for them in the meantime are held back. By default it reads when it needs to.
        """
        with self._live.between_batches("moved", "no state can be"):
            self._live.expect_end()
            self._live.runner.manual.relocate(listed(groups), to, operator, None if pace is None else parse_bytes(pace))

    def diffuse(
        self, groups: int | Iterable[int], *, master: str, over: Iterable[int], operator: str | None = None
    ) -> None:
        """Diffuse hot partition groups of a join, between two batches, while the run goes on (docs/diffusion.md).

        Nothing is copied. Groups that are diffused already get the new master and processors.

        Args:
            groups: their numbers, from 0 on; `groups_of` says which ones a key is in.
            master: the alias of the input whose rows are spread, one processor each; rows of the others go to all. The
                fastest input costs least.
            over: the numbers of two or more processors.
            operator: of which join, by its name in events and progress; may be left out if there is only one that can
                be diffused.
        """
        with self._live.between_batches("diffused", "no group can be"):
            self._live.runner.manual.diffuse(listed(groups), master, listed(over), operator)

    def undiffuse(self, groups: int | Iterable[int], *, to: int | None = None, operator: str | None = None) -> None:
        """Bring diffused groups back to one processor: `to` this one, or where the rest of their state is."""
        with self._live.between_batches("gathered", "no group can be"):
            self._live.runner.manual.undiffuse(listed(groups), to, operator)

    def groups_of(self, operator: str | None = None, *, key: Any) -> list[int]:
        """The partition groups of rows with a key at an operator, which may be left out if there is only one.

        The `key` is a value; of a key of several columns a tuple. A list is several keys.
        """
        return groups_of_keys(self._live.runner.context, operator, key)

    def rescale(self, processors: int) -> None:
        """Go on with another number of processors from the next batch on; state is spread evenly. Nothing is copied.

        A checkpoint that is resumed by a program that asks for the same number as before keeps this one.
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

        The `strategy` is "moving-state" (at once), "background" (in pieces, of `pace` rows per batch, while the old
        order answers), "parallel-track" (begins empty beside it), or "auto". `meanwhile` says whether to "refuse" or to
        "replace" a migration that is under way.
        """
        with self._live.between_batches("migrated", "no query can be"):
            self._live.expect_end()
            return self._live.migrator.begin(joins, strategy, query, pace=pace, meanwhile=meanwhile)

    def plans(self, query: str | None = None) -> list[PlanCost]:
        """The orders in which a query's joins could run, with what each costs, least work first (docs/migration.md).

        Costs are estimated from a sample of the state, taken now if that is not too often; of a run that has ended they
        are those of the last time.
        """
        if not self._live.spark_query.isActive:
            return plans_of(self._live.migrator, query, measure=False)
        with self._live.between_batches("compared", "orders of joins cannot be"):
            return plans_of(self._live.migrator, query)

    def change(self, name: str, query: Query, *, missing: str = REFUSE) -> ChangePreview:
        """Replace a query by another one, which goes on with its state from the next batch on (docs/migration.md).

        `missing` says whether to "refuse" a query for which rows are lacking that were left out, or to "allow" it.
        """
        with self._live.between_batches("changed", "no query can be"):
            check_quiet(self._live, "changed")
            self._live.expect_end()
            return Changer(self._live.host).change(name, query, missing)

    def preview(self, name: str, query: Query) -> ChangePreview:
        """What `change` would keep, compute and lack, and what cannot be done; it can be printed."""
        with self._live.between_batches("changed", "no query can be"):
            return Changer(self._live.host).preview(name, query)

    def set_memory(self, memory: int | str | None, *, processor: int | None = None) -> None:
        """Change how much active state a processor may have, or all of them, until the run ends."""
        budget = None if memory is None else parse_bytes(memory)
        with self._live.between_batches("changed", "memory cannot be"):
            self._live.runner.manual.give_memory(budget, processor)

    def stop(self, *, grace: float = GRACE) -> None:
        """Stop; the last committed step stays and the checkpoint can be resumed.

        A batch under way is finished first, unless that takes more than `grace` seconds: then it is interrupted, and
        computed again after a restart. Once the input has ended, stopping waits until what was waiting for that is
        answered. A function that a batch is given to may call it, too; there it returns at once.
        """
        self._live.stop(grace)

    def leave_open(self) -> None:
        """Do not take the input for ended when Spark's query stops, whoever stops it."""
        self._live.leave_open()

    def exception(self) -> BaseException | None:
        """What ended the run, if it ended by an error."""
        return self._live.exception()

    def explain(self) -> None:
        """Print the plan, with what was measured so far since it is this one, the state per processor, and what other
        orders of joins would cost."""
        print(self._picture())
        if self._live.results:
            print(*state_lines(self._live.results[-1]), sep="\n")
        measure = self._live.spark_query.isActive and self._live.runner.can_change
        for line in explained_plans(self._live.migrator, measure=measure):
            print(line)

    def _repr_html_(self) -> str:
        """The plan as a picture, with what was measured so far, in notebooks."""
        return as_svg(self._picture())

    def _picture(self) -> Picture:
        status = self._live.runner.status
        return draw(self._live.plan, status.placements, status.processors, status.measured())

    def _with_step(self, progress: Any, *, as_of_last: bool = False) -> dict[str, Any]:
        # Spark's query keeps the name that it was started with.
        batch = {**json.loads(progress.json), "name": self.name}
        return with_step(batch, list(self._live.results), lateness_of(self._live.plan.layout), as_of_last=as_of_last)
