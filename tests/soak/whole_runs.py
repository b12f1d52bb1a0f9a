"""A plan answered through the public API: files arrive while a run goes on, queries are added and removed by hand.

Not everything repeats with the seed: Spark decides which files make a batch together, so two streams may be a batch
apart. No answer depends on it, since what is late is decided stream by stream.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.api.writer import Writer
from anabranch.errors import ConfigError
from anabranch.manager.diffusable import aliases_at
from anabranch.plan.orders.migration_choice import STRATEGIES
from tests.oracle.feed import Feed, written
from tests.oracle.lives import IN_THE_DRIVER, IN_WORKERS, NOT_APART, NOT_NOW, REFUSALS, Answer, Hardships, armed, is_of
from tests.oracle.plans import SCHEMA, Plan, tree


class WholeRun:
    """A run from its first batch to the end of its input. `done` lists what has happened to it, in short words."""

    def __init__(
        self,
        spark: SparkSession,
        directory: Path,
        plan: Plan,
        rng: random.Random,
        others: Mapping[str, Plan],
        hardships: Hardships,
    ) -> None:
        self._spark = spark
        self._directory = directory
        self._plan = plan
        self._rng = rng
        self._others = dict(others)
        self._hardships = hardships
        self._batches = plan.fed()
        self._feeds = {name: Feed(directory / name, SCHEMA) for name in self._batches[0]}
        self._groups = rng.choice([4, 64, 256])
        self._places = random.Random(f"places {plan.text}")  # of its own: what seeds draw stays as it was
        self._fed = 0
        self._crashes = 0
        self._orders = random.Random(f"orders {plan.text}")  # of its own: what seeds draw stays as it was
        self.done: list[str] = []
        self.answers = {"query": Answer(plan, first=0)} | {name: Answer(other) for name, other in others.items()}
        self._asked = ["query"] if hardships.changes else ["query", *others]
        for name in self._asked:
            self.answers[name].first = 0

    def live(self) -> None:
        """Answer all batches, in as many sessions as it takes."""
        while self._fed < len(self._batches):
            self._session()
        engine = self._engine()
        writers = [self._writer(engine, name).trigger(availableNow=True) for name in self._asked]
        engine.start(writers).awaitTermination()

    def check(self) -> None:
        """Compare all answers with DuckDB."""
        for name, answer in self.answers.items():
            folder = self._directory / "out" / name
            if any(folder.rglob("*.parquet")):
                answer.given = {0: written(folder)}
            try:
                answer.check()
            except AssertionError as error:
                raise AssertionError(f"{name!r}, {answer.plan.text}: {error}") from error

    def _session(self) -> None:
        rng, name = self._rng, None
        if rng.random() < self._hardships.crashes:
            name = rng.choice(IN_WORKERS if rng.random() < 0.25 else IN_THE_DRIVER)
        marker = self._directory / f"crash-{self._crashes}"
        self._crashes += 1
        run = None
        try:
            with armed(self._spark, name, marker):
                engine = self._engine()
                run = engine.start([self._writer(engine, query) for query in self._asked])
                run.processAllAvailable()
                for _ in range(rng.choice([1, 2])):
                    if self._fed < len(self._batches):
                        self._feed()
                        run.processAllAvailable()
                    self._adapt(run)
                    self._migrate(run)
                    self._change(engine, run)
        except Exception as error:
            if name is None or not marker.exists() or not is_of(name, error):
                raise
            self.done.append(f"!{name}")
        finally:
            if run is not None:
                run.stop()

    def _feed(self) -> None:
        for name, rows in self._batches[self._fed].items():
            self._feeds[name].add_table(rows)
        self._fed += 1

    def _adapt(self, run: ab.Run) -> None:
        rng = self._rng
        if self._hardships.policies and rng.random() < 0.3:
            run.clean_up()
        if self._hardships.moves and rng.random() < 0.5:
            run.rescale(rng.choice([1, 2, 3, 4]))
            self.done.append("rescale")
        if self._hardships.moves and rng.random() < 0.5:
            self._relocate(run, rng.sample(range(self._groups), 3), rng.choice([None, 1_000]))
        if rng.random() < self._hardships.diffusions:
            self._diffuse(run, rng.sample(range(self._groups), 3))
        if self._places.random() < self._hardships.reallocations:
            self._reallocate(run)

    def _relocate(self, run: ab.Run, groups: list[int], pace: int | None) -> None:
        try:
            run.relocate(groups, to=0, pace=pace)
        except ConfigError as error:
            if "is on its way" not in str(error) and "is diffused" not in str(error):
                raise
            self.done.append("no relocate")  # a policy moves one of the groups already, or has diffused it
        else:
            self.done.append("relocate")

    def _diffuse(self, run: ab.Run, groups: list[int]) -> None:
        """Diffuse groups over all processors; or be refused with a reason."""
        context = run._live.runner.context
        shape, processors = context.shape, context.in_force.distribution.processors
        for number in shape.joins:
            master = " ".join(aliases_at(shape, number, self._rng.randrange(len(shape.operators[number].ports))))
            try:
                run.diffuse(groups, master=master, over=range(processors), operator=shape.operators[number].name)
                self.done.append("diffuse")
            except ConfigError as error:
                # A policy may have migrated the query meanwhile, and then there are other joins.
                refusals = [*NOT_NOW, *NOT_APART, "two or more processors", "there is no operator"]
                if not any(reason in str(error) for reason in refusals):
                    raise
                self.done.append("(not diffused)")

    def _migrate(self, run: ab.Run) -> None:
        """Go on in another order of joins; or be refused with a reason."""
        rng, plan = self._orders, self._plan
        if len(plan.names) < 3 or not self._fed or rng.random() >= self._hardships.migrations:
            return
        order, strategy = tree(rng, plan.names, list(plan.equalities)), rng.choice(["auto", *STRATEGIES])
        try:
            run.migrate(order, strategy, "query", pace=rng.choice([1, 5, 1000]), meanwhile="replace")
            self.done.append(f"{strategy} {order}")
        except ConfigError as error:
            reason = next((reason for reason in REFUSALS if reason in str(error)), None)
            if reason is None:
                raise
            self.done.append(f"({reason})")

    def _reallocate(self, run: ab.Run) -> None:
        """Let operators, or sub-plans, go elsewhere; or be refused since a policy migrates a query."""
        rng, names = self._places, [entry.operator for entry in run.distribution()]
        chosen = rng.sample(names, k=rng.choice([1, 1, len(names)]))
        processors = run._live.runner.status.processors
        to, subplan, apart = rng.choice([None, *range(processors)]), rng.random() < 0.3, rng.random() < 0.2
        try:
            run.reallocate(chosen, to=to, subplan=subplan, apart=apart)
            self.done.append(f"{'sub-plan of ' if subplan else ''}{chosen} to {to}{', apart' if apart else ''}")
        except ConfigError as error:
            if "migrates" not in str(error):
                raise
            self.done.append("(no reallocation while a query migrates)")

    def _change(self, engine: ab.Engine, run: ab.Run) -> None:
        """Add a query, or remove one, or neither; or be refused since a policy has just begun to migrate one."""
        try:
            self._add_or_remove(engine, run)
        except ConfigError as error:
            if "migrates; wait for it" not in str(error):
                raise
            self.done.append("(no other queries while a query migrates)")

    def _add_or_remove(self, engine: ab.Engine, run: ab.Run) -> None:
        """Add a query, or remove one, or neither; all that has been fed is processed."""
        rng = self._rng
        under_way = run._live.migrator.current
        if under_way is not None and self._hardships.changes:
            with suppress(ConfigError):  # it may have been done by then
                under_way.cancel()
        new = [name for name, answer in self.answers.items() if name not in self._asked and answer.last is None]
        if new and self._hardships.changes and rng.random() < 0.6:
            name = rng.choice(new)
            run.add(self._writer(engine, name))
            self._asked.append(name)
            self.answers[name].first = self._fed
            self.done.append(f"+{name}")
        elif len(self._asked) > 1 and self._hardships.changes and rng.random() < 0.4:
            name = rng.choice(self._asked[1:])
            run.remove(name)
            self._asked.remove(name)
            self.answers[name].last = self._fed
            self.done.append(f"-{name}")

    def _engine(self) -> ab.Engine:
        hardships = self._hardships
        engine = ab.Engine(
            self._spark,
            self._directory / "checkpoint",
            processors=self._rng.choice([1, 2, 3]),
            groups=self._groups,
            policies=hardships.policies,
            memory=hardships.memory,
            placement=self._places.choice([ab.Spread(), ab.RoundRobin(), ab.Grouping(), ab.FewestRounds()]),
        )
        for name, feed in self._feeds.items():
            i = self._plan.names.index(name[0])
            late, timed = self._plan.lateness[i], self._plan.timed[i]
            lateness = None if late is None else f"{late} milliseconds"
            engine.register(name, feed.stream(self._spark), time="t" if timed else None, lateness=lateness)
        return engine

    def _writer(self, engine: ab.Engine, name: str) -> Writer:
        plan = self.answers[name].plan
        writer = engine.sql(plan.text, joins=plan.joins).writeStream.queryName(name)
        return writer.format("parquet").option("path", str(self._directory / "out" / name))
