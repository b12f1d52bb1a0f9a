"""A variant: a way to run an experiment's query, with settings of the engine and perturbations from outside.

A perturbation (the word of paper 2) comes after a number of batches. Where variants run `abreast`, processors get
another share of a core; elsewhere, one of them gets less memory. Spark begins the next batch at once, so a perturbation
may come in the middle of that one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from anabranch.api.engine import Engine
from anabranch.api.run import Run
from anabranch.api.writer import Writer
from anabranch.bench.experiments.rig.workload import Workload
from anabranch.manager.snapshot import Policy

POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class SlowDown:
    """After `batch` batches processors have these shares of a core, one for each."""

    batch: int
    shares: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class CutMemory:
    """After `batch` batches a processor has only `memory` bytes."""

    batch: int
    processor: int
    memory: int


Perturbation = SlowDown | CutMemory


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant: its name for people, the memory of each processor in bytes, policies, and perturbations.

    `initial_placement` are shares of the partition groups, one per processor; without it all have equally many.
    """

    name: str
    memory: int | None = None
    policies: tuple[Policy, ...] = ()
    processors: int = 1
    initial_placement: tuple[int, ...] | None = None
    groups: int | None = None
    perturbations: tuple[Perturbation, ...] = ()

    def settings(self) -> dict[str, Any]:
        """The settings of the engine; without a value its defaults hold."""
        chosen = {
            "processors": self.processors,
            "memory": self.memory,
            "policies": list(self.policies),
            "initial_placement": self.initial_placement,
            "groups": self.groups,
        }
        return {name: value for name, value in chosen.items() if value is not None}

    def writer(self, spark: SparkSession, workload: Workload, source: Path, folder: Path) -> Writer:
        """A writer of the query on the files in `source`, one per batch, up to their end; it has no sink yet."""
        engine = Engine(spark, folder / "checkpoint", **self.settings())
        for name in workload.streams:
            schema = spark.read.parquet(str(source / name)).schema
            frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source / name))
            timed = {} if workload.lateness is None else {"time": "ts", "lateness": workload.lateness}
            engine.register(name, frame, **timed)
        return engine.sql(workload.query).writeStream.trigger(availableNow=True)

    @property
    def slows_down(self) -> bool:
        """Whether processors are slowed down at any time."""
        return bool(self._slow_downs)

    def shares(self, batch: int) -> dict[int, float]:
        """The shares of a core that processors have in a batch; processors without one are free."""
        begun = [one for one in self._slow_downs if one.batch <= batch]
        return dict(enumerate(begun[-1].shares)) if begun else {}

    @property
    def _slow_downs(self) -> list[SlowDown]:
        slow_downs = [perturbation for perturbation in self.perturbations if isinstance(perturbation, SlowDown)]
        return sorted(slow_downs, key=lambda perturbation: perturbation.batch)


def cut_memory(run: Run, cuts: Iterable[CutMemory]) -> None:
    """Cut the memory of a run at each due batch; return after the last cut, or when the run has ended."""
    for cut in sorted(cuts, key=lambda one: one.batch):
        while _batches_done(run) < cut.batch:
            if not run.isActive:
                return
            time.sleep(POLL_SECONDS)
        run.set_memory(cut.memory, processor=cut.processor)


def _batches_done(run: Run) -> int:
    progress = run.lastProgress
    return 0 if progress is None else int(progress["batchId"]) + 1
