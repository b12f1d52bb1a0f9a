"""Variants abreast: all at once, batch by batch in turn, so that other load on the machine meets all of them.

Runs that follow each other are minutes apart, and on a shared machine two equal ones easily differ by a tenth. Here
every variant is a run of its own, in one Spark, and while one works the others wait at a turnstile, in their
`foreachBatch` functions. A turn lasts from there to the same place in the next batch: the work of all processors, the
commit, the decisions of policies, Spark's planning. No other variant works in that time. The last turn ends with the
run.

Every variant has a turn for each batch, and comes after each of the others equally often, but never after itself: the
second of two turns in a row is mostly faster. A variant that is slowed down is so in its own turns only.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from anabranch.api.run import Run
from anabranch.bench.experiments.rig.trace import Trace, read_trace
from anabranch.bench.experiments.rig.variant import Variant
from anabranch.bench.experiments.rig.workload import Workload
from anabranch.bench.slow_machines.slowdown import Slowdown

POLL_SECONDS = 0.1


def turns(count: int) -> Iterator[int]:
    """The order of turns, in rounds that have every number once. The next number is one that has followed the last one
    least often; chance decides among several, so that none always comes first."""
    followed: Counter[tuple[int, int]] = Counter()
    chance = random.Random(count)
    last = -1
    while True:
        left = list(range(count))
        while left:
            others = [one for one in left if one != last] or left  # who is alone follows itself
            chosen = min(others, key=lambda one: (followed[last, one], chance.random()))
            followed[last, chosen] += 1
            left.remove(chosen)
            last = chosen
            yield chosen


class Turnstile:
    """Lets one of several go on at a time, once all have come; `seconds` are the lengths of the turns of each."""

    def __init__(self, count: int) -> None:
        """A turnstile for a number of runs, none of which has come yet."""
        self.seconds: list[list[float]] = [[] for _ in range(count)]
        self._changed = threading.Condition()
        self._expected = set(range(count))
        self._come: set[int] = set()
        self._order = turns(count)
        self._turn: int | None = None
        self._since = 0.0
        self._closed = False

    def pass_through(self, who: int) -> None:
        """End the turn of `who`, if it has one, and wait for its next turn."""
        with self._changed:
            self._come.add(who)
            self._end_turn(who)
            self._changed.wait_for(lambda: self._turn == who or self._closed)
            self._since = time.perf_counter()

    def leave(self, who: int) -> None:
        """End the turn of `who` for good."""
        with self._changed:
            self._expected.discard(who)
            self._end_turn(who)

    def close(self) -> None:
        """Let all go on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _end_turn(self, who: int) -> None:
        if self._turn == who:
            self.seconds[who].append(time.perf_counter() - self._since)
            self._turn = None
        if self._turn is None and self._come >= self._expected:
            self._turn = next(one for one in self._order if one in self._expected) if self._expected else None
            self._changed.notify_all()


def run_abreast(
    spark: SparkSession, workload: Workload, source: Path, folder: Path, variants: Sequence[Variant]
) -> list[Trace]:
    """Run all variants on the files in `source`, in turn; the times of their batches are those of their turns."""
    turnstile, slowdown = Turnstile(len(variants)), Slowdown(os.getpid())
    runs: list[Run] = []
    with slowdown if any(variant.slows_down for variant in variants) else nullcontext():
        try:
            for who, variant in enumerate(variants):
                writer = variant.writer(spark, workload, source, folder / str(who))
                runs.append(writer.foreachBatch(_sink(turnstile, who, variant, slowdown)).start())
            ended = _await_all(runs, turnstile)
        finally:
            turnstile.close()
            for run in runs:
                run.stop()
    for run in runs:
        run.awaitTermination()
    return [
        # The end of the input may take a turn of its own, after those of the batches.
        read_trace(variant.name, run, end, batch_seconds=seconds)
        for variant, run, end, seconds in zip(variants, runs, ended, turnstile.seconds, strict=True)
    ]


def _sink(turnstile: Turnstile, who: int, variant: Variant, slowdown: Slowdown) -> Callable[[DataFrame, int], None]:
    def take(results: DataFrame, batch: int) -> None:
        turnstile.pass_through(who)
        if variant.slows_down:
            slowdown.set(variant.shares(batch))
        results.write.format("noop").mode("overwrite").save()

    return take


def _await_all(runs: Sequence[Run], turnstile: Turnstile) -> list[float]:
    """Wait until all runs have ended; return the times of their ends."""
    ended: dict[int, float] = {}
    while len(ended) < len(runs):
        for who, run in enumerate(runs):
            if who not in ended and not run.isActive:
                ended[who] = time.time()
                turnstile.leave(who)
        time.sleep(POLL_SECONDS)
    return [ended[who] for who in range(len(runs))]
