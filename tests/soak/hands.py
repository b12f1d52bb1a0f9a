"""Many hands at once: users change a run from several threads while batches come and its policies adapt it.

Whatever they do is done or refused with a reason. Nothing deadlocks, the run does not end by it, and its answer is that
of DuckDB. What happens when depends on the machine, so a seed does not repeat a round exactly.
"""

from __future__ import annotations

import faulthandler
import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.errors import ConfigError
from anabranch.manager.diffusable import aliases_at
from anabranch.manager.snapshot import Policy
from tests.oracle.chance import ChanceMoves, ChanceWishes, Counted
from tests.oracle.feed import Feed, written
from tests.oracle.plans import SCHEMA, Plan, draw, orders_of
from tests.oracle.referee import assert_same_rows

BATCHES, GROUPS, HANDS, CHANGES = 10, 16, 3, 12
# A round that takes longer hangs.
SECONDS = 300


class Hands:
    """A run, and what is done to it."""

    def __init__(self, spark: SparkSession, directory: Path, seed: int) -> None:
        self.rng = random.Random(f"hands {seed}")
        plan = draw(seed, 3, wild=True, batches=BATCHES)
        self.plan: Plan = replace(plan, united=()).thinned(20_000)
        self.seed, self.directory = seed, directory
        self.feeds = {name: Feed(directory / name, SCHEMA) for name in self.plan.names}
        self.done = Counter[str]()
        self.errors: list[BaseException] = []
        self.engine = ab.Engine(
            spark,
            directory / "checkpoint",
            processors=3,
            groups=GROUPS,
            policies=self._policies(),
            placement=self.rng.choice([ab.Spread(), ab.RoundRobin(), ab.Grouping(), ab.FewestRounds()]),
        )
        for i, (name, feed) in enumerate(self.feeds.items()):
            late = self.plan.lateness[i]
            lateness = None if late is None else f"{late} milliseconds"
            self.engine.register(name, feed.stream(spark), time="t" if self.plan.timed[i] else None, lateness=lateness)

    def _policies(self) -> list[Policy]:
        some: list[Policy] = [
            Counted(ab.Adaptive(), self.seed),
            ChanceMoves(self.seed),
            ChanceWishes(self.seed, orders_of(self.plan)),
        ]
        return self.rng.sample(some, self.rng.choice([0, 1, 2, 3]))

    def live(self) -> None:
        """Feed all batches while others change the run, and compare its answer."""
        output = self.directory / "out"
        query = self.engine.sql(self.plan.text, joins=self.plan.joins)
        run = query.writeStream.format("parquet").option("path", str(output)).start()
        hands = [threading.Thread(target=self._change, args=(run, n), daemon=True) for n in range(HANDS)]
        faulthandler.dump_traceback_later(SECONDS, exit=False)
        try:
            for number, batch in enumerate(self.plan.batches):
                for name, rows in batch.items():
                    self.feeds[name].add_table(rows)
                if number == 1:
                    for hand in hands:
                        hand.start()
                run.processAllAvailable()
            for hand in hands:
                hand.join(SECONDS)
                assert not hand.is_alive(), "a thread hangs"
            run.processAllAvailable()
            run.clean_up()
        finally:
            faulthandler.cancel_dump_traceback_later()
            run.stop()
        assert run.exception() is None
        assert not self.errors, self.errors
        self._end(output)

    def _end(self, output: Path) -> None:
        """Answer what waits for the end, in another run, and compare with DuckDB."""
        writer = self.engine.sql(self.plan.text, joins=self.plan.joins).writeStream.format("parquet")
        writer.option("path", str(output)).trigger(availableNow=True).start().awaitTermination()
        expected = self.plan.expected()
        found = written(output) if any(output.rglob("*.parquet")) else expected.slice(0, 0)
        assert_same_rows(found, expected)

    def _change(self, run: ab.Run, number: int) -> None:
        rng = random.Random(f"hand {self.seed} {number}")
        for _ in range(CHANGES):
            name = rng.choice(list(WAYS))
            try:
                WAYS[name](run, rng, self)
                self.done[name] += 1
            except ConfigError as error:
                if not run._live.runner.can_change and not run._live.is_active:
                    self.errors.append(error)
                self.done[f"({name})"] += 1
            except BaseException as error:
                error.add_note(name)
                self.errors.append(error)
            threading.Event().wait(rng.random() * 0.3)


def _operators(run: ab.Run) -> list[str]:
    return [entry.operator for entry in run.distribution()]


def _diffuse(run: ab.Run, rng: random.Random, _: Hands) -> None:
    shape = run._live.runner.context.shape
    number = rng.randrange(len(shape.operators))
    alias = " ".join(aliases_at(shape, number, 0))
    groups = rng.sample(range(GROUPS), 4)
    run.diffuse(groups, master=alias, over=[0, 1], operator=shape.operators[number].name)


def _migrate(run: ab.Run, rng: random.Random, hands: Hands) -> None:
    strategy = rng.choice(["moving-state", "background", "auto"])
    begun = run.migrate(rng.choice(orders_of(hands.plan)), strategy, pace=rng.choice([5, 1000]))
    if rng.random() < 0.3:
        begun.cancel()


WAYS: dict[str, Callable[[ab.Run, random.Random, Hands], object]] = {
    "reallocate": lambda run, rng, _: run.reallocate(
        rng.choice(_operators(run)), to=rng.choice([None, "stay", 0, 1, 2]), subplan=rng.random() < 0.3
    ),
    "set apart": lambda run, rng, _: run.reallocate(rng.choice(_operators(run)), to="stay", apart=True),
    "diffuse": _diffuse,
    "undiffuse": lambda run, rng, _: run.undiffuse(rng.sample(range(GROUPS), 4)),
    "relocate": lambda run, rng, _: run.relocate(
        rng.sample(range(GROUPS), 4), to=rng.randrange(2), pace=rng.choice([None, 1_000])
    ),
    "rescale": lambda run, rng, _: run.rescale(rng.choice([2, 3, 4])),
    "migrate": _migrate,
    "clean up": lambda run, rng, _: run.clean_up(),
    "memory": lambda run, rng, _: run.set_memory(rng.choice([None, 300, 10_000])),
    "look": lambda run, rng, _: (run.plans(), run.groups(), run.lastProgress, run.progress, str(run.distribution())),
}


def do_hands(spark: SparkSession, directory: Path, seed: int) -> str:
    """A round; what was done in it."""
    hands = Hands(spark, directory, seed)
    try:
        hands.live()
    except Exception as error:
        error.add_note(f"{hands.plan.text}; {dict(hands.done)}")
        raise
    return ", ".join(f"{count} {name}" for name, count in sorted(hands.done.items()))
