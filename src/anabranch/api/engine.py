"""The engine: registered streams, and queries over them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from anabranch.api.query import Query
from anabranch.api.registration import applied_operator, operator_schema, stream_schema
from anabranch.api.run import Run
from anabranch.api.start import start_run
from anabranch.api.targets import check_writer
from anabranch.api.writer import Writer
from anabranch.checkpoint.queries import REFUSE
from anabranch.errors import ConfigError
from anabranch.kernel.operator import StatefulOperator
from anabranch.language import parse_query
from anabranch.manager.allocation.properties import check_properties
from anabranch.manager.patterns import OperatorGraph, Pattern, Spread
from anabranch.manager.patterns.named import SPREAD, pattern_of
from anabranch.manager.patterns.pattern import placements_of
from anabranch.manager.patterns.tier import clusters_of
from anabranch.manager.policies import ADAPTIVE, check_policies
from anabranch.manager.policies.adaptive import Adaptive
from anabranch.manager.policies.spill import Spill
from anabranch.manager.snapshot import Policy
from anabranch.manager.tiers.clusters import check_cluster, check_covers
from anabranch.observe.numbers import format_bytes, parse_bytes
from anabranch.plan.allocation import Allocation, KnownAllocation
from anabranch.plan.network import Request
from anabranch.plan.placement import EVEN, Placement, check_shares, even_placement
from anabranch.plan.query import StreamSchema
from anabranch.runtime.compile.prepared import PreparedPlan
from anabranch.runtime.driver.prepare import allocate, prepare
from anabranch.runtime.driver.step.result import StepSettings
from anabranch.runtime.rows.derived import Sources
from anabranch.runtime.spark.internals import remember_classes
from anabranch.state.groups import DEFAULT_GROUPS, check_groups
from anabranch.state.store import local_path


@dataclass(repr=False)
class Engine:
    """Continuous queries over Spark streams, with state in one checkpoint directory.

    Args:
        spark: the session to run on.
        checkpoint: a directory that the driver and all executors see; it holds state, steps and Spark's own logs.
        processors: how many query processors share the state; by default Spark's default parallelism, or as many as
            clusters list. A run may be resumed with another number.
        memory: budget for the active state of one processor, such as "200m". What does not fit is pushed to disk, and
            the results that this postpones are delivered later. Groups with `emit="batch"` and operators of your own
            cannot be pushed; the rest keeps at least half of the budget, and an event says so if it is too small.
        groups: partition groups, a power of two; fixed for the life of a checkpoint.
        quarantine: where rows go that cannot be processed, because their event time is unusable or a condition or a key
            fails on them (JSON lines); without it such a row stops the run.
        late_rows: where late rows go (JSON lines); without it they are counted and dropped.
        placement: where operators are at first (docs/placement.md): a pattern such as `ab.Grouping()`, or the name of
            one: "spread" over all processors, or whole ones, "round-robin" or by "grouping" neighbours, or what needs
            the "fewest-rounds". `ab.Tier({"eu": [0, 1], "us": [2, 3]})` has clusters of processors, each of which
            adapts by itself. The answer is the same; a checkpoint may be resumed with another one.
        initial_placement: how partition groups are spread over processors at first: "even", or by shares, one for each
            processor, such as [4, 1, 1].
        policies: what decides how the running query is adapted: "adaptive", which is `[ab.Adaptive()]`, or a list; by
            default `[ab.Spill()]`, which has something to do once there is a budget (`memory`, or `run.set_memory`).
            Each run works with a copy of its own.
        properties: what you know of "processors" by number, "operators" by name and the "plan", as numbers or texts by
            name, for cost models of your own (docs/placement.md).
    """

    spark: SparkSession
    checkpoint: str | os.PathLike[str]
    processors: int | None = None
    memory: int | str | None = None
    groups: int = DEFAULT_GROUPS
    quarantine: str | os.PathLike[str] | None = None
    late_rows: str | os.PathLike[str] | None = None
    placement: str | Pattern = SPREAD
    policies: Sequence[Policy] | str | None = None
    initial_placement: str | Sequence[float] = EVEN
    properties: Mapping[str, Any] | None = None
    # Where operators are on record to have been placed, by identity; the pattern places the others.
    _placed: Mapping[str, Placement] = field(default_factory=dict, init=False, repr=False)
    _sources: Sources = field(default_factory=Sources, init=False, repr=False)
    _streams: dict[str, StreamSchema] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse unusable settings at once."""
        if not isinstance(self.spark, SparkSession):
            raise ConfigError(f"spark must be a SparkSession, as ab.local_session() gives it, not {self.spark!r}")
        local_path(self.checkpoint)
        check_groups(self.groups)
        clusters = clusters_of(pattern_of(self.placement))
        if self.processors is None and clusters is not None:
            self.processors = clusters.count
        if self.processors is None:
            self.processors = min(self.spark.sparkContext.defaultParallelism, self.groups)
        if not isinstance(self.processors, int) or isinstance(self.processors, bool) or self.processors < 1:
            raise ConfigError(f"processors must be a positive whole number, not {self.processors!r}")
        even_placement(self.groups, self.processors)
        if clusters is not None:
            check_covers(clusters, self.processors)
        check_properties(self.properties, self.processors)
        shares = check_shares(self.initial_placement, self.processors)
        if shares is not None and not isinstance(pattern_of(self.placement), Spread):
            raise ConfigError(f"initial_placement is for operators that are spread, not for {self.placement!r}")
        if self.memory is not None:
            self.memory = parse_bytes(self.memory)
        given = self.policies
        if self.policies is None:
            # Without a budget it has nothing to do, until `run.set_memory` gives one.
            self.policies = (Spill(),)
        if self.policies == ADAPTIVE:
            self.policies = (Adaptive(),)
        check_policies(self.policies)
        if given is not None and self.memory is None and any(isinstance(policy, Spill) for policy in self.policies):
            raise ConfigError("ab.Spill() needs to know what fits: set memory=..., such as memory='200m'")
        remember_classes(self.spark)

    def __repr__(self) -> str:
        """One line: streams, processors, memory and where the state is."""
        memory = f", {format_bytes(self.memory)} each" if isinstance(self.memory, int) else ""
        streams = ", ".join(self._streams) or "no streams yet"
        where = repr(os.fspath(self.checkpoint))
        return f"<Engine over {streams}: {self.processors} processors{memory}, checkpoint {where}>"

    def register(
        self,
        name: str,
        stream: DataFrame,
        *,
        time: str | None = None,
        lateness: str | timedelta | None = None,
    ) -> None:
        """Register a streaming DataFrame under a name.

        Args:
            name: the name that queries use for it.
            stream: any streaming DataFrame.
            time: its event-time column (TIMESTAMP, TIMESTAMP_NTZ or BIGINT milliseconds). Without one the stream
                can only be unbounded.
            lateness: how far behind the newest row of this stream a row may be, such as "10 seconds". Without it no
                row of the stream is ever late, so the streams it is joined with are never purged.
        """
        if isinstance(stream, DataFrame) and not stream.isStreaming:
            raise ConfigError(f"stream {name!r} is not a streaming DataFrame; read it with spark.readStream")
        self._register(name, stream, time, lateness)

    def _register(self, name: str, stream: DataFrame, time: str | None, lateness: str | timedelta | None) -> None:
        """Register a stream. Its batches will be brought by Spark's query, or by a test."""
        schema = stream_schema(name, stream, time, lateness, self._streams)
        self._sources.registered[name] = stream
        self._streams[name] = schema

    def operator(
        self,
        name: str,
        operator: StatefulOperator,
        *,
        over: str,
        key: str | Sequence[str],
        columns: Sequence[str],
        gives: str,
        retention: str | timedelta | None = None,
    ) -> None:
        """Register a stateful operator of your own. Its results are a stream that queries can select from.

        docs/operators.md shows one from beginning to end.

        Args:
            name: the name that queries use for its results.
            operator: the object that computes them (`anabranch.kernel.operator`). It is copied to the processors, so
                its class has to be importable there. A checkpoint belongs to an operator with the same `repr`.
            over: the registered stream, or other operator, that it is applied to.
            key: an expression over that stream, or several: rows with equal keys are on one processor.
            columns: the stream's columns that it sees, as `col.NAME`; the key's are `key.0`, ...
            gives: the columns of its results, as Spark writes schemas: "user STRING, clicks BIGINT".
            retention: how much event time a row is kept after it is settled; without it, for ever.
        """
        applied = applied_operator(name, operator, columns, gives)
        self._streams[name] = operator_schema(self.spark, applied, over, key, retention, self._streams)

    def sql(self, text: str, *, joins: str = "auto", emit: str = "tuple", cluster: str | None = None) -> Query:
        """Make a continuous query from CQL text; refused at once if it cannot be run.

        **GROUP BY answers a row per tuple, not a row per window**: windows slide with every tuple.

        Args:
            text: the query.
            joins: the order of its joins. With "auto" and "multiway" streams that share a key are joined at once. A
                tree over the aliases, such as "((A B) C) D", joins A and B first. The answer is the same.
            emit: how often GROUP BY answers a group: at every "tuple" of it, or once in every "batch" that completes
                the windows of some of its tuples, for the last of these.
            cluster: the cluster of processors that it is to be in, if the engine's `placement` has clusters; by default
                the one that has the fewest operators per processor.

        >>> query = engine.sql(
        ...     "SELECT A.k, A.v, B.v AS bv FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS] WHERE A.k = B.k"
        ... )
        """
        arguments = {"text": text, "joins": joins, "emit": emit}
        if cluster is not None:
            check_cluster(self._settings.clusters, cluster)
        bound = replace(parse_query(text, self._streams, joins, emit), cluster=cluster)
        return Query(self, bound, arguments)

    def start(self, writers: Sequence[Writer], *, missing: str = REFUSE) -> Run:
        """Answer several queries together, each with a sink of its own.

        Operators that they have in common are computed once. They begin at the same row; `run.add` and `run.remove`
        make them more or fewer later. Each of several queries needs a name: `queryName("...")`.

        Args:
            writers: `query.writeStream...`, one for each query.
            missing: what happens if the checkpoint answers a query that is not among these, such as one that was added
                to a run: "refuse" to start without it, or "remove" it, as `run.remove` does.

        >>> run = engine.start([q1.writeStream.queryName("a").option("path", "a"), q2.writeStream.queryName("b")...])
        """
        if isinstance(writers, Writer | Query):
            raise ConfigError("start() takes a list of writers: engine.start([query.writeStream...])")
        writers = list(writers)
        for writer in writers:
            check_writer(writer, "start")
            if writer._query._engine is not self:
                raise ConfigError("start() takes writers of this engine's own queries")
        return start_run(self, writers, missing)

    @property
    def streams(self) -> dict[str, StreamSchema]:
        """The registered streams by name."""
        return dict(self._streams)

    @property
    def _settings(self) -> StepSettings:
        return StepSettings(
            processors=self.processors or 1,
            groups=self.groups,
            memory=self.memory if isinstance(self.memory, int) else None,
            quarantine=_optional_path(self.quarantine),
            late_rows=_optional_path(self.late_rows),
            policies=tuple(policy for policy in self.policies or () if not isinstance(policy, str)),
            pattern=pattern_of(self.placement),
            properties=check_properties(self.properties, self.processors or 1),
        )

    def _prepare(
        self,
        requests: Sequence[Request],
        *,
        read_before: Sequence[str] = (),
        known: KnownAllocation | None = None,
        running: PreparedPlan | None = None,
        stays: bool = False,
        checked: bool = False,
    ) -> PreparedPlan:
        return prepare(
            self.spark,
            requests,
            self._sources,
            self._streams,
            place=self._place,
            clusters=self._settings.clusters,
            processors=self.processors or 1,
            keep_rejected=self.quarantine is not None,
            keep_late=self.late_rows is not None,
            read_before=read_before,
            known=known,
            running=running,
            stays=stays,
            checked=checked,
        )

    def _prepare_again(
        self,
        requests: Sequence[Request],
        read_before: Sequence[str],
        known: KnownAllocation | None,
        running: PreparedPlan | None = None,
        stays: bool = False,
    ) -> PreparedPlan:
        """Prepare queries that were checked one by one; the streaming query of a `running` plan is kept if it can."""
        return self._prepare(requests, read_before=read_before, known=known, running=running, stays=stays, checked=True)

    def _allocate(self, plan: PreparedPlan, allocation: Allocation) -> PreparedPlan:
        """A running plan with its operators elsewhere."""
        keep_rejected, keep_late = self.quarantine is not None, self.late_rows is not None
        return allocate(plan, self._sources, allocation, keep_rejected=keep_rejected, keep_late=keep_late)

    def _place(self, graph: OperatorGraph) -> tuple[Placement, ...]:
        processors = self.processors or 1
        shares = check_shares(self.initial_placement, processors)
        placed = placements_of(pattern_of(self.placement), graph, self.groups, processors, shares)
        return tuple(
            self._placed.get(operator.identity, placement)
            for operator, placement in zip(graph.operators, placed, strict=True)
        )


def _optional_path(location: str | os.PathLike[str] | None) -> Path | None:
    return None if location is None else local_path(location)
