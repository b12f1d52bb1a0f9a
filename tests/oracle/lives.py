"""What can happen to a run, by chance: a plan is answered in several sessions on one checkpoint, each fed some batches.

Between batches operators are placed anywhere, state is spilled, cleaned up, moved and spread over other numbers of
processors; sessions end by a crash; other queries are answered beside the plan's own, come, and go. Everything is drawn
from one generator of random numbers, so the same seed does the same again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from anabranch.errors import ConfigError
from anabranch.manager.diffusable import aliases_at
from anabranch.manager.patterns.named import PATTERNS
from anabranch.manager.patterns.operator_graph import OperatorGraph
from anabranch.manager.patterns.pattern import placements_of
from anabranch.manager.patterns.tier import Tier
from anabranch.manager.policies.auto_migrate import AutoMigrate
from anabranch.manager.policies.clean_up import ON_REQUEST
from anabranch.manager.snapshot import Policy
from anabranch.plan.placement import Placement, even_placement
from anabranch.quantities.clock import Clock
from anabranch.runtime.driver.changes.migration import BACKGROUND, MOVING_STATE, PARALLEL_TRACK
from anabranch.state.failpoints import VARIABLE
from tests.oracle import referee
from tests.oracle.chance import ChanceMoves
from tests.oracle.plans import SCHEMA, Plan, tree
from tests.oracle.reshaping import RESHAPED
from tests.oracle.steps import Kind, Steps

# Where the driver may fail: at every place of a step with a batch, of one without, and of a change of plan.
PLACES = ["before_sink", "after_sink", "before_commit", "after_commit"]
IN_THE_DRIVER = [
    *(f"step.{place}" for place in PLACES),
    *(f"{kind}.{place}" for kind in ("end", "clean-up") for place in ["announced", *PLACES]),
    *("step.processed", "commit.checked", "plan.described", "plan.adopted", "store.write"),
    *(f"migration.{place}" for place in ("begun", "replayed", "settled", "adopted", "ended")),
    *(f"replay.{place}" for place in PLACES),
    *(f"reallocation.{place}" for place in ("connected", "sent", "committed", "activated")),
]
ADAPTATIONS = ["relocate", "diffuse", "gather", "migrate", "reallocate"]
# Why what policies wished may not be done.
WARNINGS = ["does not migrate to", "there is no operator", "goes to a processor from 0", "failpoint", "no space left"]
IN_WORKERS = ["processor.results", "processor.report"]
# Why groups may not be diffused.
NOT_NOW = [
    "only run.send",
    "has state on disk",
    "wait for clean-up",
    "are held back",
    "to be held back",
    "on its way to another",
]
NOT_APART = ["to be diffused while", "are on their way to another processor, and of what it is fused with"]
# Why a migration may be refused.
REFUSALS = [
    "in this order already",
    "never ends here",
    "is a sub-query",
    "is migrating to",
    "would keep its rows otherwise",
    "can fail on a row",
]


@dataclass(frozen=True)
class Hardships:
    """What is done to a run: by which policies, in how little memory, and how likely a session is to crash.

    With `changes` other queries are not there from the beginning to the end. With `reshaped` answers the sink does
    something with an answer before it takes it. After each batch the query migrates with the chance of `migrations`,
    with that of `diffusions` groups of a join are diffused or gathered by hand, and with that of `reallocations`
    operators or sub-plans go elsewhere. Sessions last one batch or two, or so many as it takes policies to decide on
    something (`batches`). With `tiers` processors are in clusters, others in each session, and queries are sent from
    one to another.
    """

    policies: tuple[Policy, ...] = ()
    memory: int | None = None
    crashes: float = 0.0
    changes: bool = False
    reshaped: bool = False
    migrations: float = 0.0
    diffusions: float = 0.0
    reallocations: float = 0.0
    tiers: bool = False
    batches: tuple[int, ...] = (1, 2)

    @property
    def moves(self) -> bool:
        """Whether the number of processors changes while a session lasts."""
        return any(isinstance(policy, ChanceMoves) for policy in self.policies)


@dataclass
class Answer:
    """What a query has answered, by the id that its sink was given, and from which batch on to which it was asked."""

    plan: Plan
    given: dict[int, pa.Table] = field(default_factory=dict)
    first: int | None = None
    last: int | None = None

    def check(self) -> None:
        """Compare with DuckDB. A query that was removed may owe some of its answer, but gave nothing that is wrong."""
        batches = self.plan.batches[self.first : self.last] if self.first is not None else ()
        if not batches:
            assert not any(map(len, self.given.values())), "an answer to a query for which no batch counts"
            return
        asked = replace(self.plan, batches=batches)
        expected = asked.expected()
        found = pa.concat_tables(self.given.values()) if self.given else expected.slice(0, 0)
        if self.last is None:
            referee.assert_same_rows(found, expected)
        else:
            _, surplus = referee.difference(found, expected)
            assert not len(surplus), f"{len(surplus)} too many, such as {surplus.slice(0, 3).to_pylist()}"


class Life:
    """A run from its first batch to the end of its input. `done` lists what has happened to it, in short words."""

    def __init__(
        self,
        spark: SparkSession,
        directory: Path,
        plan: Plan,
        rng: random.Random,
        others: Mapping[str, Plan] | None = None,
        hardships: Hardships | None = None,
    ) -> None:
        self._spark = spark
        self._directory = directory
        self._plan = plan
        self._rng = rng
        self._others = dict(others or {})
        self._hardships = hardships or Hardships()
        self._groups = rng.choice([4, 64, 256])
        self._by_hand = random.Random(plan.text)  # of its own: what seeds draw stays as it was
        self._orders = random.Random(f"orders {plan.text}")
        self._spreads = random.Random(f"diffusion {plan.text}")
        self._places = random.Random(f"places {plan.text}")
        self._tiers = random.Random(f"tiers {plan.text}")
        self._batches = plan.fed()
        self._committed = 0
        self._ended = False
        self._crashes = 0
        # A clock on which enough time passes from batch to batch for policies to measure orders of joins.
        measured = any(isinstance(policy, AutoMigrate) for policy in self._hardships.policies)
        self._clocks = {"clock": Clock()} if measured else {}
        self._seen = 0
        self.done: list[str] = []
        self.answers = {"query": Answer(plan)} | {name: Answer(other) for name, other in self._others.items()}
        self._asked = {} if self._hardships.changes else self._others

    def live(self) -> None:
        """Answer all batches, in as many sessions as it takes."""
        while not self._ended:
            if self._hardships.changes:
                self._change_queries()
            chance, name = self._rng.random(), None
            if chance < self._hardships.crashes:
                name = self._rng.choice(IN_WORKERS if chance < self._hardships.crashes / 4 else IN_THE_DRIVER)
            self._session(name)

    def check(self) -> None:
        """Compare all answers with DuckDB."""
        for name, answer in self.answers.items():
            try:
                answer.check()
            except AssertionError as error:
                raise AssertionError(f"{name!r}, {answer.plan.text}: {error}") from error

    def _change_queries(self) -> None:
        """Another query comes, or one goes, or neither. One that has gone does not come back."""
        new = [name for name in self._others if name not in self._asked and self.answers[name].last is None]
        if new and self._rng.random() < 0.5:
            name = self._rng.choice(new)
            self._asked = self._asked | {name: self._others[name]}
            self.done.append(f"+{name}")
        elif self._asked and self._committed and self._rng.random() < 0.3:
            name = self._rng.choice(list(self._asked))
            self._asked = {other: plan for other, plan in self._asked.items() if other != name}
            self.answers[name].last = self._committed
            self.done.append(f"-{name}")

    def _session(self, failpoint: str | None) -> None:
        marker = self._directory / f"crash-{self._crashes}"
        self._crashes += failpoint is not None
        try:
            with armed(self._spark, failpoint, marker), self._steps() as steps:
                self._committed = steps.next_batch
                self._work(steps)
        except Exception as error:
            if failpoint is None or not marker.exists() or not is_of(failpoint, error):
                raise
            self.done.append(f"!{failpoint}")

    def _steps(self) -> Steps:
        rng, plan = self._rng, self._plan
        processors = rng.choice([1, 2, 3])
        settings: dict[str, object] = {"policies": self._hardships.policies, "memory": self._hardships.memory}
        if self._hardships.tiers:
            processors = self._tiers.choice([2, 3, 4])
            settings["placement"] = chance_tier(self._tiers, processors)
        kinds = {
            stream: Kind(SCHEMA, "t" if timed else None, None if late is None else late * 1000)
            for name, timed, late in zip(plan.names, plan.timed, plan.lateness, strict=True)
            for stream in ((f"{name}1", f"{name}2") if name in plan.united else (name,))
        }
        return Steps(
            self._spark,
            self._directory / "checkpoint",
            plan.text,
            kinds,
            processors=processors,
            groups=self._groups,
            joins=plan.joins,
            place=None if self._hardships.tiers else placing(rng, self._groups, processors),
            others={name: other.text for name, other in self._asked.items()},
            sink=self._sink("query"),
            sinks={name: self._sink(name) for name in self._asked},
            settings=settings | self._clocks,
        )

    def _work(self, steps: Steps) -> None:
        rng, hardships = self._rng, self._hardships
        steps.runner.extra.repeat_announced(steps.plan.packed)
        if steps.next_batch < len(self._batches):
            # The batch that is to come may be one that comes again after a crash.
            self._diffuse_by_hand(steps)
            self._reallocate(steps)
        for _ in range(rng.choice(hardships.batches)):
            if steps.next_batch < len(self._batches):
                self._feed(steps)
                self._spill_by_hand(steps)
                self._diffuse_by_hand(steps)
                self._reallocate(steps)
                self._migrate(steps)
                self._reallocate(steps)
                self._send(steps)
            if hardships.policies and rng.random() < 0.3:
                steps.clean_up()
            if hardships.moves and not hardships.tiers and rng.random() < 0.5:
                steps.runner.manual.rescale(rng.choice([1, 2, 3, 4]))
                steps.check_owners()
        if steps.next_batch == len(self._batches):
            steps.end()
            self._ended = True
        self._note_adaptations(steps)

    def _note_adaptations(self, steps: Steps) -> None:
        """What policies have done by themselves; that nothing of it went wrong, but was refused at most."""
        events = steps.events.since(self._seen)
        for event in events:
            self._seen = event.number
            if event.kind in ADAPTATIONS and ON_REQUEST not in event.reason:
                self.done.append(f"*{event.kind}")
            strange = event.kind == "warning" and not any(
                known in event.reason for known in (*WARNINGS, *NOT_NOW, *NOT_APART)
            )
            assert not strange, event.reason

    def _feed(self, steps: Steps) -> None:
        number = steps.next_batch
        for clock in self._clocks.values():
            clock.advance("1 hour")
        try:
            steps.feed(self._batches[number])
            if steps.runner.failure is not None:  # a migration by a policy has ended the run, and nobody waits for it
                raise steps.runner.failure
            steps.check_owners()
        finally:
            last = steps.taken.last_step()
            if last is not None and last.batch_id == number:
                self._committed = number + 1
                for name in ("query", *self._asked):
                    if self.answers[name].first is None:
                        self.answers[name].first = number

    def _spill_by_hand(self, steps: Steps) -> None:
        """Some groups, if there is an operator that can be spilled, and nothing is on its way."""
        context = steps.runner.context
        can = any(operator.spillable for operator in context.shape.operators)
        if can and not context.in_force.distribution.moving and self._by_hand.random() < 0.3:
            chosen = self._by_hand.sample(range(self._groups), k=self._by_hand.choice([1, self._groups // 2]))
            try:
                steps.public.spill(chosen)
                self.done.append("spill")
            except ConfigError as error:
                if "while diffused" not in str(error):
                    raise
                self.done.append("(not spilled)")

    def _diffuse_by_hand(self, steps: Steps) -> None:
        """Some groups of a join, fused or not, or back; or be refused with a reason."""
        context, rng = steps.runner.context, self._spreads
        distribution, shape = context.in_force.distribution, context.shape
        if not shape.joins or distribution.processors < 2 or rng.random() >= self._hardships.diffusions:
            return
        number = rng.choice(shape.joins)
        diffused, name = [group for group, _ in distribution.routings[number].diffused], shape.operators[number].name
        if diffused and rng.random() < 0.4:
            chosen = rng.sample(diffused, rng.choice([len(diffused), rng.randrange(1, len(diffused) + 1)]))
            to = None if self._hardships.tiers else rng.choice([None, *range(distribution.processors)])
            steps.public.undiffuse(chosen, to=to, operator=name)
            self.done.append("undiffuse")
        else:
            chosen = rng.sample(range(self._groups), rng.choice([1, self._groups // 4, self._groups]))
            master = rng.randrange(len(shape.operators[number].ports))
            hosts = rng.sample(range(distribution.processors), rng.randrange(2, distribution.processors + 1))
            alias = " ".join(aliases_at(shape, number, master))
            try:
                steps.public.diffuse(chosen, master=alias, over=hosts, operator=name)
                self.done.append("diffuse")
            except ConfigError as error:
                if not any(reason in str(error) for reason in NOT_NOW + NOT_APART):
                    raise
                self.done.append("(not diffused)")
        steps.check_owners()

    def _reallocate(self, steps: Steps) -> None:
        """Operators or sub-plans go to a processor, or to all of them, or part from their families."""
        rng = self._places
        if rng.random() >= self._hardships.reallocations:
            return
        names = [operator.name for operator in steps.runner.context.shape.operators]
        chosen = rng.sample(names, k=rng.choice([1, 1, len(names)]))
        to = rng.choice([None, "stay", *range(steps.runner.status.processors)])
        subplan, apart = rng.random() < 0.3, rng.random() < 0.2
        try:
            steps.public.reallocate(chosen, to=to, subplan=subplan, apart=apart)
            steps.check_owners()
            self.done.append(f"{'sub-plan of ' if subplan else ''}{chosen} to {to}{', apart' if apart else ''}")
        except ConfigError as error:
            if "migrates" not in str(error) and "as a whole: run.send" not in str(error):
                raise
            self.done.append("(no reallocation)")

    def _send(self, steps: Steps) -> None:
        """One query goes to a cluster, or all of them; or that is refused with a reason."""
        clusters, rng = steps.runner.context.run.settings.clusters, self._tiers
        if clusters is None or rng.random() < 0.4:
            return
        names = ["query", *self._asked]
        chosen, to = rng.choice([[rng.choice(names)], names]), rng.choice(list(clusters.named))
        try:
            steps.public.send(chosen, to=to)
            self.done.append(f"{chosen} sent to {to}")
        except ConfigError as error:
            if not any(reason in str(error) for reason in ("is shared with", "migrates", "has no operators")):
                raise
            self.done.append("(not sent)")
        steps.check_owners()
        assert None not in map(clusters.of_processors, steps.runner.status.placements)

    def _migrate(self, steps: Steps) -> None:
        """Go on in another order of joins, by any strategy, or cancel that; or be refused with a reason."""
        rng, plan = self._orders, self._plan
        if len(plan.names) < 3 or steps.taken.last_step() is None or rng.random() >= self._hardships.migrations:
            return
        under_way = steps.public._run.migrator.current
        if under_way is not None and rng.random() < 0.2:
            under_way.cancel()
            self.done.append("migration cancelled")
            return
        shape = "multiway" if rng.random() < 0.2 else tree(rng, plan.names, list(plan.equalities))
        strategy = rng.choice([MOVING_STATE, "auto", BACKGROUND, PARALLEL_TRACK])
        meanwhile = rng.choice(["refuse", "replace"])
        try:
            steps.public.migrate(shape, strategy, "query", pace=rng.choice([1, 5, 1000]), meanwhile=meanwhile)
            self.done.append(f"{strategy} {shape}")
        except ConfigError as error:
            reason = next((reason for reason in REFUSALS if reason in str(error)), None)
            if reason is None:
                raise
            self.done.append(f"({reason})")

    def _sink(self, name: str) -> Callable[[DataFrame, int], None]:
        def take(results: DataFrame, batch_id: int) -> None:
            if self._hardships.reshaped:
                RESHAPED[self._rng.choice(list(RESHAPED))](results)
            self.answers[name].given[batch_id] = results.toArrow()

        return take


def placing(rng: random.Random, groups: int, processors: int) -> Callable[[OperatorGraph], tuple[Placement, ...]]:
    """Operators by any pattern, or anywhere: spread, whole on a processor, or scattered group by group."""

    def one() -> Placement:
        scattered = tuple(rng.randrange(processors) for _ in range(groups))
        return rng.choice([even_placement(groups, processors), (rng.randrange(processors),) * groups, scattered])

    if rng.random() < 0.6:
        pattern = PATTERNS[rng.choice(list(PATTERNS))]
        return lambda graph: placements_of(pattern, graph, groups, processors)
    return lambda graph: tuple(one() for _ in graph.operators)


def chance_tier(rng: random.Random, processors: int) -> Tier:
    """Clusters of processors, and any pattern inside of them."""
    numbers = rng.sample(range(processors), k=processors)
    cut = rng.randrange(1, processors)
    return Tier({"first": numbers[:cut], "second": numbers[cut:]}, rng.choice(list(PATTERNS)))


@contextmanager
def armed(spark: SparkSession, failpoint: str | None, marker: Path) -> Iterator[None]:
    """Inside, the driver or one of its workers fails once at a failpoint."""
    environment: dict[str, str] | os._Environ[str] = os.environ
    if failpoint in IN_WORKERS:
        environment = spark.sparkContext.environment  # Spark starts new workers for a new environment
    if failpoint is not None:
        environment[VARIABLE] = f"{failpoint}={'full' if failpoint == 'store.write' else 'raise'}@once:{marker}"
    try:
        yield
    finally:
        environment.pop(VARIABLE, None)


def is_of(failpoint: str, error: BaseException) -> bool:
    """Whether this is the failure that was asked for."""
    return ("no space left" if failpoint == "store.write" else f"failpoint {failpoint}") in str(error)
