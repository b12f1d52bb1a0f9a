"""The engine without Structured Streaming around it: a test feeds a batch, and sees the results of its step.

Everything else is as in a run: `open_run` puts the steps together, on a real checkpoint. Nothing happens in the
background: rows that are held back go on when a test lets them, owed results are delivered when a test cleans up.

Limit: a checkpoint that was made here has no log of Spark's, so no run of `Engine.start` can go on from it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from anabranch.api.changes.migration import Migration
from anabranch.api.changes.plans import plans_of
from anabranch.api.changes.replacement import Changer
from anabranch.api.engine import Engine
from anabranch.api.progress import lateness_of, progress_of
from anabranch.api.query import Query
from anabranch.api.targets import UNNAMED
from anabranch.api.testing.collected import Collected
from anabranch.api.testing.crash import PLACES, crashing
from anabranch.api.testing.fed_run import AnsweredQuery, FedRun
from anabranch.api.testing.rows import Rows
from anabranch.api.testing.state import state_by_group
from anabranch.api.testing.streams import Schema, fed_stream
from anabranch.checkpoint.queries import REFUSE, check_missing
from anabranch.errors import ConfigError, did_you_mean
from anabranch.manager.allocation.table import DistributionTable
from anabranch.manager.costs import CostModel
from anabranch.observe.events import Event
from anabranch.observe.numbers import parse_bytes
from anabranch.observe.progress import as_dict
from anabranch.plan.orders.plan_cost import PlanCost
from anabranch.plan.sharing.query_change import ChangePreview
from anabranch.quantities.clock import Clock
from anabranch.runtime.driver.changes.key_groups import groups_of_keys
from anabranch.runtime.driver.changes.manual import ManualChanges, listed
from anabranch.runtime.sinks.answers import Target
from anabranch.state.failpoints import FailpointError

Sink = Callable[[DataFrame, int], None]


class Steps:
    """A run of continuous queries that takes a step when a test says so.

    Args:
        spark: the session to run on.
        checkpoint: a directory for the state; a test's own.
        processors: how many query processors share the state.
        clock: the time that policies and events go by; by default the machine's.
        missing: what happens if the checkpoint answers a query that is not asked again, as for `Engine.start`.
        settings: the other arguments of `Engine`, such as memory, groups and policies.

    `engine` is the engine of the run: operators of your own are registered there.
    """

    def __init__(
        self,
        spark: SparkSession,
        checkpoint: str | os.PathLike[str],
        *,
        processors: int = 2,
        clock: Clock | None = None,
        missing: str = REFUSE,
        **settings: Any,
    ) -> None:
        """Make an engine. Nothing is written before the first step."""
        check_missing(missing)
        self.engine = Engine(spark, checkpoint, processors, **settings)
        self._queries: dict[str, AnsweredQuery] = {}
        self._collected = Collected()
        self._run = FedRun(self.engine, missing, time.time if clock is None else clock.now)

    def __enter__(self) -> Steps:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # Streams and queries.

    def stream(
        self,
        name: str,
        schema: Schema,
        *,
        time: str | None = None,
        lateness: str | timedelta | None = None,
        through: Callable[[DataFrame], DataFrame] | None = None,
    ) -> None:
        """Register a stream that the test feeds.

        Args:
            name: the name that queries use for it.
            schema: of the rows that are fed, such as "k BIGINT, ts TIMESTAMP, v DOUBLE", Spark's or Arrow's.
            time: as for `Engine.register`.
            lateness: as for `Engine.register`.
            through: a function from DataFrame to DataFrame, without state, that rows go through before queries see
                them, as in your program.
        """
        stream = fed_stream(self.engine.spark, name, schema, through)
        self.engine._register(name, stream.frame(self.engine.spark), time, lateness)
        self._run.fed[name] = stream

    def query(
        self,
        query: str | Query,
        *,
        name: str = UNNAMED,
        joins: str = "auto",
        emit: str = "tuple",
        cluster: str | None = None,
        sink: Sink | None = None,
    ) -> Query:
        """Answer a query from the next step on.

        Args:
            query: its text, or a query that your program has made with `steps.engine.sql`.
            name: its name among several.
            joins: as for `Engine.sql`.
            emit: as for `Engine.sql`.
            cluster: as for `Engine.sql`.
            sink: a function as for `foreachBatch`, instead of `answer`, which collects the results.
        """
        if name in self._queries:
            raise ConfigError(f"there is a query {name!r} already; give each a name of its own with name=...")
        answered = self._made(query, joins, emit, cluster)
        target = Target(self._collected.sink_of(name), reads_all=True) if sink is None else Target(sink)
        self._change({**self._queries, name: AnsweredQuery(answered, target)})
        return answered

    def remove(self, name: str) -> None:
        """Stop answering a query; its answers so far stay."""
        if name not in self._queries:
            raise ConfigError(f"there is no query {name!r}; {did_you_mean(name, list(self._queries))}")
        if len(self._queries) == 1:
            raise ConfigError(f"{name!r} is the only query")
        self._change({other: answered for other, answered in self._queries.items() if other != name}, [name])

    # Steps.

    def feed(self, batches: Mapping[str, Rows] | None = None, /, **streams: Rows) -> None:
        """Deliver a batch: one step. Streams that are not named bring nothing.

        Rows are tuples, dicts or an Arrow table: `steps.feed(A=[(1, "one")], B=table)`.
        """
        self._begin()
        self._run.deliver(self._run.tables({**(batches or {}), **streams}))

    def end(self) -> None:
        """End the input, as a run with `availableNow` does: deliver all owed results, and answer all rows that wait."""
        self._begin()
        self._run.check_nothing_under_way()
        self._run.runner.extra.end(self._run.no_rows())

    def clean_up(self) -> None:
        """Deliver all results that spilling has postponed so far, as `Run.clean_up` does."""
        self._begin()
        self._run.check_nothing_under_way()
        spilled_by = self._run.runner.status.last_number
        while self._run.runner.extra.clean_up(self._run.no_rows(), spilled_by):
            pass

    def let_go_on(self) -> bool:
        """Let rows go on that are held back, as a run does after a second without a batch; whether any still wait."""
        self._begin()
        self._run.check_nothing_under_way()
        return self._run.runner.extra.release_held(self._run.no_rows())

    # Adaptations, between two steps.

    def spill(self, groups: int | Iterable[int] | None = None, *, operator: str | None = None) -> None:
        """Push partition groups to disk, by default all. The results that they owe then are delivered by clean-up."""
        self._manual().spill(None if groups is None else listed(groups), operator)

    def relocate(
        self, groups: int | Iterable[int], *, to: int, operator: str | None = None, pace: int | str | None = None
    ) -> None:
        """Move partition groups to a processor, as `Run.relocate` does."""
        self._manual().relocate(listed(groups), to, operator, None if pace is None else parse_bytes(pace))

    def diffuse(
        self, groups: int | Iterable[int], *, master: str, over: Iterable[int], operator: str | None = None
    ) -> None:
        """Diffuse partition groups of a join over processors, as `Run.diffuse` does."""
        self._begin()
        self._run.reallocator.diffuse(listed(groups), master, listed(over), operator)

    def undiffuse(self, groups: int | Iterable[int], *, to: int | None = None, operator: str | None = None) -> None:
        """Bring diffused groups back to one processor, as `Run.undiffuse` does."""
        self._begin()
        self._run.reallocator.undiffuse(listed(groups), to, operator)

    def groups_of(self, operator: str | None = None, *, key: Any) -> list[int]:
        """The partition groups of the rows with a key, as `Run.groups_of` returns them."""
        self.start()
        return groups_of_keys(self._run.runner.context, operator, key)

    def rescale(self, processors: int) -> None:
        """Go on with another number of processors, as `Run.rescale` does."""
        self._manual().rescale(processors)

    def reallocate(
        self, operators: str | Sequence[str], *, to: int | str | None, subplan: bool = False, apart: bool = False
    ) -> None:
        """Let operators go on at another processor, as `Run.reallocate` does."""
        self._begin()
        self._run.reallocator.reallocate(operators, to, subplan=subplan, apart=apart)

    def send(self, queries: str | Sequence[str], *, to: str) -> None:
        """Let a query go on in another cluster of processors, as `Run.send` does."""
        self._begin()
        self._run.reallocator.send(queries, to)

    def migrate(
        self,
        joins: str,
        strategy: str = "auto",
        query: str | None = None,
        *,
        pace: int | None = None,
        meanwhile: str = REFUSE,
    ) -> Migration:
        """Go on with a query's joins in another order, as `Run.migrate` does. A migration that takes several steps goes
        on with each that is fed."""
        self._begin()
        self._run.check_nothing_under_way()
        return self._run.migrator.begin(joins, strategy, query, pace=pace, meanwhile=meanwhile)

    def plans(self, query: str | None = None) -> list[PlanCost]:
        """The orders in which a query's joins could run, with their costs, as `Run.plans` lists them."""
        self._begin()
        self._run.check_nothing_under_way()
        return plans_of(self._run.migrator, query)

    def preview(self, name: str, query: str | Query) -> ChangePreview:
        """Preview `change`, as `Run.preview` does."""
        self._begin()
        self._run.check_nothing_under_way()
        return Changer(self._run).preview(name, self._made(query))

    def change(self, name: str, query: str | Query, *, missing: str = REFUSE) -> ChangePreview:
        """Replace a query by another one that goes on with its state, as `Run.change` does."""
        self._begin()
        self._run.check_nothing_under_way()
        self._run.migrator.check_idle("no query can be changed")
        answered = self._made(query)
        preview = Changer(self._run).change(name, answered, missing)
        self._queries = {**self._queries, name: AnsweredQuery(answered, self._queries[name].target)}
        return preview

    def set_memory(self, memory: int | str | None, *, processor: int | None = None) -> None:
        """Change the budget for active state of a processor, or of all, as `Run.set_memory` does."""
        self._manual().give_memory(None if memory is None else parse_bytes(memory), processor)

    # Life and death.

    def start(self) -> None:
        """Take the checkpoint and put the queries together. The first step does it if the test has not."""
        self._check_has_query()
        self._run.start(self._queries)

    def stop(self) -> None:
        """Release the checkpoint. `start`, or the next step, goes on from it."""
        self._run.stop()

    def resume(self) -> None:
        """Stop, and go on from the checkpoint as a new run does: with fresh policies and the budgets of the start."""
        self.stop()
        self.start()

    def crash_and_resume(
        self, batches: Mapping[str, Rows] | None = None, /, *, at: str = "after_sink", **streams: Rows
    ) -> None:
        """Deliver a batch, crash in its step, go on from the checkpoint, and deliver it again, as Spark does.

        `at` is the place of the crash: "before_sink", "after_sink", "before_commit" or "after_commit".
        """
        if at not in PLACES:
            raise ConfigError(f"a step cannot crash at {at!r}; {did_you_mean(at, PLACES)}")
        self._begin()
        number, tables = self._run.next_batch, self._run.tables({**(batches or {}), **streams})
        try:
            with crashing(at):
                self._run.deliver(tables)
        except FailpointError:
            self.resume()
        self._run.deliver(tables, number)

    # Answers, state and progress.

    def answer(self, name: str | None = None) -> pa.Table:
        """The results of a query so far; the name may be left out if there is only one."""
        return self._collected.all(*self._named(name))

    def last_answer(self, name: str | None = None) -> pa.Table:
        """The results of a query in the last step that was taken, or in all steps that `clean_up` or `end` took."""
        return self._collected.last(*self._named(name))

    def state(self) -> list[dict[str, Any]]:
        """The partition groups that have state now: a dict for each processor, operator and group.

        A dict has the numbers of `Run.groups`, and the rows that are active, spilled and held back.
        """
        return state_by_group(self._run.runner.context) if self._run.is_open else []

    @property
    def progress(self) -> dict[str, Any] | None:
        """The progress of the last step, as in a run's `lastProgress["anabranch"]`; None before the first."""
        if not (self._run.is_open and self._run.results):
            return None
        return as_dict(progress_of(self._run.results[-1], lateness_of(self._run.plan.layout)))

    def progress_since(self, step: int = 0) -> list[dict[str, Any]]:
        """The progress of each step after step number `step`, oldest first; steps without a batch are among them."""
        if not self._run.is_open:
            return []
        lateness = lateness_of(self._run.plan.layout)
        return [as_dict(progress_of(result, lateness)) for result in self._run.results if result.step > step]

    def distribution(self, cost: CostModel | None = None) -> DistributionTable:
        """Where operators are now, as `Run.distribution` tells it."""
        self._begin()
        return self._run.runner.status.distribution(cost)

    @property
    def events(self) -> list[Event]:
        """The events so far, oldest first: adaptations, changes, warnings."""
        return self._run.events.all()

    def _begin(self) -> None:
        self.start()
        self._collected.begin()

    def _manual(self) -> ManualChanges:
        self._begin()
        return self._run.runner.manual

    def _change(self, queries: dict[str, AnsweredQuery], removed: Collection[str] = ()) -> None:
        """Answer these queries from now on. If they are refused, those before are still answered."""
        if self._run.is_open:
            self._run.open(queries, removed)
        self._queries = queries

    def _check_has_query(self) -> None:
        if not self._queries:
            raise ConfigError("there is no query to answer yet; ask one with query(...) before the first step")

    def _made(self, query: str | Query, joins: str = "auto", emit: str = "tuple", cluster: str | None = None) -> Query:
        if isinstance(query, str):
            return self.engine.sql(query, joins=joins, emit=emit, cluster=cluster)
        if query._engine is not self.engine:
            raise ConfigError("the query belongs to another engine; make it with that of these steps: steps.engine")
        return query

    def _named(self, name: str | None) -> tuple[str, Query]:
        self._check_has_query()
        if name is None and len(self._queries) > 1:
            raise ConfigError(f"there are several queries; name one of {', '.join(self._queries)}")
        name = next(iter(self._queries)) if name is None else name
        if name not in self._queries:
            raise ConfigError(f"there is no query {name!r}; {did_you_mean(name, list(self._queries))}")
        return name, self._queries[name].query
